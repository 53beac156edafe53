"""Routings side by side: the same network, the same data, the same training, and only the routing differs.

Papers compare their routing with numbers from other papers' tables, trained otherwise on other networks. Here each
routing takes its turn between the primary and the class capsules of one network: test error, time per epoch, memory,
parameters, how decided its couplings are (entropy), and what happens when a network that was trained with its own
number of iterations is *tested* with 1, 2, 3 or 5.

The claim to look at: does routing beat `uniform`, which does not route at all? And is the price worth it?
"""

import dataclasses
import functools
import json
import math
import subprocess
import sys
from typing import Any

import torch

from capsnet import data, models, recipes, routing
from capsnet.drawing.plots import Line, lines
from capsnet.experiments import _nets
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments.lab import Lab, Trained, device_of, share
from capsnet.inference import evaluate, evaluating
from capsnet.training import TrainConfig, read_config

TITLE = "Routings side by side: error, time, memory, entropy, and other numbers of iterations at test time"
OPTIONS = ("routings", "recipe")
TEST_ITERATIONS = (1, 2, 3, 5)
FITTED = {"inverse_temperature": 0.1, "start_cost": 2.3}  # -log 0.1: unit poses times W ~ N(0, 0.1^2) spread by 0.1
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # more than one form of an algorithm, or not its defaults
    "em": ("em", FITTED),
    "fixed-point": ("dynamic", {"update": "set"}),
    "kmeans-inner": ("kmeans", {"distance": "inner"}),
    "em-full": ("em", {"covariance": "full"}),
}
MIXTURES = (
    "`em` and `em-full` fit Gaussians to the votes. A child whose length is also its presence casts votes near zero, "
    "with a spread below the smallest variance: these two get children whose direction is the pose and whose presence "
    "is a number apart (squash `unit`). `em` also gets an inverse temperature of 0.1 and a start_cost of 2.3: as "
    "matrix capsules set them, it stayed at chance here (90.2 % test error, in an earlier run). The two were "
    "chosen by the training loss of a hundred steps."
)


def contenders(lab: Lab) -> dict[str, tuple[str, dict[str, Any]]]:
    """What takes part: those the caller named, else every routing and its forms."""
    everything = {name: (name, {}) for name in routing.list_routings()} | VARIANTS
    asked = lab.options.get("routings") or lab.pick(["dynamic", "em", "uniform"], list(everything), list(everything))
    for name in asked:
        if name not in everything:
            routing.get(name)  # says which ones there are
    return {name: everything[name] for name in asked}


def base_of(lab: Lab) -> TrainConfig:
    """What each routing takes its turn in: the recipe that was asked for, as long as it is, else the usual CapsNet."""
    name: str | None = lab.options.get("recipe")
    if name is None:
        shorter: dict[str, Any] = lab.pick({}, {"epochs": 1}, {})
        return _nets.capsnet(lab, "mnist", decoder=False, **shorter)
    asked = read_config(name) if name.endswith(".json") else recipes.get(name)
    if "routing" not in models.model_options(asked.model):
        raise ValueError(f"{asked.model}, the network of {name}, has no routing to exchange")
    return dataclasses.replace(asked, epochs=1, limit=400, eval_limit=300) if lab.budget == "smoke" else asked


def config(lab: Lab, name: str, seed: int) -> TrainConfig:
    """The same training with this routing in it, and with as many iterations as the recipe states."""
    algorithm, options = contenders(lab)[name]
    base = base_of(lab)
    known = routing.option_names(algorithm)
    rest = dict(base.model_options)
    own = rest.pop("routing_options", None) or {}  # what another routing does not know was not said to it
    told = options | {key: value for key, value in own.items() if key in known}
    apart = {"squash": "unit"} if algorithm == "em" and "squash" in models.model_options(base.model) else {}
    return dataclasses.replace(
        base,
        recipe=f"compare-{name}",
        routing=algorithm,
        iterations=base.iterations if "iterations" in known else None,
        seed=seed,
        tensorboard=False,
        model_options=apart | rest | ({"routing_options": told} if told else {}),
    )


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, name, seed) for name in contenders(lab) for seed in lab.seeds]


def run(lab: Lab) -> Report:
    report = Report(differs=["Not in one paper: each has compared itself with others' tables."])
    report.differs += setting(lab)
    if any(one.model_options.get("squash") == "unit" for one in plan(lab)):
        report.differs.append(MIXTURES)
    rows, curves = [], []
    for name in contenders(lab):
        trained = [lab.train(config(lab, name, seed)) for seed in lab.seeds]
        error = error_measure(name, [share(t.test) for t in trained])
        first = functools.partial(measure, lab, trained[0], config(lab, name, 0))
        facts = lab.remember("facts", first, run=trained[0].folder)
        report.measures.append(error)
        report.raw[name] = facts | {"test error": error.values, "validation": [t.validation for t in trained]}
        rows.append([name, error.shown(), *words(facts)])
        if facts["test iterations"]:
            tested = {int(r): e for r, e in facts["test iterations"].items()}
            curves.append(Line(name, list(tested), list(tested.values())))
    columns = [
        "routing",
        "test error",
        "s / epoch",
        "peak MB",
        "parameters",
        "entropy",
        "error with 1, 2, 3, 5 iterations",
    ]
    report.tables = [Table("One network, one routing after another", columns, rows)]
    report.findings = findings(report.measures)
    report.findings += at_chance(report.measures, data.load(base_of(lab).data, "validation"))
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
    report.draw(price(lab, report), "Test error against the time of an epoch: down and to the left is better.")
    return report


