"""Routings side by side: the same network, the same data, the same training, and only the routing differs.

Papers compare their routing with numbers from other papers' tables, trained otherwise on other networks. Here each
routing takes its turn between the primary and the class capsules of one network: test error, time per epoch, memory,
parameters, how undecided its couplings are, what share of the children on an object goes to its capsule, and what
happens when a network that was trained with its own number of iterations is *tested* with 1, 2, 3 or 5.

The claim to look at: does routing beat `uniform`, which does not route at all? And is it worth its cost?
"""

import dataclasses
import functools
import logging
import math
import os
import subprocess
import sys
from typing import Any

from capsnet import data, models, recipes, routing
from capsnet.drawing.plots import Line, lines, scatter
from capsnet.experiments import _nets, _shares
from capsnet.experiments._estimate import seconds_per_epoch
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments.lab import Lab, Trained, device_of, main_metric
from capsnet.inference import evaluate, evaluating
from capsnet.metrics import compare as order
from capsnet.training import TrainConfig, read_config

TEST_ITERATIONS = (1, 2, 3, 5)
STEPS = 15  # that are timed
log = logging.getLogger("capsnet")


def contenders(lab: Lab) -> list[str]:
    """What takes part: the routings and forms that the caller named, else all that are registered."""
    everything = routing.list_forms()
    names = lab.options.get("routings") or lab.pick(["dynamic", "em", "uniform"], everything, everything)
    for name in names:
        routing.get(name)  # an unknown name is an error here
    return list(names)


def base_of(lab: Lab) -> TrainConfig:
    """What each routing takes its turn in: the recipe that was asked for, at its own length, else the usual CapsNet."""
    name: str | None = lab.options.get("recipe")
    if name is None:
        shorter: dict[str, Any] = lab.pick({}, {"epochs": 1}, {})
        return _nets.capsnet(lab, "mnist", decoder=False, **shorter)
    asked = read_config(name) if name.endswith(".json") else recipes.get(name)
    if "routing" not in models.model_options(asked.model):
        raise ValueError(f"{asked.model}, the network of {name}, has no routing to exchange")
    return dataclasses.replace(asked, epochs=1, limit=400, eval_limit=300) if lab.budget == "smoke" else asked


def preset(name: str) -> dict[str, Any]:
    """The hyper-parameters a routing is compared with: those of a named form, else those that suit a dense layer."""
    algorithm = type(routing.get(name))
    return dict(algorithm.forms.get(name, algorithm.dense_options))


def config(lab: Lab, name: str, seed: int) -> TrainConfig:
    """The same training with this routing in it, and with as many iterations as the recipe states."""
    base, algorithm = base_of(lab), routing.get(name)
    rest = dict(base.model_options)
    own = rest.pop("routing_options", None) or {}  # options that this routing does not know are left out
    options = preset(name) | {key: own[key] for key in own if key in routing.option_names(algorithm.name)}
    squash = algorithm.wants_presence and "squash" in models.model_options(base.model)
    return dataclasses.replace(
        base,
        recipe=f"compare-{name}",
        routing=algorithm.name,
        iterations=base.iterations if algorithm.iterates else None,
        seed=seed,
        tensorboard=False,
        model_options=({"squash": "unit"} if squash else {}) | rest | ({"routing_options": options} if options else {}),
    )


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, name, seed) for name in contenders(lab) for seed in lab.seeds]


@register(
    "compare",
    "Routings side by side: error, time, memory, couplings, and other numbers of iterations at test time",
    plan=plan,
    options=("routings", "recipe"),
    verb="compare",
)
def run(lab: Lab) -> Report:
    report = Report(differs=["Not in one paper: each compares itself with tables of others.", *setting(lab)])
    configs = [config(lab, name, 0) for name in contenders(lab)]
    timed = functools.partial(seconds_per_epoch, configs, lab.device, lab.pick(1, STEPS, STEPS))
    runs = [lab.where(one).name for one in configs]
    times = lab.remember("times", lambda: {"epoch": timed()}, runs=runs)["epoch"]
    for name, first, seconds in zip(contenders(lab), configs, times, strict=True):
        trained = [lab.train(config(lab, name, seed)) for seed in lab.seeds]
        error = error_measure(name, [main_metric(t.test) for t in trained])
        facts = lab.remember("facts", functools.partial(measure, lab, trained[0], first), run=trained[0].folder)
        shares = lab.remember("shares", functools.partial(couplings, lab, trained[0], first), run=trained[0].folder)
        facts |= {"shares": shares, "seconds per epoch": seconds, "validation": [t.validation for t in trained]}
        report.measures.append(error)
        report.raw[name] = facts | {"test error": error.values}
    describe(report)
    report.findings += at_chance(report.measures, data.load(base_of(lab).data, "validation"))
    tested = {name: facts["test iterations"] for name, facts in report.raw.items() if facts["test iterations"]}
    curves = [Line(name, [int(r) for r in errors], list(errors.values())) for name, errors in tested.items()]
    if curves:
        figure = lines(
            lab.figure("iterations.png"),
            curves,
            "Trained with its own iterations, tested with others",
            f"validation digits; {lab.budget} budget; one-pass routings have nothing to vary",
            "routing iterations at test time",
            "error, %",
            logy=True,
        )
        report.draw(figure, "Error on validation digits when only the number of iterations at test time is changed.")
    figure = scatter(
        lab.figure("price.png"),
        [(report.raw[error.name]["seconds per epoch"], error) for error in report.measures],
        "Error and time of each routing",
        f"{lab.budget} budget; whiskers: 95 % interval",
        "seconds per epoch",
        "test error, %",
    )
    report.draw(figure, "Test error against the time of an epoch: down and to the left is better.")
    return report


