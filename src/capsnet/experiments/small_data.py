"""A few hundred real images: capsules, a plain twin, and a linear model on the pixels.

Talks recommend capsule networks for small medical and industrial sets: poses should need fewer examples than pooled
features. What a practitioner wants to know is plainer: with *my* few hundred pictures, which network is more often
right, does it know how sure it is, and how long does it take?

Each set is learned with the recipe `images`, by the recipe's capsule network and by a plain network with the same stem,
the same number of parameters and the same training. The budget `quick` has half the width and a third of the epochs,
`day` the recipe as it stands, and the residual capsule network and its twin besides. A linear model on the pixels
shows what can be had without any of it. The border between classes, and how sure an answer is, can also be set on the
validation pictures after training (*calibrated*, for all models alike).

A set with a test split of its own is tested on it. Any other is cut into five folds, anew for each seed; pictures of
one group (a patient, a micrograph) stay in one fold. Every picture is then tested by networks that have seen neither it
nor its group.

`--data` takes folders of your own: a sub-folder per class, or a CSV file of paths and labels, with a column `group`
where pictures belong together. `faces` are the 100 faces and 100 other pictures that come with scikit-image.

The claim to look at: is the difference between capsules and twin, picture by picture, beyond its interval, and above
zero?
"""

from typing import Any

import numpy as np

from capsnet.drawing.plots import intervals
from capsnet.experiments import _few_images, _paired
from capsnet.experiments._claims import Claim, past
from capsnet.experiments._few_images import LINEAR, Outcome, Task
from capsnet.experiments._mistakes import signed
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab
from capsnet.metrics import calibration_error
from capsnet.training import TrainConfig

METRICS = {  # the metric, of which answers, and its unit
    "accuracy": (_paired.accuracy, "answers", "%"),
    "AUC": (_paired.auc, "answers", ""),
    "accuracy, calibrated": (_paired.accuracy, "calibrated", "%"),
}
ERRORS = {"calibration error": "answers", "calibration error, calibrated": "calibrated"}
COLUMNS = ["images", "model", "parameters", *METRICS, *ERRORS, "processor seconds per training"]
GAPS = ["images", "capsules", "compared with", *(f"{key} (95 %)" for key in METRICS), "pictures", "groups"]
LESS = "minus"
PUBLISHED = {  # by the name of a set: what others report for its test pictures
    "pneumonia": "ResNet-18 is published with an accuracy of 85.4 % and an AUC of 0.944 on the 624 test pictures of "
    "PneumoniaMNIST, after training on all 4,708 of its training pictures at 28 x 28; the best row of the same table, "
    "Google AutoML Vision, is quoted by others with 94.6 % and 0.991 (MedMNIST v2, Yang et al. 2023, Table 3). The "
    "folder `pneumonia` has the same test pictures and 400 of those for training."
}


def plan(lab: Lab) -> list[TrainConfig]:
    nets = [net for pair in _few_images.networks(lab).items() for net in pair]
    return [
        config
        for task in _few_images.tasks(lab)
        for net in nets
        for seed in lab.seeds
        for config in _few_images.trainings(lab, task, net, seed)
    ]


def claims(report: Report) -> list[Claim]:
    """That capsules are more often right than their twin, on every set."""
    found = []
    for caps, twin in report.raw["pairs"].items():
        gaps = [m for m in report.measures if m.name.endswith(f"accuracy: {caps} {LESS} {twin}")]
        words = "; ".join(f"{m.name.partition(',')[0]} {signed(m)}" for m in gaps)
        text = f"With few real images `{caps}` is more often right than `{twin}`"
        found.append(past(text, "talks on capsule networks", [(m, 0.0, True) for m in gaps], f"In points: {words}."))
    return found


@register(
    "small-data",
    "Few real images: capsules, a plain twin of the same size, a linear model; folds and seeds",
    plan=plan,
    claims=claims,
    budgets=("smoke", "quick", "day"),
    options=("data",),
    verb="reproduce small-data",
)
def run(lab: Lab) -> Report:
    report = Report(differs=differences(lab))
    report.tables = [Table("Each model on each set", COLUMNS, []), Table("Capsules minus others", GAPS, [])]
    report.raw = {"pairs": _few_images.networks(lab), "sets": {}}
    nets = [net for pair in report.raw["pairs"].items() for net in pair]
    rows = {}
    for task in _few_images.tasks(lab):
        outcomes = {net: _few_images.trained_answers(lab, task, net) for net in nets}
        outcomes[LINEAR] = _few_images.linear_answers(lab, task)
        shown = describe(report, task, outcomes)
        rows[task.name] = [measures["accuracy"]._replace(name=net) for net, measures in shown.items()]
    report.findings.append(summary(report))
    low = min(m.interval[0] if m.interval else m.mean for measures in rows.values() for m in measures)
    title, limits = "Few real images: how many are right", (max(0.0, low - 3), 101.0)
    path = intervals(lab.figure("accuracy.png"), rows, title, "accuracy, %", limits)
    report.draw(path, "Accuracy of each model on each set, with 95 % intervals over groups of pictures and seeds.")
    return report


