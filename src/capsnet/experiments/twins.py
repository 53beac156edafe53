"""Capsules and their plain twins on overlapping digits, answer by answer.

Two networks with the same stem, as many parameters and the same training err on many of the same pictures, so intervals
of their two errors overlap long after the errors differ. Here both answer the same pairs, and the interval is that of
the difference, over pairs that share digits.

The claim to look at: with capsules fewer pairs are wrong, for the pairs of the paper's text (shifts of up to 4 pixels)
and for those of its authors' code (up to 6, cut at the same canvas).
"""

import numpy as np
from numpy.typing import NDArray

from capsnet import data
from capsnet.data import Pairs
from capsnet.drawing.plots import intervals
from capsnet.experiments import _nets
from capsnet.experiments._claims import Claim, measure_named
from capsnet.experiments._mistakes import fewer, mean_over_pictures, mistakes, origins, sign, signed
from capsnet.experiments._registry import register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments.lab import Lab
from capsnet.training import TrainConfig

FAMILIES = {"shift 4": "multimnist", "shift 6": "multimnist:shift=6,canvas=36"}
WHOSE = {"shift 4": "", "shift 6": ", with the shifts of the authors' code"}
NETS = {"capsules": _nets.capsnet, "plain twin": _nets.cnn}
GAP = "capsules minus plain twin"
COLUMNS = ["pairs", *NETS, GAP, "capsules alone right", "twin alone right"]


def plan(lab: Lab) -> list[TrainConfig]:
    return [make(lab, spec) for spec in FAMILIES.values() for make in NETS.values()]


def claims(report: Report) -> list[Claim]:
    found = []
    for family, whose in WHOSE.items():
        ours, twin, gap = (measure_named(report, f"{family}, {name}") for name in (*NETS, GAP))
        text = f"Capsules beat a plain network on overlapping digits{whose}"
        found.append(fewer(text, "Sabour et al. 2017, Table 1", ours, twin, gap))
    return found


@register(
    "twins",
    "Capsules and their plain twins on overlapping digits, answer by answer",
    plan=plan,
    budgets=("smoke", "shipped"),
    claims=claims,
)
def run(lab: Lab) -> Report:
    report = Report(differs=_nets.differences(lab, plan(lab)))
    report.tables = [Table("Test error, both digits must be right", COLUMNS, [])]
    shown: dict[str, list[Measure]] = {}
    for family, spec in FAMILIES.items():
        pairs = data.load(data.with_options(spec, pairs=lab.pick(300, 300, 100_000)), "test")
        assert isinstance(pairs, Pairs)
        trained = [lab.train(make(lab, spec)) for make in NETS.values()]
        wrong = mistakes(lab, trained, pairs, spec).T  # (N, 2)
        measured = measures(family, wrong, origins(pairs))
        report.measures += measured
        *errors, gap = measured
        shown[family] = [one._replace(name=net) for one, net in zip(errors, NETS, strict=True)]
        alone = [int((wrong[:, k] < wrong[:, 1 - k]).sum()) for k in range(2)]
        cells = [*(error.shown() for error in errors), signed(gap), *(f"{count:,}" for count in alone)]
        report.tables[0].rows.append([f"{family}, {len(pairs):,}", *cells])
        report.raw[family] = {"runs": [one.folder.name for one in trained], "alone right": alone}
        report.findings.append(finding(family, gap))
    report.differs.append(
        "The test pairs are generated from the 10,000 test digits. Intervals allow for pairs that share a digit "
        "being alike. Each network was trained once: another training might turn a small difference around."
    )
    path = intervals(lab.figure("twins.png"), shown, "Overlapping digits", "test error, %", limits(shown))
    report.draw(path, "Test error of each network, with 95 % intervals over the digits.")
    return report


def measures(family: str, wrong: NDArray[np.float64], digits: NDArray[np.int64]) -> list[Measure]:
    """Both errors and their difference, with intervals over the digits. Shapes: (N, 2), (N, 2)"""
    columns = {net: (wrong[:, k], "%") for k, net in enumerate(NETS)} | {GAP: (wrong[:, 0] - wrong[:, 1], "points")}
    found = []
    for name, (values, unit) in columns.items():
        mean, reach = mean_over_pictures(100 * values, digits)
        found.append(Measure(f"{family}, {name}", [mean], unit, interval=reach, n=len(values)))
    return found


def finding(family: str, gap: Measure) -> str:
    words = ("not shown to be fewer or more", "more", "fewer")[sign(gap)]
    return (
        f"{family.capitalize()}: pairs that the capsules get wrong are {words} than the twin's: {signed(gap)} points."
    )


def limits(shown: dict[str, list[Measure]]) -> tuple[float, float]:
    """The axis of the figure, a little wider than the intervals."""
    ends = [end for errors in shown.values() for one in errors for end in one.interval or (one.mean, one.mean)]
    margin = 0.1 * (max(ends) - min(ends)) + 0.1
    return min(ends) - margin, max(ends) + margin
