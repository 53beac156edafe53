"""Figure 5 of *Dynamic Routing Between Capsules*: two overlapping digits, reconstructed apart by the decoder.

The paper shows MultiMNIST test pairs above the reconstructions of two class capsules in two colours. `L:(2, 7)` are the
labels of the pair, `R:(2, 7)` the classes that were decoded. Where the network errs, both its prediction (`R:P`) and
the labels are decoded; a star marks a class that is neither label nor prediction.

The claim to look at: each capsule has picked out the style and position of *its own* digit, even where nearly all of it
is covered by the other, and a capsule of an absent digit does not draw whatever fits the picture best.

Beside the pictures this measures how far the drawing of the true class is from the digit as it was before the two were
merged, against the drawing of an absent class. The paper says that the boxes of its digits overlap by 80 % on average;
here that is measured too. And since each capsule draws its own digit, a pixel can be given to the capsule that draws it
brighter: the adjusted Rand index of the digits' pixels (FG-ARI, as in `binding`) says how well that tells whose it is.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet import data
from capsnet.data import Pairs
from capsnet.drawing.pictures import Cell, Row, picture_rows
from capsnet.drawing.plots import TICK, panels, tidy
from capsnet.drawing.style import BLUE, INK, VERMILLION, heading, save, text
from capsnet.experiments import _nets, table1
from capsnet.experiments._binding import Result, by_position
from capsnet.experiments._claims import Claim, higher
from capsnet.experiments._registry import ALL, register
from capsnet.experiments._report import Measure, Report, error_measure
from capsnet.experiments.lab import Lab, device_of, main_metric
from capsnet.experiments.overlap import tight_overlaps
from capsnet.inference import evaluating
from capsnet.inference.binding import Grouping, Scenes, Scores, load_scenes, score
from capsnet.metrics import difference, top_k
from capsnet.models import Model
from capsnet.training import TrainConfig

KINDS = {"true": "decoding the true classes", "absent": "decoding an absent class", "black": "a black picture"}
DRAWN, NEAR = "FG-ARI, pixels given to the capsule that draws them brighter", "FG-ARI, position k-means"
TIGHT = "tight boxes"
DARK = 0.5  # a pixel that is drawn darker is background
SQUARES = {"20x20 boxes": 20, "28x28 frames": 28}  # the box that bounds a digit of MNIST, and the picture it comes in
FIRST, SECOND = np.array([0.0, 0.45, 1.0]), np.array([1.0, 0.55, 0.0])
"""Blue and orange, which add up to white; the paper's red and green look alike to many eyes."""


def plan(lab: Lab) -> list[TrainConfig]:
    return [table1.config(lab, "multimnist", table1.BEST, 0)]


def claims(report: Report) -> list[Claim]:
    text = "Each capsule draws its own digit of two: pixels belong to the capsule that draws them"
    return [higher(text, "Sabour et al. 2017, Figure 5", report, DRAWN, [NEAR])]


TITLE = "Figure 5: overlapping digits, reconstructed apart"


