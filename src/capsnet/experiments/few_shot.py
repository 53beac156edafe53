"""How much data does it need? Test error against the number of training images, CapsNet and CNN of similar size.

Talks on capsule networks claim that they "need less training data", and one trains on 400 medical images. The paper
itself has no such experiment. Here both networks learn from 10 to 60,000 digits, the same number of each class, drawn
anew for each seed, with the same number of steps, schedule and augmentation. The last epoch is tested: with ten
training images there is no honest validation set of 10,000 to choose an epoch by.

The claim to look at: which curve is lower, and where.
"""

import dataclasses

import numpy as np

from capsnet.experiments import _nets
from capsnet.experiments._plots import Line, lines
from capsnet.experiments._report import Report, Table
from capsnet.experiments.lab import Lab, Trained
from capsnet.training import TrainConfig

TITLE = "Few examples: test error against the size of the training set"
NETS = {"CapsNet": _nets.capsnet, "CNN": _nets.cnn}
ALL = 60_000


def sizes(lab: Lab) -> list[int]:
    return lab.pick(
        [10, 100], [10, 30, 100, 300, 1000, 3000, 10_000, ALL], [10, 30, 100, 300, 1000, 3000, 10_000, 30_000, ALL]
    )


def config(lab: Lab, net: str, size: int, seed: int) -> TrainConfig:
    """About the same number of images seen for every size: few digits are simply seen more often."""
    spec = "mnist" if size == ALL else f"mnist:per_class={size // 10},seed={seed}"
    batch = min(lab.pick(20, 50, 128), size)
    shown = lab.pick(200, 20_000, 6_000_000)
    base = NETS[net](lab, spec, seed=seed, keep="last", train_on="train+validation")
    return dataclasses.replace(base, limit=None, batch_size=batch, epochs=max(1, round(shown / size)))


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, net, size, seed) for net in NETS for size in sizes(lab) for seed in lab.seeds]


def run(lab: Lab) -> Report:
    report = Report(differs=["Not in the paper: the claim comes from talks.", *_nets.differences(lab)])
    errors: dict[str, np.ndarray] = {}
    for net in NETS:
        trained: list[list[Trained]] = [
            [lab.train(config(lab, net, size, seed)) for size in sizes(lab)] for seed in lab.seeds
        ]
        errors[net] = np.array([[t.error for t in row] for row in trained])  # (seeds, sizes)
        report.raw[net] = {"sizes": sizes(lab), "test error per seed": errors[net].tolist()}
    intervals = "band: standard deviation over seeds" if len(lab.seeds) > 1 else "one seed"
    figure = lines(
        lab.figure("few_shot.png"),
        [curve(net, sizes(lab), errors[net]) for net in NETS],
        "Error against the number of training digits",
        f"MNIST, the same number of each class; {lab.budget} budget, {intervals}",
        "training images",
        "test error, %",
        logx=True,
        logy=True,
    )
    report.draw(figure, "Both axes are logarithmic: equal distances are equal factors.")
    rows = [
        [f"{size:,}", *(shown(errors[net][:, n]) for net in NETS), better(errors, n)]
        for n, size in enumerate(sizes(lab))
    ]
    report.tables = [Table("Test error, %", ["training images", *NETS, "lower"], rows)]
    report.findings = [sentence(lab, errors)]
    report.differs.append("No validation split: the last epoch's weights are tested, for every size and both networks.")
    return report


def curve(name: str, x: list[int], values: np.ndarray) -> Line:
    """Mean over the seeds; the band stays above zero, as a logarithmic axis wants."""
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Line(name, x, mean.tolist())
    spread = values.std(axis=0, ddof=1)
    return Line(name, x, mean.tolist(), np.maximum(mean - spread, 0.5 * mean).tolist(), (mean + spread).tolist())


def shown(values: np.ndarray) -> str:
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"


def better(errors: dict[str, np.ndarray], n: int) -> str:
    return min(errors, key=lambda net: errors[net][:, n].mean())


def sentence(lab: Lab, errors: dict[str, np.ndarray]) -> str:
    wins = [f"{size:,}" for n, size in enumerate(sizes(lab)) if better(errors, n) == "CapsNet"]
    if not wins:
        return "The CapsNet has the lower error at no size: these runs do not support that it needs less data."
    everywhere = len(wins) == len(sizes(lab))
    where = "at every size" if everywhere else f"at {', '.join(wins)} training images, the CNN at the others"
    return f"The CapsNet has the lower error {where}."