def describe(report: Report, task: Task, outcomes: dict[str, Outcome]) -> dict[str, dict[str, Measure]]:
    """Measures, rows and findings of one set; returns the measures of each model."""
    first = next(iter(outcomes.values())).answers
    draws = _paired.draw(first.groups, len(first.probabilities))
    samples = {
        key: {net: _paired.resampled(metric, getattr(one, which), draws) for net, one in outcomes.items()}
        for key, (metric, which, _) in METRICS.items()
    }
    n, groups = len(first.targets), int(first.groups.max()) + 1
    facts: dict[str, Any] = {"folds": task.folds, "pictures": n, "groups": groups, "models": {}}
    report.raw["sets"][task.name], shown = facts, {}
    for net, one in outcomes.items():
        shown[net] = {}
        for key, (metric, which, unit) in METRICS.items():
            reach, name = _paired.interval(samples[key][net]), f"{task.name}, {key}: {net}"
            shown[net][key] = Measure(name, _paired.values(metric, getattr(one, which)), unit, interval=reach, n=n)
        report.measures += shown[net].values()
        errors = {
            key: [calibration_error(p, first.targets) for p in getattr(one, which).probabilities]
            for key, which in ERRORS.items()
        }
        row = [task.name, net, f"{one.parameters:,}", *(m.shown() for m in shown[net].values())]
        row += [f"{np.mean(values):.3f}" for values in errors.values()]
        report.tables[0].rows.append([*row, f"{one.seconds:.{0 if one.seconds >= 10 else 1}f}"])
        facts["models"][net] = {key: m.values for key, m in shown[net].items()} | errors
        facts["models"][net] |= {"parameters": one.parameters, "seconds": one.seconds}
    for caps, twin in report.raw["pairs"].items():
        for other in (twin, LINEAR):
            gaps = {key: gap(task, key, caps, other, shown, samples[key]) for key in METRICS}
            report.measures += gaps.values()
            numbers = [*(signed(one) for one in gaps.values()), f"{n:,}", f"{groups:,}"]
            report.tables[1].rows.append([task.name, caps, other, *numbers])
            whose = "a linear model on the pixels" if other == LINEAR else f"its twin `{other}`"
            report.findings.append(f"{task.name}: {compared(caps, whose, gaps)}")
    return shown


def gap(task: Task, key: str, ours: str, theirs: str, shown: dict[str, dict[str, Measure]], samples: Any) -> Measure:
    """One model minus another, with the interval of the difference."""
    a, b = shown[ours][key], shown[theirs][key]
    values = [x - y for x, y in zip(a.values, b.values, strict=True)]
    reach = _paired.interval(samples[ours] - samples[theirs])
    unit = "points" if a.unit == "%" else ""
    return Measure(f"{task.name}, {key}: {ours} {LESS} {theirs}", values, unit, interval=reach, n=a.n)


def order(interval: tuple[float, float] | None) -> int:
    """1 where a difference is above zero with its whole interval, -1 below, 0 where that is open."""
    low, high = interval or (0.0, 0.0)
    return int(low > 0) - int(high < 0)


def compared(caps: str, whose: str, gaps: dict[str, Measure]) -> str:
    """All metrics of two models in a sentence."""
    words = {
        1: "is more often right than",
        -1: "is less often right than",
        0: "is not shown to differ in accuracy from",
    }
    areas = {1: "its AUC is higher", -1: "its AUC is lower", 0: "its AUC is not shown to differ"}
    later = {1: "it is more often right", -1: "it is less often right", 0: "they are not shown to differ in accuracy"}
    accuracy, area, calibrated = (gaps[key] for key in METRICS)
    return (
        f"`{caps}` {words[order(accuracy.interval)]} {whose}: {signed(accuracy)} points; "
        f"{areas[order(area.interval)]}: {signed(area)}. Both calibrated, {later[order(calibrated.interval)]}: "
        f"{signed(calibrated)} points."
    )


def summary(report: Report) -> str:
    """Over all sets: how often each network of a pair is ahead, and by how much it is ahead on average."""
    parts = []
    for caps, twin in report.raw["pairs"].items():
        gaps = [m for m in report.measures if m.name.endswith(f"accuracy: {caps} {LESS} {twin}")]
        orders = [order(m.interval) for m in gaps]
        level = sum(m.mean >= 0 for m in gaps)
        parts.append(
            f"`{caps}` against `{twin}`: at least as accurate on {level} of {len(gaps)} sets by the mean over seeds; "
            f"beyond the interval ahead on {orders.count(1)}, behind on {orders.count(-1)}"
        )
    return f"Over all sets, {'; '.join(parts)}."


def differences(lab: Lab) -> list[str]:
    """What a reader must know of the setting."""
    first = plan(lab)[0]
    smoke = ["A smoke run: tiny networks, one epoch, two folds. The numbers have no meaning."]
    return [
        *lab.pick(smoke, [], []),
        "We know of no publication on these few training pictures: the claim is made in words.",
        *(PUBLISHED[task.name] for task in _few_images.tasks(lab) if task.name in PUBLISHED),
        f"The recipe `images`{lab.pick('', ' at half width', '')}: {first.epochs} epochs, batches of "
        f"{first.batch_size}, {first.precision}, the same for all networks. Sizes are those of the networks without "
        "decoders, which serve training only.",
        "Intervals are from a bootstrap over groups of pictures and over seeds; both networks of a pair get the same "
        "draws. Networks of different folds share most of their training pictures, which the interval does not know.",
        "The AUC is the mean over folds and classes (one against the rest). The calibration error has ten bins; "
        "capsules give lengths, of which each class's share counts as its probability.",
        "*Calibrated*: a scale for all log-probabilities and an offset for each class, fitted to the validation "
        "pictures after training (vector scaling, Guo et al. 2017), for all models alike. Where classes are not as "
        "frequent in the test pictures as in the validation pictures, the offsets are for the latter.",
        "Processor seconds are of all threads together, on a machine with other work.",
    ]
