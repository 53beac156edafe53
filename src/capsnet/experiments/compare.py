"""Routings side by side: the same network, the same data, the same training, and only the routing differs.

Papers compare their routing with numbers from other papers' tables, trained otherwise on other networks. Here each
routing takes its turn between the primary and the class capsules of one network, on overlapping digits and on
overlapping shapes, where it has something to do: test error, time per epoch, memory, parameters, how undecided its
couplings are, what share of the children on an object goes to its capsule, and what happens when a network that was
trained with its own number of iterations is *tested* with 1, 2, 3 or 5.

The claim to look at: does routing beat `uniform`, which does not route at all? And is it worth its cost?
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from capsnet import data, models, recipes, routing
from capsnet.drawing.plots import Line, lines, scatter
from capsnet.experiments import _nets, _routed
from capsnet.experiments._claims import Claim, lower, measure_named
from capsnet.experiments._compared import TEST_ITERATIONS, as_trained, averaged, measure, memory
from capsnet.experiments._estimate import seconds_per_epoch
from capsnet.experiments._mistakes import fewer, gap, mistakes, pictures_of, read, sign, stored
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments._routed import PAIRS, preset
from capsnet.experiments.lab import Lab, main_metric
from capsnet.metrics import multi_hot
from capsnet.training import TrainConfig, read_config

SEVERAL = [PAIRS, "crowded Shapes"]
STEPS = 15  # that are timed


def contenders(lab: Lab) -> list[str]:
    """What takes part: the routings and forms that the caller named, else all that are registered."""
    everything = routing.list_forms()
    names = lab.options.get("routings") or lab.pick(["dynamic", "em", "uniform"], everything, everything)
    for name in names:
        routing.get(name)  # an unknown name is an error here
    return list(names)


def asked(lab: Lab) -> TrainConfig | None:
    """The recipe that the caller named, at its own length; None: the network of ``_routed``."""
    name: str | None = lab.options.get("recipe")
    if name is None:
        return None
    recipe = read_config(name) if name.endswith(".json") else recipes.get(name)
    if "routing" not in models.model_options(recipe.model):
        raise ValueError(f"{recipe.model}, the network of {name}, has no routing to exchange")
    return dataclasses.replace(recipe, epochs=1, limit=400, eval_limit=300) if lab.budget == "smoke" else recipe


def sets(lab: Lab) -> list[str]:
    """On what routings are compared: titles of ``_routed.DATA``, or the data of the recipe."""
    recipe = asked(lab)
    return lab.pick([PAIRS], SEVERAL, SEVERAL) if recipe is None else [recipe.data]


def config(lab: Lab, title: str, name: str, seed: int) -> TrainConfig:
    """The same training with this routing in it; a recipe's with as many iterations as it states."""
    recipe, algorithm = asked(lab), routing.get(name)
    if recipe is None:
        return _routed.config(lab, title, name, seed)
    rest = dict(recipe.model_options)
    own = rest.pop("routing_options", None) or {}  # options that this routing does not know are left out
    options = preset(name) | {key: own[key] for key in own if key in routing.option_names(algorithm.name)}
    squash = algorithm.wants_presence and "squash" in models.model_options(recipe.model)
    return dataclasses.replace(
        recipe,
        recipe=f"compare-{name}",
        routing=algorithm.name,
        iterations=recipe.iterations if algorithm.iterates else None,
        seed=seed,
        tensorboard=False,
        model_options=({"squash": "unit"} if squash else {}) | rest | ({"routing_options": options} if options else {}),
    )


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, title, name, seed) for title in sets(lab) for name in contenders(lab) for seed in lab.seeds]


def claims(report: Report) -> list[Claim]:
    """Routing by agreement against none, where both took part."""
    source, found = "Sabour et al. 2017", []
    for title in SEVERAL:
        ours, control = (f"{title}, {name}" for name in ("dynamic", "uniform"))
        compared = report.raw.get(title, {})
        if not {"dynamic", "uniform"} <= compared.keys():
            continue
        text = f"Routing by agreement beats no routing: {title}"
        if gaps := compared["dynamic"].get("gaps"):
            error, plain = measure_named(report, ours), measure_named(report, control)
            found.append(fewer(text, source, error, plain, read(gaps["uniform"])))
        else:  # results stored before differences were measured picture by picture
            found.append(lower(text, source, report, ours, control))
    return found