def setting(lab: Lab) -> list[str]:
    """In which network and training the routings are compared, and what some of them get besides."""
    if (recipe := lab.options.get("recipe")) is None:
        sentences = _nets.differences(lab, plan(lab)[:1])
    else:
        smoke = "A smoke run of the recipe `{}`, to see that it runs: the numbers have no meaning"
        words = (smoke if lab.budget == "smoke" else "The recipe `{}`").format(recipe)
        sentences = [f"{words}. Trained: {_nets.training(base_of(lab))}."]
    sentences.append(f"Time of an epoch: from the median of {STEPS} training steps, for which the routings take turns.")
    configs = {name: config(lab, name, 0) for name in contenders(lab)}
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


def at_chance(measures: list[Measure], split: data.Dataset) -> list[str]:
    """Which routings have not learnt anything. Where a picture has several classes, chance is not known."""
    if split.batch([0]).targets.ndim > 1:
        return []
    chance = 100 * (1 - 1 / split.num_classes)
    return [
        f"`{m.name}` stayed at chance ({m.mean:.1f} %): in this network and with these settings it did not train."
        for m in measures
        if m.mean > 0.97 * chance
    ]


def measure(lab: Lab, trained: Trained, config: TrainConfig) -> dict[str, Any]:
    """What is measured once per routing, on validation digits, after training."""
    model = trained.model
    validation = data.load(config.data, "validation")
    validation = validation.subset(range(min(len(validation), lab.pick(200, 2000, 10_000))))
    with evaluating(model):
        trace = model(validation.batch(range(min(100, len(validation)))).images.to(device_of(model)), trace=True).trace
    entropy = None
    if trace is not None and model.class_routing is not None:
        normalised = model.class_routing.normalised
        entropy = float(routing.undecided(trace.couplings[-1:], trace.logits[-1:], normalised).mean())
    return {
        "peak megabytes": peak_megabytes(config, type(model).__module__),
        "parameters": model.num_parameters(),
        "entropy": entropy,
        "test iterations": other_iterations(trained, validation),
    }


def couplings(lab: Lab, trained: Trained, config: TrainConfig) -> dict[str, Any]:
    """Where the children on an object go, on validation pictures; empty where that is not known. See ``_shares``."""
    return _shares.measure(trained.model, data.load(config.data, "validation"), lab.pick(40, 500, 2_000)) or {}


def other_iterations(trained: Trained, validation: data.Dataset) -> dict[str, float]:
    """Validation error in percent with other numbers of iterations; empty where a routing has none."""
    layers: list[Any] = list(trained.model.routed_layers().values())
    if not all(layer.routing.iterates for layer in layers):
        return {}
    tested = {str(r): evaluate(models.reroute(trained.model, iterations=r), validation) for r in TEST_ITERATIONS}
    return {r: 100 * (1 - one.accuracy.value) for r, one in tested.items()}


def peak_megabytes(config: TrainConfig, *modules: str) -> float:
    """Memory that a training step takes above the idle process, measured in a process of its own.

    That process first imports the modules that registered the routing and the model: they may be of another package.
    NaN where it fails, as with a data set or a routing that a script has registered.
    """
    needed = {type(routing.get(config.routing)).__module__ if config.routing else "capsnet", *modules}
    done = subprocess.run(
        [sys.executable, "-m", "capsnet.experiments._peak", *sorted(needed)],
        input=config.to_json(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    if done.returncode:
        log.warning("the memory of a training step was not measured: %s", done.stderr.strip().splitlines()[-1:])
        return math.nan
    return float(done.stdout)


def shares_shown(shares: dict[str, Any]) -> list[str]:
    """Of the last iteration: the share of the children's couplings that goes to their object, and of first choices."""
    return [f"{100 * shares[key][-1]:.1f} %" if shares else "-" for key in ("own", "first")]


def describe(report: Report) -> None:
    """The table and the findings from the measures and the raw numbers."""
    rows = []
    for error in report.measures:
        facts = report.raw[error.name]
        numbers = [facts[key] for key in ("seconds per epoch", "peak megabytes")]
        entropy, tested = facts["entropy"], facts["test iterations"]
        rows.append(
            [
                error.name,
                error.shown(),
                *("-" if value is None or math.isnan(value) else f"{value:.0f}" for value in numbers),
                f"{facts['parameters']:,}",
                "-" if entropy is None else f"{entropy:.2f}",
                *shares_shown(facts.get("shares") or {}),
                ", ".join(f"{value:.1f}" for value in tested.values()) or "-",
            ]
        )
    iterations = ", ".join(map(str, TEST_ITERATIONS))
    columns = ["routing", "test error", "s / epoch", "peak MB", "parameters", "undecided", "to own object"]
    columns += ["put it first", f"error with {iterations}"]
    report.tables = [Table("One network, one routing after another", columns, rows)]
    chances = {100 * shares["chance"] for facts in report.raw.values() if (shares := facts.get("shares"))}
    best = min(report.measures, key=lambda m: m.mean)
    report.findings = [f"Lowest test error: {best.name}, {best.shown()}."]
    if chances:
        report.findings.append(
            "'To own object' is the share of the couplings of children on an object that goes to its capsule, 'put it "
            "first' the share of these children whose largest coupling it is; chance is "
            f"{', '.join(f'{chance:.1f} %' for chance in sorted(chances))}."
        )
    for control in report.measures:
        if not routing.get(control.name).decides:
            lower, higher = (
                ", ".join(m.name for m in report.measures if order(m, control) == sign) or "none" for sign in (-1, 1)
            )
            report.findings.append(
                f"Against `{control.name}` ({control.mean:.2f} %), which does not route, and beyond the 95 % "
                f"intervals: lower error: {lower}; higher error: {higher}."
            )
