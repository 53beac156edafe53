"""The files of a search: the winner as a recipe, all trials as data, two figures, and a page that explains them."""

import dataclasses
import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsnet._files import write_atomically
from capsnet.drawing.document import Bullets, Code, Document, Figure, Heading, Table
from capsnet.drawing.plots import ranked as ranked_plot
from capsnet.inference import pick_device
from capsnet.search._figures import Point, history
from capsnet.search._storage import masked, need_optuna
from capsnet.search._verdict import CAVEATS, Verdict
from capsnet.search._worker import Job, finished_trials, is_default, ranked, retry_of
from capsnet.search.spaces import describe
from capsnet.training.run import CHECKPOINT, environment

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

BEST = "best.json"
SHOWN = 10  # trials in the table
ENOUGH = 8  # complete trials below which the importance of a setting is noise


def best_trial(job: Job, study: "optuna.Study") -> "FrozenTrial":
    """The complete trial with the best validation accuracy; of equal ones the first."""
    best = next(iter(ranked(study.get_trials(deepcopy=False))), None)
    if best is None or best.state.name != "COMPLETE":
        raise ValueError(
            f"no trial of {job.study!r} ran to its end: every one diverged, or the time was too short; "
            "run the same command to continue"
        )
    return best


def table(trials: "list[FrozenTrial]") -> list[list[str]]:
    """The best trials as rows of text; the first row holds the names of the columns."""
    best = ranked(trials)[:SHOWN]
    names = list(dict.fromkeys(name for trial in best for name in trial.params))
    rows = [["trial", "validation", *names, ""]]
    for trial in best:
        marks = ["pruned"] * (trial.state.name == "PRUNED") + ["default"] * is_default(trial)
        values = [trial.params.get(name, "-") for name in names]
        values = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in values]
        rows.append([str(trial.number), f"{trial.value:.2%}", *values, ", ".join(marks)])
    return rows


def importances(study: "optuna.Study") -> dict[str, float]:
    """The importance of each setting, largest first; empty if there are too few trials.

    PED-ANOVA (Watanabe et al. 2023, arXiv 2304.10255): how differently a setting is distributed among the best tenth
    of the trials and among all. It handles conditional settings and needs no further library.
    """
    importance = need_optuna().importance
    complete = [t for t in finished_trials(study) if t.state.name == "COMPLETE"]
    if len(complete) < ENOUGH or len({t.value for t in complete}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = importance.PedAnovaImportanceEvaluator(target_quantile=max(0.1, 3 / len(complete)))
        try:
            values = importance.get_param_importances(study, evaluator=evaluator)
        except (ValueError, RuntimeError, ZeroDivisionError):
            return {}
    return {name: float(value) for name, value in values.items() if value == value}


def write_report(job: Job, study: "optuna.Study", winner: "FrozenTrial", verdict: Verdict | None) -> None:
    """Write ``search.json``, the figures and ``README.md``."""
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if trial.state.name == "FAIL":
            (job.trial_folder(trial.number) / CHECKPOINT).unlink(missing_ok=True)
    importance = importances(study)
    env = environment(pick_device(job.device)) | {"optuna": need_optuna().__version__}
    content = {
        "recipe": job.config.recipe,
        "space": job.space,
        "study": job.study,
        "storage": masked(job.storage),
        "wanted": job.trials,
        "finished": len(finished_trials(study)),
        "best": {"trial": winner.number, "validation_accuracy": winner.value, "params": winner.params},
        "verdict": None if verdict is None else verdict._asdict() | {"real": verdict.real, "words": str(verdict)},
        "importance": importance,
        "config": dataclasses.asdict(job.config),
        "environment": env,
        "trials": [_record(trial) for trial in trials],
    }
    write_atomically(job.out / "search.json", json.dumps(content, indent=1) + "\n")
    figures = draw(job, trials, importance)
    write_atomically(job.out / "README.md", page(job, trials, winner, verdict, figures, env).to_markdown())


def _record(trial: "FrozenTrial") -> dict[str, Any]:
    start, end = trial.datetime_start, trial.datetime_complete
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "validation_accuracy": trial.value,
        "params": trial.params,
        "epochs": {str(step): value for step, value in sorted(trial.intermediate_values.items())},
        "kept_epoch": trial.user_attrs.get("epoch"),
        "seconds": trial.user_attrs.get("seconds"),
        "default": is_default(trial),
        "retry_of": retry_of(trial),
        "reason": trial.user_attrs.get("reason"),
        "worker": trial.user_attrs.get("worker"),
        "started": None if start is None else start.isoformat(timespec="seconds"),
        "ended": None if end is None else end.isoformat(timespec="seconds"),
    }