@register(
    "compare",
    "Routings side by side: error, time, memory, couplings, and other numbers of iterations at test time",
    plan=plan,
    budgets=STRONG,
    options=("routings", "recipe"),
    verb="compare",
    claims=claims,
)
def run(lab: Lab) -> Report:
    report = Report(differs=["Not in one paper: each compares itself with tables of others.", *setting(lab)])
    chances: dict[str, float] = {}
    for title in sets(lab):
        compared = measure_all(lab, title)
        errors = [error_measure(name, facts["test"]) for name, facts in compared.items()]
        report.raw[title] = compared
        report.measures += [error._replace(name=f"{title}, {error.name}") for error in errors]
        describe(report, title, errors, compared)
        split = data.load(config(lab, title, next(iter(compared)), 0).data, "validation")
        report.findings += untrained(title, errors, split)
        report.differs += precisions(title, compared)
        draw(lab, report, title, errors, compared)
        if known := [facts["shares"]["chance"] for facts in compared.values() if facts["shares"]]:
            chances[title] = known[0]
    report.findings += explained(chances)
    return report


def measure_all(lab: Lab, title: str) -> dict[str, dict[str, Any]]:
    """Train each routing on one data set, and measure it: time and memory of the first seed, the rest of all."""
    compared, configs, wrong = {}, [], {}
    test, members = pictures_of(config(lab, title, contenders(lab)[0], 0))
    for name in contenders(lab):
        trained = [lab.train(config(lab, title, name, seed)) for seed in lab.seeds]
        first = as_trained(config(lab, title, name, 0), trained[0])
        configs.append(first)
        wrong[name] = mistakes(lab, trained, test, first.data)
        seeds = [lab.remember("seed", functools.partial(measure, lab, t, first), run=t.folder) for t in trained]
        make = functools.partial(memory, first, type(trained[0].model).__module__)
        compared[name] = averaged(seeds) | {
            **lab.remember("memory", make, run=trained[0].folder, precision=first.precision),
            "seeds": seeds,
            "test": [main_metric(t.test) for t in trained],
            "validation": [t.validation for t in trained],
            "parameters": trained[0].model.num_parameters(),
            "precision": first.precision,
        }
    timed = functools.partial(seconds_per_epoch, configs, lab.device, lab.pick(1, STEPS, STEPS))
    inputs = {"runs": [lab.where(one).name for one in configs]}  # with the precision that was chosen
    times = lab.remember("times", lambda: {"epoch": timed()}, **inputs)["epoch"]
    controls = [name for name in compared if not routing.get(name).decides]
    for (name, facts), seconds in zip(compared.items(), times, strict=True):
        facts["seconds per epoch"] = seconds
        facts["gaps"] = {
            control: stored(gap(name, wrong[name], wrong[control], members)) for control in controls if control != name
        }
    return compared


def draw(lab: Lab, report: Report, title: str, errors: list[Measure], compared: dict[str, dict[str, Any]]) -> None:
    suffix = title.lower().replace(" ", "-").partition(":")[0]
    tested = {name: facts["test iterations"] for name, facts in compared.items() if facts["test iterations"]}
    curves = [Line(name, [int(r) for r in by], list(by.values())) for name, by in tested.items()]
    if curves:
        figure = lines(
            lab.figure(f"iterations-{suffix}.png"),
            curves,
            f"{title}: trained with its own iterations, tested with others",
            f"validation pictures; {lab.budget} budget; one-pass routings have nothing to vary",
            "routing iterations at test time",
            "error, %",
            logy=True,
        )
        text = "Error on validation pictures when only the number of iterations at test time is changed."
        report.draw(figure, f"{title}. {text}")
    figure = scatter(
        lab.figure(f"price-{suffix}.png"),
        [(compared[error.name]["seconds per epoch"], error) for error in errors],
        f"{title}: error and time of each routing",
        f"{lab.budget} budget; whiskers: 95 % interval",
        "seconds per epoch",
        "test error, %",
    )
    report.draw(figure, f"{title}. Test error against the time of an epoch: down and to the left is better.")


