"""What a search leaves behind: the winner as a recipe, all trials as data, two pictures and a page for a stranger."""

import dataclasses
import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsnet._files import write_atomically
from capsnet.search import _figures
from capsnet.search._claims import DEFAULT, ORIGIN, OWNER, REASON
from capsnet.search._storage import masked, need_optuna
from capsnet.search._verdict import CAVEATS, Verdict
from capsnet.search._worker import Orders, folder_of, ordered
from capsnet.search.spaces import change, describe
from capsnet.training import TrainConfig
from capsnet.training.run import CHECKPOINT, environment

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

BEST, ALL, README = "best.json", "search.json", "README.md"
SHOWN = 10  # trials in the table
ENOUGH = 8  # complete trials below which shares of importance are noise


def winner_of(orders: Orders, study: "optuna.Study") -> "FrozenTrial":
    """The complete trial with the best validation accuracy; of equal ones the first."""
    complete = [t for t in ordered(study.get_trials(deepcopy=False)) if t.state.name == "COMPLETE"]
    if not complete:
        raise ValueError(
            f"no trial of {orders.study!r} ran to its end: every one diverged, or the time was too short; "
            "the same command goes on"
        )
    return complete[0]


def config_of(orders: Orders, trial: "FrozenTrial") -> TrainConfig:
    return change(orders.config, trial.params)


def write_best(orders: Orders, winner: "FrozenTrial", tensorboard: bool) -> Path:
    """The winner as ``capsnet train`` takes it."""
    config = dataclasses.replace(config_of(orders, winner), tensorboard=tensorboard)
    return write_atomically(orders.out / BEST, config.to_json())


def table(trials: "list[FrozenTrial]", count: int = SHOWN) -> list[list[str]]:
    """The best trials as rows of words, the first row being the names of the columns."""
    best = ordered(trials)[:count]
    names = list(dict.fromkeys(name for trial in best for name in trial.params))
    rows = [["trial", "validation", *names, ""]]
    for trial in best:
        marks = ["pruned"] * (trial.state.name == "PRUNED") + ["default"] * is_default(trial)
        told = [_word(trial.params[name]) if name in trial.params else "-" for name in names]
        rows.append([str(trial.number), f"{trial.value:.2%}", *told, ", ".join(marks)])
    return rows


def is_default(trial: "FrozenTrial") -> bool:
    return DEFAULT in trial.user_attrs


def importances(study: "optuna.Study") -> dict[str, float]:
    """Shares of the settings, the largest first; none if there are too few trials to say.

    PED-ANOVA (Watanabe et al. 2023, arXiv 2304.10255): how differently a setting is distributed among the best tenth
    of the trials and among all. It takes conditional settings and needs no further library.
    """
    optuna = need_optuna()
    complete = [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    if len(complete) < ENOUGH or len({t.value for t in complete}) < 2:
        return {}
    quantile = max(0.1, 3 / len(complete))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=min(quantile, 0.5))
        try:
            shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        except (ValueError, RuntimeError, ZeroDivisionError):
            return {}
    return {name: float(share) for name, share in shares.items() if share == share}


def write_report(orders: Orders, study: "optuna.Study", verdict: Verdict | None, tensorboard: bool) -> None:
    """Everything but the trials' own folders."""
    winner = winner_of(orders, study)
    trials = study.get_trials(deepcopy=False)
    write_best(orders, winner, tensorboard)
    shares, drawn = importances(study), draw(orders, study)
    for trial in trials:
        if trial.state.name == "FAIL":
            (folder_of(orders, trial.number) / CHECKPOINT).unlink(missing_ok=True)
    env = environment_of(orders)
    content = {
        "recipe": orders.config.recipe,
        "space": orders.space,
        "study": orders.study,
        "storage": masked(orders.storage),
        "wanted": orders.trials,
        "finished": len([t for t in trials if t.state.name in ("COMPLETE", "PRUNED")]),
        "best": {"trial": winner.number, "validation_accuracy": winner.value, "params": winner.params},
        "verdict": None if verdict is None else verdict._asdict() | {"real": verdict.real, "words": str(verdict)},
        "importance": shares,
        "config": dataclasses.asdict(orders.config),
        "environment": env,
        "trials": [_plain(trial) for trial in trials],
    }
    write_atomically(orders.out / ALL, json.dumps(content, indent=1) + "\n")
    write_atomically(orders.out / README, page(orders, study, winner, verdict, drawn, env))


def environment_of(orders: Orders) -> dict[str, Any]:
    from capsnet.inference import pick_device

    return environment(pick_device(orders.device)) | {"optuna": need_optuna().__version__}


