"""What the dimensions of a digit capsule mean: Figure 4 of Sabour, Frosst, Hinton 2017, with numbers.

The paper moves one of the 16 dimensions of a digit's capsule at a time by -0.25 ... +0.25 in steps of 0.05, decodes,
and names by eye what changes: *scale and thickness*, *localized part*, *stroke thickness*, *localized skew*, *width and
translation*. It says that one of the 16 almost always represents the digit's width.

Here every decoded picture is measured: thickness of the strokes, area of ink, slant, width, height, position. A
dimension *moves* a property if it does so steadily (correlation of at least 0.8, each digit compared with itself only)
and by at least as much as people's digits of that class differ (one standard deviation). It is *named* after the
property if it also stands out: half as much again as the root mean square of the class's 16 dimensions. Steadiness
alone says little: almost every effect of a decoder is steady.

The claim to look at: every class has dimensions that one can name, and one of them is width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from capsnet import data
from capsnet.data import Dataset
from capsnet.drawing.figures import dimension_sweep
from capsnet.drawing.pictures import Cell, Row, picture_rows
from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, ORANGE, VERMILLION, figure, save, signed, text
from capsnet.experiments import _nets
from capsnet.experiments._perturb import STANDS_OUT, STEADY, Effects, choose, class_effects, name_dimensions
from capsnet.experiments._registry import ALL, register
from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments._strokes import PROPERTIES, measure
from capsnet.experiments.lab import Lab
from capsnet.inference import OFFSETS, sweep_dimensions
from capsnet.models import Model
from capsnet.training import TrainConfig

__all__ = ["name_dimensions"]
if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = {  # what the figure's captions say, by eye
    "thickness": "by eye: “stroke thickness”",
    "area": "by eye: “scale and thickness”",
    "slant": "by eye: “localized skew”",
    "width": "by eye: “almost always”",
    "x position": "by eye: “width and translation”",
}


def config(lab: Lab, seed: int) -> TrainConfig:
    """The network of Table 1's best row."""
    return _nets.capsnet(lab, "mnist", seed=seed, iterations=3, decoder=True)


def plan(lab: Lab) -> list[TrainConfig]:
    return [config(lab, seed) for seed in lab.seeds]


def measured(model: Model, digits: Dataset, each: int) -> dict[str, Any]:
    """All classes' effects as plain lists."""
    chosen = choose(model, digits, each)
    return {
        "classes": [{k: v.tolist() for k, v in one._asdict().items()} for one in class_effects(model, chosen)],
        "digits": sum(map(len, chosen.poses)),
        "classified correctly": chosen.correct,
    }


TITLE = "Figure 4: what each dimension of a digit capsule does to the digit, measured"


@register("perturb", TITLE, plan=plan, budgets=ALL)
def run(lab: Lab) -> Report:
    report = Report(differs=_nets.differences(lab, plan(lab)))
    each = lab.pick(3, 50, 200)
    digits = data.load("mnist", "validation").subset(range(lab.pick(200, 1000, 4000)), name="mnist validation")
    trained = [lab.train(config(lab, seed)) for seed in lab.seeds]
    seeds = [
        lab.remember("sweeps", lambda t=t: measured(t.model, digits, each), run=t.folder, each=each) for t in trained
    ]
    classes = [[Effects(**{k: np.array(v) for k, v in one.items()}) for one in seed["classes"]] for seed in seeds]
    report.raw = {
        "properties": [p._asdict() for p in PROPERTIES],
        "seeds": seeds,
        "runs": [t.folder.name for t in trained],
    }
    report.measures = measures(classes)
    report.tables = [by_property(classes[0]), by_dimension(classes[0])]
    report.findings = findings(classes[0], seeds[0])
    report.differs += [
        f"The paper shows six rows and names them by eye. Here all 16 dimensions of all classes are measured on "
        f"{seeds[0]['digits']} validation digits, {each} of a class at most, and named by rule. Localised parts (the "
        "tail of a 2) are not measured, only their effect on the whole digit.",
        f"The rule's thresholds (|r| {STEADY}, one standard deviation, {STANDS_OUT} root mean squares) were set after "
        "looking at the bundled `capsnet-small-mnist`, where a laxer rule named nearly all; the counts depend on them.",
        "Which dimension means what differs from seed to seed: tables and figures are of seed 0.",
    ]
    if lab.budget == "shipped":
        report.differs.append("The bundled network was trained on these digits too: its final run had all 60,000.")
    draw(lab, report, trained[0].model, digits, classes[0])
    return report


