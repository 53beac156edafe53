"""How much data does it need? Test error against the number of training images, CapsNet and CNN of similar size.

Talks on capsule networks claim that they "need less training data", and one trains on 400 medical images. The paper
itself has no such experiment. Here both networks learn from ten digits up to all of them, the same number of each
class, drawn anew for each seed, in the same number of steps, with the same schedule and augmentation. (On the budget
`day` all digits are seen at least four times; for the largest set that takes more steps.) The last epoch is tested:
with ten training images, a validation set of 10,000 to choose an epoch by would not be fair.

A CapsNet also learns to redraw its input, which is a help of its own where there is little data. So a CapsNet without
reconstruction stands beside the two.

The claim to look at: which curve is lower, and where.
"""

import dataclasses
import functools
from typing import Any

from capsnet.drawing.plots import Line, lines
from capsnet.experiments import _nets
from capsnet.experiments._claims import Claim, most_often_lower
from capsnet.experiments._registry import STRONG, register
from capsnet.experiments._report import Report, Table, error_measure, plural
from capsnet.experiments.lab import Lab, main_metric
from capsnet.metrics import Measure, compare
from capsnet.training import TrainConfig

BARE = "CapsNet without reconstruction"
NETS = {"CapsNet": _nets.capsnet, BARE: functools.partial(_nets.capsnet, decoder=False), "CNN": _nets.cnn}
BOTH = ("CapsNet", "CNN")  # which the claim is about
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
    curves = [read_curve(report.raw[net]) for net in BOTH]
    few = [pair for size, *pair in zip(report.raw["CNN"]["sizes"], *curves, strict=True) if size <= FEW]
    text, source = "Capsules need fewer examples", "talks on capsule networks"
    return [most_often_lower(text, source, [(a, b) for a, b in few], f"sizes of at most {FEW:,} images")]


def read_curve(raw: dict[str, Any]) -> list[Measure]:
    """The errors by size, from the raw numbers."""
    columns = zip(*raw["test error"], strict=True)
    return [Measure("", [*c], "%", interval=tuple(i)) for c, i in zip(columns, raw["interval"], strict=True)]


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
    for net in NETS:
        errors[net] = [
            error_measure(
                f"{net}, {size:,} images",
                [main_metric(lab.train(config(lab, net, size, seed)).test) for seed in lab.seeds],
            )
            for size in sizes(lab)
        ]
        report.raw[net] = {
            "sizes": sizes(lab),
            "test error": [list(row) for row in zip(*(m.values for m in errors[net]), strict=True)],  # (seeds, sizes)
            "interval": [m.interval for m in errors[net]],
        }
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
    lower = which(errors, *BOTH)
    cells = zip(*errors.values(), strict=True)
    rows = [[f"{n:,}", *(m.shown() for m in row), who] for n, row, who in zip(sizes(lab), cells, lower, strict=True)]
    report.tables = [
        Table("Test error (95 % interval)", ["training images", *NETS, f"lower: {' or '.join(BOTH)}"], rows)
    ]
    report.findings = [finding(sizes(lab), lower, BOTH), finding(sizes(lab), which(errors, BARE, "CNN"), (BARE, "CNN"))]
    if len(lab.seeds) == 1:
        report.findings.append("One seed: with ten images, the choice of the ten matters more than the interval says.")
    return report


def which(errors: dict[str, list[Measure]], ours: str, theirs: str) -> list[str]:
    """Which of two networks has the lower error at each size; ``-`` where chance may explain the difference."""
    pairs = zip(errors[ours], errors[theirs], strict=True)
    return [{-1: ours, 1: theirs, 0: "-"}[compare(*pair)] for pair in pairs]


def finding(sizes: list[int], lower: list[str], nets: tuple[str, str] = BOTH) -> str:
    """Where each of two networks has the lower error; ``lower`` names it for each size, see ``which``."""
    words = []
    for net in nets:
        if where := [f"{size:,}" for size, name in zip(sizes, lower, strict=True) if name == net]:
            words.append(f"the {net} has the lower error at {', '.join(where)} training images")
    if not words:
        return f"{' and '.join(nets)}: at no size do the two differ by more than their intervals."
    overlapping = lower.count("-")
    rest = f"; at {overlapping} of {len(sizes)} sizes the intervals overlap" if overlapping else ""
    claim = "" if nets[0] in lower else " These runs do not support the claim that a CapsNet needs less data."
    return f"{' and '.join(nets)}: beyond the 95 % intervals, {' and '.join(words)}{rest}.{claim}"