def draw(orders: Orders, study: "optuna.Study") -> list[Path]:
    """The history, and the importances where there is something to say."""
    folder = orders.out / "figures"
    folder.mkdir(exist_ok=True)
    done = [t for t in study.get_trials(deepcopy=False) if t.value is not None and t.datetime_complete is not None]
    done.sort(key=lambda t: (t.datetime_complete, t.number))
    points = []
    for trial in done:
        state = trial.state.name.lower()
        kind = "default" if is_default(trial) else state
        points.append(_figures.Point(trial.number, trial.value or 0.0, kind, state == "complete"))
    name = f"{orders.config.recipe}, space {orders.space}"
    drawn = [_figures.history(folder / "history.png", points, f"Search: {name}")]
    if shares := importances(study):
        note = "what separates the best trials from the others; shares of few trials are rough"
        drawn.append(_figures.importance(folder / "importance.png", shares, f"Importance: {name}", note))
    return drawn


def page(
    orders: Orders,
    study: "optuna.Study",
    winner: "FrozenTrial",
    verdict: Verdict | None,
    drawn: list[Path],
    env: dict[str, Any],
) -> str:
    """A page for a stranger: what was searched, what came out, how far to trust it, how to use it."""
    trials = study.get_trials(deepcopy=False)
    kinds = [t.state.name for t in trials]
    rows = table(trials)
    config = orders.config
    learnt = "all training images" if config.limit is None else f"{config.limit:,} training images"
    own = " These are the recipe's own values." if is_default(winner) else ""
    return "\n".join(
        [
            f"# Search: {config.recipe} ({config.model} on {config.data}), space {orders.space}",
            "",
            f"Searched: {describe(orders.space)}. {kinds.count('COMPLETE')} trials ran to their end, "
            f"{kinds.count('PRUNED')} were pruned; "
            f"each had {config.epochs} epoch{'s' * (config.epochs > 1)} on {learnt}, seed {config.seed}. "
            "Everything was judged by the validation split; the test split was not touched.",
            "",
            f"**Best: trial {winner.number}, validation accuracy {winner.value:.2%}.**{own}",
            "",
            "| " + " | ".join(rows[0]) + " |",
            "|" + "---|" * len(rows[0]),
            *("| " + " | ".join(row) + " |" for row in rows[1:]),
            "",
            *verdict_lines(verdict),
            *(f"![{path.stem}](figures/{path.name})" for path in drawn),
            "",
            "## Use it",
            "",
            f"    capsnet train {shlex.quote(str(orders.out / BEST))}",
            "",
            "trains the winner as it was tried and tests it at the end; `--epochs` and `--limit None` give it more.",
            "The command that made this, given again with more `--trials`, goes on:",
            "",
            f"    {env['command']}",
            "",
            "`best.json` is the winner's configuration, `search.json` every trial with its values and epochs, "
            f"`{folder_of(orders, 0).parent.name}/` a folder with configuration and metrics for each, "
            "`seeds/` the trainings of the comparison.",
            "",
            "{processor}, {threads} threads, {device}; capsnet {capsnet}, torch {torch}, optuna {optuna}.".format(
                **env
            ),
            "",
        ]
    )


def verdict_lines(verdict: Verdict | None) -> list[str]:
    """The comparison, and how far to trust it."""
    if verdict is None:
        return []
    rows = zip(verdict.seeds, verdict.default, verdict.winner, strict=True)
    return [
        "## Is it really better?",
        "",
        str(verdict),
        "",
        "| seed | the recipe's own | the winner | difference |",
        "|---|---|---|---|",
        *(f"| {seed} | {own:.2%} | {new:.2%} | {100 * (new - own):+.2f} |" for seed, own, new in rows),
        "",
        *(f"- {caveat}" for caveat in CAVEATS),
        "",
    ]


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _plain(trial: "FrozenTrial") -> dict[str, Any]:
    times = (trial.datetime_start, trial.datetime_complete)
    owner = trial.user_attrs.get(OWNER)
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "validation_accuracy": trial.value,
        "params": trial.params,
        "epochs": {str(step): value for step, value in sorted(trial.intermediate_values.items())},
        "kept_epoch": trial.user_attrs.get("epoch"),
        "seconds": trial.user_attrs.get("seconds"),
        "origin": trial.user_attrs.get(ORIGIN),
        "reason": trial.user_attrs.get(REASON),
        "worker": None if owner is None else f"{owner['host'].split()[0]}:{owner['pid']}",
        "started": None if times[0] is None else times[0].isoformat(timespec="seconds"),
        "ended": None if times[1] is None else times[1].isoformat(timespec="seconds"),
    }