def purest(classes: list[Effects], p: int) -> tuple[int, int]:
    """Class and dimension that move a property with the least other effects, if possible one named after it."""
    squares = [one.strength**2 for one in classes]
    shares = [square / np.maximum(square.sum(axis=1, keepdims=True), 1e-9) for square in squares]
    scores = np.stack([share[:, p] * (1 + one.named[:, p]) for share, one in zip(shares, classes, strict=True)])
    label, dim = np.unravel_index(int(scores.argmax()), scores.shape)
    return int(label), int(dim)


def by_property(classes: list[Effects]) -> Table:
    """``10: +1.9 px (r +0.97)`` for every class and property; what does not count as moving it stands in brackets."""
    rows = []
    for label, one in enumerate(classes):
        cells = [str(label)]
        for p, prop in enumerate(PROPERTIES):
            dim = one.best(p)
            words = f"{dim}: {one.effect[dim, p]:+.1f} {prop.unit} (r {one.r[dim, p]:+.2f})"
            cells.append(words if one.moves[dim, p] else f"[{words}]")
        rows.append(cells)
    columns = ["digit", *(f"{p.name}: dimension, effect" for p in PROPERTIES)]
    return Table(
        "The dimension for each property, change over the sweep; in brackets: unsteady or small", columns, rows
    )


def by_dimension(classes: list[Effects]) -> Table:
    """Every dimension's names."""
    dims = range(len(classes[0].r))
    rows = [[str(n), *(", ".join(one.names(dim)[:2]) or "-" for dim in dims)] for n, one in enumerate(classes)]
    return Table("What each dimension is named after (two at most)", ["digit", *map(str, dims)], rows)


def measures(seeds: list[list[Effects]]) -> list[Measure]:
    """For each property, in how many classes some dimension moves it."""
    return [
        Measure(
            f"classes with a dimension that moves {prop.name}",
            [float(sum(one.moves[:, p].any() for one in classes)) for classes in seeds],
            f"of {len(seeds[0])}",
            PAPER.get(prop.name, "-"),
        )
        for p, prop in enumerate(PROPERTIES)
    ]


def findings(classes: list[Effects], counts: dict[str, Any]) -> list[str]:
    """Of seed 0, as the tables are."""
    width = [p.name for p in PROPERTIES].index("width")
    wide = sum(bool(one.moves[:, width].any()) for one in classes)
    at_once = float(np.mean([one.moves.sum(axis=1).mean() for one in classes]))
    names = [len(one.names(dim)) for one in classes for dim in range(len(one.r))]
    label, dim = purest(classes, 0)
    thick = classes[label]
    share = 100 * thick.effect[dim, 0] / thick.typical[0]
    return [
        f"In {wide} of {len(classes)} classes some dimension moves the digit's width; the paper: “almost always”.",
        f"The purest stroke thickness is dimension {dim} of digit {label}: {thick.effect[dim, 0]:+.2f} px over the "
        f"sweep ({share:+.0f} % of {thick.typical[0]:.1f} px), r = {thick.r[dim, 0]:+.2f}"
        + ("." if thick.moves[dim, 0] else ": too little, or too unsteady, to count."),
        f"Of {len(names)} dimensions (16 for each class) {sum(n == 0 for n in names)} have no name, "
        f"{sum(n == 1 for n in names)} one and {sum(n > 1 for n in names)} several. On average a dimension moves "
        f"{at_once:.1f} of the {len(PROPERTIES)} properties at once"
        + (": a capsule's axes are not the axes people would choose." if at_once > 1.5 else "."),
        f"Measured on {counts['digits']} digits of the validation split, of which {counts['classified correctly']} are "
        "classified correctly.",
    ]


def draw(lab: Lab, report: Report, model: Model, digits: Dataset, classes: list[Effects]) -> None:
    first = [poses[0] for poses in choose(model, digits, 1).poses]
    sweeps = [sweep_dimensions(model, pose, label).cpu() for label, pose in enumerate(first)]  # each (D, S, C, H, W)
    report.draw(
        measured_sweep(lab.figure("perturb.png"), sweeps, classes),
        "Figure 4 with numbers: for each property the dimension that moves it with the least other effects.",
    )
    report.draw(
        meanings(lab.figure("perturb-meanings.png"), classes, digits.class_names),
        "What all 16 dimensions of all classes do: larger is stronger, filled is more, hollow is less.",
    )
    for label in range(lab.pick(1, len(classes), len(classes))):
        path = lab.figure(f"sweep-{label}.png")
        one = classes[label]
        named = [f"{dim}: {', '.join(one.names(dim))}" for dim in range(len(one.r)) if one.names(dim)]
        words = f"Dimensions by name: {'; '.join(named)}." if named else "No dimension has a name."
        dimension_sweep(path, sweeps[label], OFFSETS, f"Digit {label}: its 16 dimensions")
        report.draw(path, f"The sweep of a {label}. {words}")