@register("multimnist-figure", TITLE, plan=plan, budgets=ALL, claims=claims)
def run(lab: Lab) -> Report:
    trained = lab.train(plan(lab)[0])
    pairs = data.load("multimnist", "test")
    assert isinstance(pairs, Pairs)
    count = min(len(pairs), lab.pick(200, 4000, 10_000))
    decoded = lab.remember("apart", lambda: take_apart(trained.model, pairs, count), run=trained.folder, pairs=count)
    boxes = overlap_of(pairs, len(pairs))
    report = Report(differs=_nets.differences(lab, plan(lab)), raw={"pairs": decoded, "run": trained.folder.name})
    report.raw["overlap"] = {name: float(values.mean()) for name, values in boxes.items()}
    published = table1.PUBLISHED["multimnist", table1.BEST]
    error = error_measure("MultiMNIST test error, both digits must be right", [main_metric(trained.test)], published)
    grouped = lab.pick(20, 300, 1000)
    found = lab.remember("owners", lambda: pixel_owners(trained.model, grouped), run=trained.folder, pairs=grouped)
    whose = [Result([Scores(*found[name])]).measure(name) for name in (DRAWN, NEAR)]
    report.measures = [error, *measures(report.raw), *whose]
    words = difference("the FG-ARI of the capsules' drawings", whose[0], "that of position k-means", whose[1])
    report.findings = [*findings(report.raw), f"Whose is a pixel? Over {grouped:,} test pairs, {words}."]
    report.differs += [
        "FG-ARI is over pixels that belong to one digit alone. The drawings are those of the two longest capsules. In "
        "training, each had its own digit to draw: the network was told what belongs to which digit.",
        "The pairs shown are not picked by hand: they are the first of each kind among the test pairs.",
        "The paper's red and green are blue and orange here, which colour-blind readers can tell apart.",
    ]
    report.draw(
        draw_pairs(lab.figure("pairs.png"), trained.model, pairs, decoded["shown"], count),
        "Test pairs, the two reconstructions laid over each other, and the two digits before they were merged. The "
        "first class of a label is blue, the second orange, both together white. Framed: the decoded classes are not "
        "the labels.",
    )
    report.draw(
        draw_overlaps(lab.figure("overlap.png"), boxes),
        "How much the digits of a test pair overlap: area of the intersection of their tight bounding boxes over that "
        "of the smaller box.",
    )
    return report


def take_apart(model: Model, pairs: Pairs, count: int) -> dict[str, Any]:
    """Decode the true classes and an absent one for the first ``count`` pairs, and find examples of each kind.

    Errors are squared differences summed over a digit's picture, as in the loss, averaged over the digits. ``black`` is
    the error of drawing nothing, for scale.
    """
    sums, right = np.zeros(3), []
    for start in range(0, count, 250):
        batch = pairs.batch(np.arange(start, min(start + 250, count)))
        assert batch.sources is not None
        poses, guess = answer(model, batch.images)
        classes = batch.sources.classes  # (B, 2)
        missing = absent_class(classes.numpy(), guess)
        drawn = decode(model, poses, np.column_stack([classes.numpy(), missing]))  # (B, 3, H, W)
        truth = batch.sources.images[:, :, 0].numpy()  # (B, 2, H, W)
        sums += [float(np.square(error).sum()) for error in (drawn[:, :2] - truth, drawn[:, 2:] - truth, truth)]
        right += (guess == batch.targets.numpy().astype(bool)).all(axis=1).tolist()
    errors = dict(zip(KINDS, (sums / (2 * count)).tolist(), strict=True))
    return {"error": errors, "right": int(np.sum(right)), "count": count, "shown": first_of_each(np.array(right))}


def pixel_owners(model: Model, count: int) -> dict[str, Scores]:
    """How well the drawings, and the places of pixels, tell to which digit a pixel belongs."""
    scenes = load_scenes("multimnist", "test", count)
    return {DRAWN: score(scenes, by_drawing(model, scenes)), NEAR: score(scenes, by_position(scenes))}


def by_drawing(model: Model, scenes: Scenes) -> Grouping:
    """A pixel belongs to that of the longest capsules which draws it brighter."""
    poses, guess = answer(model, scenes.images)
    drawn = torch.from_numpy(decode(model, poses, np.nonzero(guess)[1].reshape(-1, scenes.objects)))  # (B, K, H, W)
    return Grouping(drawn.argmax(dim=1) + 1, drawn.amax(dim=1) < DARK)


def first_of_each(right: NDArray[np.bool_]) -> dict[str, list[int]]:
    """Which pairs are shown: the first that are right, those after them for absent classes, the first wrong."""
    good, bad = np.flatnonzero(right), np.flatnonzero(~right)
    return {"right": good[:6].tolist(), "absent": good[6:10].tolist(), "wrong": bad[:4].tolist()}


