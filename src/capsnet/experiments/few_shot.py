"""How much data does it need? Test error against the number of training images, CapsNet and CNN of similar size.

Talks on capsule networks claim that they "need less training data", and one trains on 400 medical images. The paper
itself has no such experiment. Here both networks learn from 10 to 60,000 digits, the same number of each class, drawn
anew for each seed, in the same number of steps, with the same schedule and augmentation. The last epoch is tested: with
ten training images there is no honest validation set of 10,000 to choose an epoch by.

The claim to look at: which curve is lower, and where.
"""

import dataclasses

import numpy as np

from capsnet.drawing.plots import Line, lines
from capsnet.experiments import _nets
from capsnet.experiments._report import Report, Table, error_measure
from capsnet.experiments.lab import Lab, Trained, share
from capsnet.training import TrainConfig

TITLE = "Few examples: test error against the size of the training set"
NETS = {"CapsNet": _nets.capsnet, "CNN": _nets.cnn}
ALL = 60_000


def same(lab: Lab) -> str:
    steps = lab.pick(10, 300, 100 * 469)
    return f"Every training has about {steps:,} steps, of up to {lab.pick(20, 200, 128)} images, whatever the size."


def sizes(lab: Lab) -> list[int]:
    return lab.pick([10, 100], [10, 30, 100, 1000, 10_000, ALL], [10, 30, 100, 300, 1000, 3000, 10_000, 30_000, ALL])


def config(lab: Lab, net: str, size: int, seed: int) -> TrainConfig:
    """The same number of steps for every size, one pass over all digits for the largest: few are seen more often."""
    spec = "mnist" if size == ALL else f"mnist:per_class={size // 10},seed={seed}"
    batch, steps = min(lab.pick(20, 200, 128), size), lab.pick(10, 300, 100 * 469)
    per_epoch = -(-size // batch)
    base = NETS[net](lab, spec, seed=seed, keep="last", train_on="train+validation")
    return dataclasses.replace(base, limit=None, batch_size=batch, epochs=max(1, round(steps / per_epoch)))


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, net, size, seed) for net in NETS for size in sizes(lab) for seed in lab.seeds]


def run(lab: Lab) -> Report:
    report = Report(
        differs=["Not in the paper: the claim comes from talks.", *_nets.differences(lab, plan(lab)[:0]), same(lab)]
    )
    errors: dict[str, np.ndarray] = {}
    bands: dict[str, np.ndarray] = {}
    for net in NETS:
        trained: list[list[Trained]] = [
            [lab.train(config(lab, net, size, seed)) for size in sizes(lab)] for seed in lab.seeds
        ]
        errors[net] = np.array([[t.error for t in row] for row in trained])  # (seeds, sizes)
        measured = [
            error_measure(f"{net}, {size:,} images", [share(row[n].test) for row in trained])
            for n, size in enumerate(sizes(lab))
        ]
        bands[net] = np.array([m.interval for m in measured])  # (sizes, 2)
        report.raw[net] = {"sizes": sizes(lab), "test error": errors[net].tolist(), "interval": bands[net].tolist()}
    figure = lines(
        lab.figure("few_shot.png"),
        [
            Line(
                net, sizes(lab), errors[net].mean(axis=0).tolist(), bands[net][:, 0].tolist(), bands[net][:, 1].tolist()
            )
            for net in NETS
        ],
        "Error against the number of training digits",
        f"MNIST, the same number of each class; {lab.budget} budget; band: 95 % interval of the test set",
        "training images",
        "test error, %",
        logx=True,
        logy=True,
    )
    report.draw(figure, "Both axes are logarithmic: equal distances are equal factors.")
    rows = [
        [f"{size:,}", *(shown(errors[net][:, n], bands[net][n]) for net in NETS), lower(errors, bands, n)]
        for n, size in enumerate(sizes(lab))
    ]
    report.tables = [Table("Test error, % (95 % interval)", ["training images", *NETS, "lower"], rows)]
    report.findings = [sentence(lab, errors, bands)]
    if len(lab.seeds) == 1:
        report.findings.append("One seed: with ten images, which ten they are matters more than the interval says.")
    report.differs.append("No validation split: the last epoch's weights are tested, for every size and both networks.")
    return report


def shown(values: np.ndarray, band: np.ndarray) -> str:
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread} ({band[0]:.2f} to {band[1]:.2f})"


def lower(errors: dict[str, np.ndarray], bands: dict[str, np.ndarray], n: int) -> str:
    """Which network has the lower error; nobody, where the intervals overlap."""
    best = min(errors, key=lambda net: errors[net][:, n].mean())
    other = next(net for net in errors if net != best)
    return best if bands[best][n, 1] < bands[other][n, 0] else "-"


def sentence(lab: Lab, errors: dict[str, np.ndarray], bands: dict[str, np.ndarray]) -> str:
    wins = {net: [f"{size:,}" for n, size in enumerate(sizes(lab)) if lower(errors, bands, n) == net] for net in errors}
    words = [f"the {net} has the lower error at {', '.join(won)} training images" for net, won in wins.items() if won]
    if not words:
        return "At no size do the two differ by more than their intervals."
    undecided = len(sizes(lab)) - sum(map(len, wins.values()))
    rest = f"; at {undecided} of {len(sizes(lab))} sizes the intervals overlap" if undecided else ""
    claim = "" if wins["CapsNet"] else " These runs do not support that a CapsNet needs less data."
    return f"Beyond the 95 % intervals, {' and '.join(words)}{rest}.{claim}"