def measured_sweep(path: Path, sweeps: Sequence[Tensor], classes: list[Effects]) -> Path:
    """A row of decoded pictures per property, of the class and dimension that move it most purely, with numbers."""
    rows = []
    for p, prop in enumerate(PROPERTIES):
        label, dim = purest(classes, p)
        one, strip = classes[label], sweeps[label][dim]  # (S, C, H, W)
        before, after = measure(strip[[0, -1], 0])[:, p].tolist()
        moved = f"{before:.1f} to {after:.1f} {prop.unit}"
        rows.append(
            Row(
                [
                    Cell(image, frame=None if offset else ORANGE)
                    for image, offset in zip(strip.numpy(), OFFSETS, strict=True)
                ],
                f"{prop.name}\ndigit {label}, dimension {dim}",
                f"{moved}\nall digits {label}: {one.effect[dim, p]:+.1f}, r {one.r[dim, p]:+.2f}",
                heads=() if p else [signed(offset) for offset in OFFSETS],
            )
        )
    note = (
        "one dimension of one capsule is moved from left to right; everything else stays (y position counts downwards)"
    )
    return picture_rows(path, rows, "What a dimension means, measured", note, size=84)


def meanings(path: Path, classes: Sequence[Effects], class_names: Sequence[str]) -> Path:
    """Every effect of every dimension: a chart per class after Hinton's diagrams, size for strength."""
    columns = 5
    wide, tall, head = 2.5, 4.1, 1.15  # inches
    page_w, page_h = columns * wide + 0.6, head - (-len(classes) // columns) * tall + 0.25
    fig = figure(page_w, page_h)
    page = fig.add_axes((0, 0, 1, 1))
    page.set(xlim=(0, page_w), ylim=(page_h, 0))
    page.set_axis_off()
    text(page, 0.2, 0.18, "What each dimension of each digit capsule does", 16, weight="bold", va="top")
    for x, colour, face, words in (
        (0.3, BLUE, BLUE, "more of it as the dimension grows"),
        (3.7, VERMILLION, "white", "less of it"),
        (5.2, FAINT, FAINT, f"unsteady (|r| < {STEADY:g})"),
    ):
        page.scatter([x], [0.72], s=90, marker="s", facecolors=face, edgecolors=colour, linewidths=2)
        text(page, x + 0.2, 0.72, words, 11, va="center")
    text(page, 7.6, 0.72, "size: change over the sweep beside the 16 dimensions' mean", 11, MUTED, va="center")
    for n, one in enumerate(classes):
        x, y = 0.62 + n % columns * wide, head + n // columns * tall + 0.3
        w, h = wide - 0.3, tall - 1.1
        ax = fig.add_axes((x / page_w, 1 - (y + h) / page_h, w / page_w, h / page_h))
        draw_effects(ax, one)
        if n % columns == 0:
            ax.set_ylabel("dimension", fontsize=11, color=MUTED, labelpad=1)
        else:
            ax.set_yticklabels([])
        ax.set_title(f"digit {class_names[n]}", fontsize=13, color=INK, weight="bold", pad=5)
    return save(fig, path)


def draw_effects(ax: "Axes", one: Effects) -> None:
    """A square per dimension and property, its area the strength, full at three root mean squares."""
    from matplotlib.patches import Rectangle

    D, P = one.r.shape
    ax.set(xlim=(-0.5, P - 0.5), ylim=(D - 0.5, -0.5), yticks=range(D))
    names = [p.name for p in PROPERTIES]
    ax.set_xticks(range(P), names, rotation=60, fontsize=10.5, color=INK, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0, labelsize=10.5, colors=MUTED)
    ax.spines[:].set_color(FAINT)
    for d, p in np.ndindex(D, P):
        side = 0.94 * float(np.sqrt(min(1.0, abs(one.strength[d, p]) / 3)))
        if side < 0.08:
            continue
        more = one.strength[d, p] > 0
        colour = FAINT if abs(one.r[d, p]) < STEADY else BLUE if more else VERMILLION
        side = side if more else max(0.02, side - 0.12)
        box = Rectangle((p - side / 2, d - side / 2), side, side, linewidth=0 if more else 1.6)
        box.set(facecolor=colour if more else "white", edgecolor=colour)
        ax.add_patch(box)