def draw(job: Job, trials: "list[FrozenTrial]", importance: dict[str, float]) -> list[Path]:
    """The history of the study, and the importance of its settings if it is known."""
    folder, name = job.out / "figures", f"{job.config.recipe}, space {job.space}"
    folder.mkdir(exist_ok=True)
    ended = [t for t in trials if t.value is not None and t.datetime_complete is not None]
    points = [
        Point(t.value or 0.0, "default" if is_default(t) else t.state.name.lower(), t.state.name == "COMPLETE")
        for t in sorted(ended, key=lambda t: (t.datetime_complete, t.number))
    ]
    drawn = [history(folder / "history.png", points, f"Search: {name}")]
    if importance:
        note = "what separates the best trials from the others; rough if there are few trials"
        rows = {parameter: [100 * value] for parameter, value in importance.items()}
        path, title = folder / "importance.png", f"Importance: {name}"
        drawn.append(ranked_plot(path, rows, title, note, "importance, %", (0, 0)))
    return drawn


def page(
    job: Job,
    trials: "list[FrozenTrial]",
    winner: "FrozenTrial",
    verdict: Verdict | None,
    figures: list[Path],
    env: dict[str, Any],
) -> Document:
    """``README.md``: what was searched, what came out, how far to trust it, how to use it."""
    states, config, (columns, *rows) = [t.state.name for t in trials], job.config, table(trials)
    images = "all training images" if config.limit is None else f"{config.limit:,} training images"
    own = " These are the recipe's own values." if is_default(winner) else ""
    document = Document(f"Search: {config.recipe} ({config.model} on {config.data}), space {job.space}")
    document.add(
        f"Searched: {describe(job.space)}. {states.count('COMPLETE')} trials ran to the end, {states.count('PRUNED')} "
        f"were pruned; each had {config.epochs} epoch{'s' * (config.epochs > 1)} on {images}, seed {config.seed}. "
        "Everything was judged by the validation split; the test split was not touched.",
        f"**Best: trial {winner.number}, validation accuracy {winner.value:.2%}.**{own}",
        Table("", columns, rows),
    )
    if verdict is not None:
        pairs = zip(verdict.seeds, verdict.default, verdict.winner, strict=True)
        seeds = [[str(seed), f"{own:.2%}", f"{new:.2%}", f"{100 * (new - own):+.2f}"] for seed, own, new in pairs]
        compared = Table("", ["seed", "the recipe's own", "the winner", "difference"], seeds)
        document.add(Heading("Is it really better?"), str(verdict), compared, Bullets(CAVEATS))
    return document.add(
        *(Figure(path.relative_to(job.out), path.stem) for path in figures),
        Heading("Use it"),
        Code(f"capsnet train {shlex.quote(str(job.out / BEST))}"),
        "trains the winner as it was tried and tests it at the end; `--epochs` and `--limit None` give it more. "
        "The command that made this page continues the study if it is run again with more `--trials`:",
        Code(env["command"]),
        "`best.json` is the winner's configuration, `search.json` every trial with its values and epochs, "
        f"`{job.trial_folder(0).parent.name}/` a folder with configuration and metrics for each, `seeds/` the "
        "trainings of the comparison.",
        "{processor}, {threads} threads, {device}; capsnet {capsnet}, torch {torch}, optuna {optuna}.".format(**env),
    )