def setting(lab: Lab) -> list[str]:
    """In which network and training they took their turns."""
    if (recipe := lab.options.get("recipe")) is None:
        return _nets.differences(lab, plan(lab)[:1])
    said = f"The recipe `{recipe}`"
    if lab.budget == "smoke":
        said = f"A smoke run of the recipe `{recipe}`, to see that it works: the numbers mean nothing"
    return [f"{said}. Trained: {_nets.training(base_of(lab))}."]


def at_chance(measures: list[Measure], split: data.Dataset) -> list[str]:
    """Who has not learnt anything. (What chance is where a picture shows several classes depends on their number.)"""
    if split.batch([0]).targets.ndim > 1:
        return []
    chance = 100 * (1 - 1 / split.num_classes)
    return [
        f"`{m.name}` stayed at chance ({m.mean:.1f} %): in this network and with these settings it did not train."
        for m in measures
        if m.mean > 0.97 * chance
    ]


def measure(lab: Lab, trained: Trained, config: TrainConfig) -> dict[str, Any]:
    """All that is measured once per routing, on validation digits, after training."""
    model = trained.model
    validation = data.load(config.data, "validation")
    validation = validation.subset(range(min(len(validation), lab.pick(200, 2000, 10_000))))
    lines = [json.loads(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    speeds = [line["images_per_second"] for line in lines if line["kind"] == "epoch" and line["images_per_second"]]
    size = min(config.limit or math.inf, len(data.load(config.data, config.train_on)))
    with evaluating(model):
        trace = model(validation.batch(range(min(100, len(validation)))).images.to(device_of(model)), trace=True).trace
    return {
        "seconds per epoch": size / (sum(speeds) / len(speeds)) if speeds else math.nan,  # nan: nobody took the time
        "peak megabytes": peak_megabytes(config),
        "parameters": model.num_parameters(),
        "entropy": None if trace is None else entropy(trace.couplings[-1]),
        "test iterations": other_iterations(trained, validation),
    }


def entropy(couplings: torch.Tensor) -> float:
    """How undecided the children are: 1 if each divides itself evenly, 0 if each has chosen. (B, I, J) -> a number.

    Couplings that do not sum to 1 over the parents (attention's, or with a learned prior) are made to first.
    """
    shares = couplings.clamp_min(0)
    shares = shares / shares.sum(dim=-1, keepdim=True).clamp_min(1e-12)
    bits = -(shares * shares.clamp_min(1e-12).log()).sum(dim=-1)
    return float(bits.mean()) / math.log(couplings.shape[-1])


def other_iterations(trained: Trained, validation: data.Dataset) -> dict[str, float]:
    """Validation error in percent with other numbers of iterations; empty for a routing that has none."""
    routed: list[Any] = [m for m in trained.model.modules() if isinstance(getattr(m, "routing", None), routing.Routing)]
    owned = [layer.routing for layer in routed]
    if not all("iterations" in routing.option_names(own.name) for own in owned):
        return {}
    errors = {}
    for iterations in TEST_ITERATIONS:
        for layer, own in zip(routed, owned, strict=True):
            layer.routing = routing.get(own, iterations=iterations)
        errors[str(iterations)] = 100 * (1 - evaluate(trained.model, validation).accuracy.value)
    for layer, own in zip(routed, owned, strict=True):
        layer.routing = own
    return errors


def peak_megabytes(config: TrainConfig) -> float:
    """How much memory a training step takes on top of the idle process, measured in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "capsnet.experiments._peak"], input=config.to_json(), capture_output=True, text=True
    )
    if done.returncode:
        raise ValueError(f"measuring memory failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


def words(facts: dict[str, Any]) -> list[str]:
    tested = facts["test iterations"]
    return [
        f"{facts['seconds per epoch']:.0f}",
        f"{facts['peak megabytes']:.0f}",
        f"{facts['parameters']:,}",
        "-" if facts["entropy"] is None else f"{facts['entropy']:.2f}",
        ", ".join(f"{value:.1f}" for value in tested.values()) if tested else "-",
    ]


def findings(measures: list[Measure]) -> list[str]:
    """Who does better than not routing at all, beyond the intervals."""
    named = {m.name: m for m in measures}
    best = min(measures, key=lambda m: m.mean)
    said = [f"Lowest test error: {best.name}, {best.shown()}."]
    control = named.get("uniform")
    if control is not None and control.interval is not None:
        low, high = control.interval
        better = [m.name for m in measures if m.interval and m.interval[1] < low]
        worse = [m.name for m in measures if m.interval and m.interval[0] > high]
        said.append(
            f"Against `uniform` ({control.mean:.2f} %), which does not route, and beyond the 95 % intervals: "
            f"better: {', '.join(better) or 'nobody'}; worse: {', '.join(worse) or 'nobody'}."
        )
    return said


def price(lab: Lab, report: Report) -> Any:
    points = [
        Line(m.name, [report.raw[m.name]["seconds per epoch"]], [m.mean], [m.interval[0]], [m.interval[1]])
        for m in report.measures
        if m.interval
    ]
    from capsnet.drawing.plots import scatter

    return scatter(
        lab.figure("price.png"),
        points,
        "What a routing costs and what it brings",
        f"{lab.budget} budget; whiskers: 95 % interval",
        "seconds per epoch",
        "test error, %",
    )
