"""How much data does it need? Test error against the number of training images, CapsNet and CNN of similar size.

Talks on capsule networks claim that they "need less training data", and one trains on 400 medical images. The paper
itself has no such experiment. Here both networks learn from ten digits up to all of them, the same number of each
class, drawn anew for each seed, in the same number of steps, with the same schedule and augmentation. (On the budget
`day` all digits are seen at least four times; for the largest set that takes more steps.) The last epoch is tested:
with ten training images, a validation set of 10,000 to choose an epoch by would not be fair.

A CapsNet also learns to redraw its input, which is a help of its own where there is little data. So a CapsNet without
reconstruction stands beside the two.

The claim to look at: which curve is lower, and where. Networks of a seed learned from the same digits and are tested on
the same, so their difference is measured picture by picture, and over the seeds.
"""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from capsnet.drawing.plots import Line, lines
from capsnet.experiments import _nets
from capsnet.experiments._claims import Claim, most_often_lower
from capsnet.experiments._mistakes import gap, mistakes, pictures_of, read, sign, signed, stored
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Report, Table, error_measure, plural
from capsnet.experiments.lab import Lab, main_metric
from capsnet.metrics import Measure
from capsnet.training import TrainConfig

BARE = "CapsNet without reconstruction"
NETS = {"CapsNet": _nets.capsnet, BARE: functools.partial(_nets.capsnet, decoder=False), "CNN": _nets.cnn}
AGAINST = ("CapsNet", BARE)  # compared with the CNN
ALL = 60_000
FEW = 1_000


def sizes(lab: Lab) -> list[int]:
    return lab.pick(
        [10, 100],
        [10, 30, 100, 1000, 10_000, ALL],
        [10, 30, 100, 300, 1000, 3000, 10_000, 30_000, ALL],
        [10, 30, 100, 300, 1000, 3000, 10_000, ALL],
    )


def steps(lab: Lab) -> tuple[int, int]:
    """Steps of every training, and the largest batch."""
    return lab.pick((10, 20), (300, 200), (100 * 469, 128), (1000, 64))


def passes(lab: Lab) -> int:
    """How often all pictures are seen at least."""
    return lab.pick(1, 1, 1, 4)


def config(lab: Lab, net: str, size: int, seed: int) -> TrainConfig:
    """The same number of steps for every size, as far as ``passes`` allow: small training sets are seen more often."""
    spec = "mnist" if size == ALL else f"mnist:per_class={size // 10},seed={seed}"
    count, batch = steps(lab)[0], min(steps(lab)[1], size)
    epochs = max(passes(lab), round(count / -(-size // batch)))
    base = NETS[net](lab, spec, seed=seed, keep="last", train_on="train+validation")
    return dataclasses.replace(base, limit=None, batch_size=batch, epochs=epochs)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, net, size, seed) for net in NETS for size in sizes(lab) for seed in lab.seeds]


def claims(report: Report) -> list[Claim]:
    raw = report.raw["CapsNet"]
    gaps = [read(one) for size, one in zip(raw["sizes"], raw["gaps"], strict=True) if size <= FEW]
    text, source = "Capsules need fewer examples", "talks on capsule networks"
    pairs = [(one, Measure("", [0.0])) for one in gaps]
    return [most_often_lower(text, source, pairs, f"sizes of at most {FEW:,} images, picture by picture")]


@register(
    "few-shot",
    "Few examples: test error against the size of the training set",
    plan=plan,
    budgets=STRONG,
    claims=claims,
)
def run(lab: Lab) -> Report:
    count, batch = steps(lab)
    report = Report(
        differs=[
            "Not in the paper: the claim comes from talks.",
            *_nets.differences(lab, []),
            f"Every training has about {count:,} steps, of up to {batch} images, whatever the size; more where that "
            f"would be fewer than {plural(passes(lab), 'epoch')}.",
            "No validation split: the last epoch's weights are tested, for every size and network.",
        ]
    )
    errors: dict[str, list[Measure]] = {}
    wrong: dict[str, list[NDArray[np.float64]]] = {}  # (S, N) for each size
    test, members = pictures_of(config(lab, "CNN", ALL, 0))
    for net in NETS:
        errors[net], wrong[net] = [], []
        for size in sizes(lab):
            trained = [lab.train(config(lab, net, size, seed)) for seed in lab.seeds]
            errors[net].append(error_measure(f"{net}, {size:,} images", [main_metric(t.test) for t in trained]))
            wrong[net].append(mistakes(lab, trained, test, "mnist"))
        report.raw[net] = {
            "sizes": sizes(lab),
            "test error": [list(row) for row in zip(*(m.values for m in errors[net]), strict=True)],  # (seeds, sizes)
            "interval": [m.interval for m in errors[net]],
        }
    gaps = {net: [gap(net, *pair, members) for pair in zip(wrong[net], wrong["CNN"], strict=True)] for net in AGAINST}
    for net in AGAINST:
        report.raw[net]["gaps"] = [stored(one) for one in gaps[net]]
    curves = [Line.of(net, sizes(lab), measures) for net, measures in errors.items()]
    figure = lines(
        lab.figure("few_shot.png"),
        curves,
        "Error against the number of training digits",
        f"MNIST, the same number of each class; {lab.budget} budget; band: 95 % interval of the test set",
        "training images",
        "test error, %",
        logx=True,
        logy=True,
    )
    report.draw(figure, "Both axes are logarithmic: equal distances are equal factors.")
    cells = zip(*errors.values(), *gaps.values(), strict=True)
    rows = [
        [f"{n:,}", *(m.shown() for m in row[: len(NETS)]), *map(signed, row[len(NETS) :])]
        for n, row in zip(sizes(lab), cells, strict=True)
    ]
    columns = ["training images", *NETS, *(f"{net} minus CNN, points" for net in AGAINST)]
    report.tables = [Table("Test error (95 % interval)", columns, rows)]
    report.findings = [finding(sizes(lab), gaps[net], net) for net in AGAINST]
    if len(lab.seeds) == 1:
        report.findings.append("One seed: with ten images, the choice of the ten matters more than the interval says.")
    return report


def finding(sizes: list[int], gaps: list[Measure], net: str) -> str:
    """At which sizes a network errs on fewer pictures than the CNN, on more, or neither is shown."""
    where = {-1: "lower", 1: "higher", 0: "not shown to be either"}
    words = []
    for side, what in where.items():
        if found := [f"{size:,}" for size, one in zip(sizes, gaps, strict=True) if sign(one) == side]:
            words.append(f"{what} with {', '.join(found)} training images")
    return (
        f"The error of the {net}, picture by picture and over the seeds, against that of the CNN: {'; '.join(words)}."
    )