def answer(model: Model, images: torch.Tensor) -> tuple[torch.Tensor, NDArray[np.bool_]]:
    """Poses (B, J, D), and the two longest capsules as bool (B, J)."""
    with evaluating(model):
        output = model(images.to(device_of(model)))
    return output.poses, top_k(output.lengths, 2)


def decode(model: Model, poses: torch.Tensor, classes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Each class's drawing by itself. Shapes: (B, J, D), (B, K) -> (B, K, H, W)"""
    with evaluating(model):
        drawn = model.decode(poses, torch.from_numpy(classes).to(poses.device))
    return drawn[:, :, 0].float().cpu().numpy()


def absent_class(labels: NDArray[np.int64], guess: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The next class after the second label, counting round, that is neither label nor prediction.

    Shapes: labels (B, 2), guess (B, J) -> (B,)
    """
    B, J = guess.shape
    taken = guess.copy()
    np.put_along_axis(taken, labels, True, axis=1)
    candidates = (labels[:, 1:] + np.arange(1, J)) % J  # (B, J - 1)
    free = ~np.take_along_axis(taken, candidates, axis=1)
    if not free.any(axis=1).all():
        raise ValueError(f"a class that is neither label nor prediction needs more than {J} classes")
    return candidates[np.arange(B), free.argmax(axis=1)]


def as_labelled(labels: tuple[int, int], guess: NDArray[np.bool_]) -> tuple[int, int]:
    """The two predicted classes in the order of the labels: one that is right keeps its place, hence its colour."""
    one, two = (int(j) for j in np.flatnonzero(guess))
    return (two, one) if two == labels[0] or one == labels[1] else (one, two)


def measures(raw: dict[str, Any]) -> list[Measure]:
    what, area = "squared error per digit, summed over its pixels", "intersection over the smaller, by area"
    boxes = {f"mean overlap of the digits' {name}": [100 * share] for name, share in raw["overlap"].items()}
    errors = [Measure(name, [raw["pairs"]["error"][kind]], "", note=what) for kind, name in KINDS.items()]
    return errors + [Measure(name, share, "%", "80", note=area) for name, share in boxes.items()]


def findings(raw: dict[str, Any]) -> list[str]:
    """What the numbers say, whichever way they fall."""
    true, absent, black = (Measure(kind, [raw["pairs"]["error"][kind]], "") for kind in KINDS)
    overlap = {name: 100 * share for name, share in raw["overlap"].items()}
    nearest = min(overlap, key=lambda name: abs(overlap[name] - 80))
    return [
        f"Over {raw['pairs']['count']:,} test pairs, "
        + difference("the squared error of the true class's drawing", true, "that of an absent class's", absent)
        + f". A black picture has {black.mean:.1f}: the true class explains {100 * (1 - true.mean / black.mean):.0f} % "
        f"of its digit, the absent one {100 * (1 - absent.mean / black.mean):.0f} %.",
        "By area, the digits overlap by "
        + ", ".join(f"{mean:.1f} % ({name})" for name, mean in overlap.items())
        + f" on average. The paper says 80 % of their 20x20 boxes; nearest to that are the {nearest}.",
    ]


def overlap_of(pairs: Pairs, count: int) -> dict[str, NDArray[np.float64]]:
    """How much the first ``count`` pairs overlap: their tight boxes, and squares of two sizes about each centre."""
    offsets = pairs.offsets(pairs.numbers(np.arange(count)))  # (N, 2, 2)
    apart = np.abs(offsets[:, 0] - offsets[:, 1])  # (N, 2)
    squares = {name: np.clip(1 - apart / side, 0, None).prod(axis=1) for name, side in SQUARES.items()}
    return {TIGHT: tight_overlaps(pairs, count)} | squares


def overlay(two: NDArray) -> NDArray:
    """Two grey pictures as one: the first blue, the second orange, both white. Shapes: (2, H, W) -> (3, H, W)"""
    return np.clip(FIRST[:, None, None] * two[0] + SECOND[:, None, None] * two[1], 0, 1)


def draw_pairs(path: Path, model: Model, pairs: Pairs, shown: dict[str, list[int]], count: int) -> Path:
    """Input, decoded and true digits of the first pairs of each kind."""
    sections = {
        "both right": ("right", ["R"]),
        "* an absent class": ("absent", ["*R"]),
        "wrong: decoded as predicted (P), beside it as labelled": ("wrong", ["R:P", "R"]),
    }
    drawn = [(title, shown[kind], marks) for title, (kind, marks) in sections.items() if shown[kind]]
    rows = [row for title, numbers, marks in drawn for row in draw_columns(model, pairs, numbers, marks, title)]
    note = f"the first of each kind among {count:,} test pairs  ·  L: labels, R: decoded classes; first blue, second "
    note += "orange  ·  framed: not the labels"
    return picture_rows(path, rows, "Two digits, decoded by two capsules", note, size=144)


def draw_columns(model: Model, pairs: Pairs, numbers: list[int], marks: list[str], title: str) -> list[Row]:
    """Three rows for some pairs, with a column per pair and mark."""
    batch = pairs.batch(numbers)
    assert batch.sources is not None
    poses, guess = answer(model, batch.images)
    labels = batch.sources.classes.numpy()
    chosen = {
        "R": labels,
        "R:P": np.array([as_labelled((int(a), int(b)), row) for (a, b), row in zip(labels, guess, strict=True)]),
        "*R": np.column_stack([labels[:, 0], absent_class(labels, guess)]),
    }
    heads, cells = [], []
    drawn = {mark: decode(model, poses, chosen[mark]) for mark in marks}
    for n, mark in ((n, mark) for n in range(len(numbers)) for mark in marks):
        (a, b), (c, d) = chosen[mark][n], labels[n]
        heads.append(f"{mark}:({a}, {b})\nL:({c}, {d})")
        frame = None if {a, b} == {c, d} else VERMILLION
        images = batch.images[n].numpy(), overlay(drawn[mark][n]), overlay(batch.sources.images[n, :, 0].numpy())
        cells.append([Cell(images[0]), Cell(images[1], frame=frame), Cell(images[2])])
    inputs, decoded, truth = zip(*cells, strict=True)
    return [Row(inputs, "input", heads=heads, title=title), Row(decoded, "decoded"), Row(truth, "truth")]


def draw_overlaps(path: Path, boxes: dict[str, NDArray[np.float64]]) -> Path:
    fig, [[ax]] = panels(1, 1, 7.2, 4.0)
    values = 100 * boxes[TIGHT]
    heights, _, _ = ax.hist(values, bins=np.arange(0, 105, 5).tolist(), color=BLUE, edgecolor="white", linewidth=0.8)
    top = 1.35 * float(np.max(heights))
    ax.set(xlim=(0, 100), ylim=(0, top))
    box: dict[str, Any] = {"va": "top", "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1}}
    for name, colour, side in ((TIGHT, INK, -1), ("28x28 frames", VERMILLION, 1)):
        mean = 100 * float(boxes[name].mean())
        ax.axvline(mean, color=colour, linewidth=2, linestyle="-" if side < 0 else (0, (4, 2)))
        align = "right" if side < 0 else "left"
        text(ax, mean + 1.2 * side, 0.98 * top, f"{name}:\nmean {mean:.1f} %", TICK, colour, ha=align, **box)
    tidy(ax, "overlap of the two digits' tight bounding boxes, % of the smaller box", "test pairs")
    note = f"{len(values):,} test pairs; by area; the paper: 80 % on average"
    heading(ax, "How much the digits of a pair overlap", note)
    return save(fig, path, plot=True)