def setting(lab: Lab) -> list[str]:
    """In which network and training the routings are compared, and what some of them get besides."""
    if (recipe := asked(lab)) is None:
        first = [config(lab, title, contenders(lab)[0], 0) for title in sets(lab)]
        smoke = _nets.differences(lab, []) if lab.budget == "smoke" else []
        sentences = smoke or [*(f"Trained: {_nets.training(one)}." for one in first), *_nets.seen(first)]
    else:
        smoke = "A smoke run of the recipe `{}`, to see that it runs: the numbers have no meaning"
        words = (smoke if lab.budget == "smoke" else "The recipe `{}`").format(lab.options["recipe"])
        sentences = [f"{words}. Trained: {_nets.training(recipe)}.", *_nets.seen([recipe])]
    sentences.append(
        f"Time of an epoch: from the median of {STEPS} training steps, for which the routings take turns. Time and "
        "memory are those of the first seed; couplings and other numbers of iterations are means over all seeds."
    )
    configs = {name: config(lab, sets(lab)[0], name, 0) for name in contenders(lab)}
    if apart := [f"`{name}`" for name, one in configs.items() if one.model_options.get("squash") == "unit"]:
        sentences.append(
            f"Children of {', '.join(apart)} have a presence apart from their pose (squash `unit`): a child whose "
            "length is also its presence casts votes near zero, to which these routings cannot fit a distribution."
        )
    for name in configs:
        if options := preset(name):
            words = ", ".join(f"{key} {value}" for key, value in options.items())
            algorithm = routing.get(name).name
            sentences.append(f"`{name}` {'has' if name == algorithm else f'is `{algorithm}` with'} {words}.")
    return sentences


def precisions(title: str, compared: dict[str, dict[str, Any]]) -> list[str]:
    """In which precision each routing was trained, timed and measured for memory, if not all in fp32."""
    used = {name: facts["precision"] for name, facts in compared.items()}
    if set(used.values()) == {"fp32"}:
        return []
    groups = (f"{one} ({', '.join(name for name in used if used[name] == one)})" for one in sorted(set(used.values())))
    return [f"{title}: trained and timed in {'; '.join(groups)}."]


def untrained(title: str, measures: list[Measure], split: data.Dataset) -> list[str]:
    """Which routings have learnt nothing, or little, beside the best constant answer."""
    targets = split.batch(range(min(len(split), 2000))).targets.numpy()
    classes = multi_hot(targets, len(targets), split.num_classes)
    constant = 100 * (1 - np.unique(classes, axis=0, return_counts=True)[1].max() / len(classes))
    found = [
        f"{title}: `{m.name}` stayed at chance ({m.mean:.1f} %): here it did not train."
        for m in measures
        if m.mean > 0.97 * constant
    ]
    return found + [
        f"{title}: `{m.name}` hardly trained: its error, {m.mean:.1f} %, is more than half of that of the best "
        f"constant answer, {constant:.1f} %."
        for m in measures
        if 0.5 * constant < m.mean <= 0.97 * constant
    ]


def shares_shown(shares: dict[str, Any]) -> list[str]:
    """The share of the children's couplings that goes to their object, and of first choices."""
    return [f"{100 * shares[key]:.1f} %" if shares else "-" for key in ("own", "first")]


def explained(chances: dict[str, float]) -> list[str]:
    """What the columns of shares mean, and chance for each data set that has them."""
    if not chances:
        return []
    words = ", ".join(f"{100 * chance:.1f} % ({title})" for title, chance in chances.items())
    return [
        "'to own object' is the share of the couplings of children on an object that goes to its capsule, 'put it "
        f"first' the share of these children whose largest coupling it is; chance is {words}."
    ]


def describe(report: Report, title: str, errors: list[Measure], compared: dict[str, dict[str, Any]]) -> None:
    """The table and the findings of one data set."""
    rows = []
    for error in errors:
        facts = compared[error.name]
        numbers = [facts[key] for key in ("seconds per epoch", "peak megabytes")]
        entropy, tested = facts["entropy"], facts["test iterations"]
        rows.append(
            [
                error.name,
                error.shown(),
                *("-" if value is None or math.isnan(value) else f"{value:.0f}" for value in numbers),
                f"{facts['parameters']:,}",
                "-" if entropy is None else f"{entropy:.2f}",
                *shares_shown(facts["shares"]),
                ", ".join(f"{value:.1f}" for value in tested.values()) or "-",
            ]
        )
    iterations = ", ".join(map(str, TEST_ITERATIONS))
    columns = ["routing", "test error", "s / epoch", "peak MB", "parameters", "undecided", "to own object"]
    columns += ["put it first", f"error with {iterations}"]
    report.tables.append(Table(f"{title}: one network, one routing after another", columns, rows))
    best = min(errors, key=lambda m: m.mean)
    report.findings.append(f"{title}: lowest test error: {best.name}, {best.shown()}.")
    for control in errors:
        if not routing.get(control.name).decides:
            signs = {
                name: sign(read(facts["gaps"][control.name]))
                for name, facts in compared.items()
                if control.name in facts["gaps"]
            }
            lower, higher = (
                ", ".join(name for name, one in signs.items() if one == side) or "none" for side in (-1, 1)
            )
            report.findings.append(
                f"{title}: against `{control.name}` ({control.mean:.2f} %), which does not route, picture by picture "
                f"and beyond the 95 % intervals: lower error: {lower}; higher error: {higher}."
            )
