"""Figure 5 of *Dynamic Routing Between Capsules*: two overlapping digits, taken apart again by the decoder.

The paper shows MultiMNIST test pairs above the reconstructions of two class capsules in two colours. `L:(2, 7)` are the
labels of the pair, `R:(2, 7)` the classes that were decoded. Where the network errs, both its prediction (`R:P`) and
the labels are decoded; a star marks a class that is neither label nor prediction.

The claim to look at: each capsule has picked out the style and place of *its own* digit, even where nearly all of it is
covered by the other, and a capsule whose digit is not there does not draw whatever fits the picture best.

Beside the pictures this measures what they suggest: how far the drawing of the true class is from the digit as it was
before the two were merged, against the drawing of a class that is not there. The paper says that the boxes of its
digits overlap by 80 % on average; here that is measured too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet import data
from capsnet.data import Pairs
from capsnet.drawing.plots import TICK, tidy
from capsnet.drawing.style import BLUE, INK, VERMILLION, figure, heading, save, text
from capsnet.experiments import _nets, table1
from capsnet.experiments._overlays import Block, Column, page
from capsnet.experiments._report import Measure, Report, error_measure
from capsnet.experiments.lab import Lab, device_of, share
from capsnet.inference import evaluating
from capsnet.metrics import top_k
from capsnet.models import Model
from capsnet.training import TrainConfig

TITLE = "Figure 5: overlapping digits, reconstructed apart"
RIGHT, ABSENT, WRONG = 6, 4, 4  # columns of each kind
TIGHT = "tight boxes"
SQUARES = {"20x20 boxes": 20, "28x28 frames": 28}  # the box that bounds a digit of MNIST, and the picture it comes in


def plan(lab: Lab) -> list[TrainConfig]:
    return [table1.config(lab, "multimnist", table1.BEST, 0)]


def run(lab: Lab) -> Report:
    trained = lab.train(plan(lab)[0])
    pairs = data.load("multimnist", "test")
    assert isinstance(pairs, Pairs)
    count = min(len(pairs), lab.pick(200, 4000, 10_000))
    found = lab.remember("apart", lambda: take_apart(trained.model, pairs, count), run=trained.folder, pairs=count)
    boxes = overlap_of(pairs, len(pairs))
    report = Report(differs=_nets.differences(lab, plan(lab)), raw={"pairs": found, "run": trained.folder.name})
    report.measures = measures(share(trained.test), found, boxes)
    report.findings = findings(found, boxes)
    report.differs += [
        "The pairs shown are not picked by hand: they are the first of each kind among the test pairs.",
        "The paper's red and green are blue and orange here, which colour-blind readers can tell apart.",
    ]
    report.raw["overlap"] = {name: float(values.mean()) for name, values in boxes.items()}
    report.draw(
        draw_pairs(lab, trained.model, pairs, found, count),
        "Test pairs, the two reconstructions laid over each other, and the two digits before they were merged. The "
        "first class of a label is blue, the second orange, both together white. Framed: what was decoded is not what "
        "is there.",
    )
    report.draw(
        draw_overlaps(lab, boxes),
        "How much the digits of a test pair overlap: area of the intersection of their tight bounding boxes over that "
        "of the smaller box.",
    )
    return report


def take_apart(model: Model, pairs: Pairs, count: int) -> dict[str, Any]:
    """Decode the true classes and an absent one for the first `count` pairs, and find examples of each kind.

    Errors are squared differences summed over a digit's picture, as in the loss, averaged over the digits. `black` is
    the error of drawing nothing, for scale.
    """
    sums = {"true": 0.0, "absent": 0.0, "black": 0.0}
    right: list[bool] = []
    for start in range(0, count, 250):
        batch = pairs.batch(np.arange(start, min(start + 250, count)))
        assert batch.sources is not None
        poses, guess = answer(model, batch.images)
        classes = batch.sources.classes  # (B, 2)
        missing = absent_class(classes.numpy(), guess)
        drawn = decode(model, poses, np.column_stack([classes.numpy(), missing]))  # (B, 3, H, W)
        truth = batch.sources.images[:, :, 0].numpy()  # (B, 2, H, W)
        sums["true"] += float(np.square(drawn[:, :2] - truth).sum())
        sums["absent"] += float(np.square(drawn[:, 2:] - truth).sum())
        sums["black"] += float(np.square(truth).sum())
        right += (guess == batch.targets.numpy().astype(bool)).all(axis=1).tolist()
    errors = {name: total / (2 * count) for name, total in sums.items()}
    return {"error": errors, "right": int(np.sum(right)), "count": count, "shown": first_of_each(np.array(right))}


def first_of_each(right: NDArray[np.bool_]) -> dict[str, list[int]]:
    """Which pairs are shown: the first that are right, those after them for absent classes, the first wrong."""
    good, bad = np.flatnonzero(right), np.flatnonzero(~right)
    shown = {"right": good[:RIGHT], "absent": good[RIGHT : RIGHT + ABSENT], "wrong": bad[:WRONG]}
    return {kind: [int(n) for n in numbers] for kind, numbers in shown.items()}


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


def measures(share: dict[str, Any], found: dict[str, Any], boxes: dict[str, NDArray]) -> list[Measure]:
    error = found["error"]
    what, area = "squared error per digit, summed over its pixels", "intersection over the smaller, by area"
    return [
        error_measure(
            "MultiMNIST test error, both digits must be right", [share], table1.PUBLISHED["multimnist", table1.BEST]
        ),
        Measure("decoding the true classes", [error["true"]], "", note=what),
        Measure("decoding a class that is not there", [error["absent"]], "", note=what),
        Measure("a black picture", [error["black"]], "", note=what),
        *(
            Measure(f"mean overlap of the digits' {name}", [100 * float(values.mean())], "%", "80", note=area)
            for name, values in boxes.items()
        ),
    ]


def findings(found: dict[str, Any], boxes: dict[str, NDArray]) -> list[str]:
    """What the numbers say, whichever way they fall."""
    true, absent, black = (found["error"][name] for name in ("true", "absent", "black"))
    better = "closer to its own digit than" if true < absent else "*no* closer to its own digit than"
    means = {name: 100 * float(values.mean()) for name, values in boxes.items()}
    nearest = min(means, key=lambda name: abs(means[name] - 80))
    return [
        f"A true class's drawing is {better} an absent class's: squared error {true:.1f} against {absent:.1f}, over "
        f"{found['count']:,} test pairs. A black picture would have {black:.1f}, so the true class "
        f"{'explains' if true < black else 'is *no* better than nothing: it explains'} "
        f"{100 * (1 - true / black):.0f} % of its digit and the absent one {100 * (1 - absent / black):.0f} %.",
        "By area, the digits overlap by "
        + ", ".join(f"{mean:.1f} % ({name})" for name, mean in means.items())
        + f" on average. The paper says 80 % of their 20x20 boxes; nearest to that are the {nearest}.",
    ]


def overlap_of(pairs: Pairs, count: int) -> dict[str, NDArray[np.float64]]:
    """How much the first `count` pairs overlap: their tight boxes, and squares of two sizes about each centre."""
    parts = [np.arange(start, min(start + 2000, count)) for start in range(0, count, 2000)]
    offsets = pairs.offsets(pairs.numbers(np.arange(count)))  # (N, 2, 2)
    apart = np.abs(offsets[:, 0] - offsets[:, 1])  # (N, 2)
    squares = {name: np.clip(1 - apart / side, 0, None).prod(axis=1) for name, side in SQUARES.items()}
    return {TIGHT: np.concatenate([pairs.overlaps(part) for part in parts])} | squares


def draw_pairs(lab: Lab, model: Model, pairs: Pairs, found: dict[str, Any], count: int) -> Path:
    shown = found["shown"]
    right = Block("both right", columns(model, pairs, shown["right"], ["R"]))
    absent = Block("* a class that is not there", columns(model, pairs, shown["absent"], ["*R"]))
    wrong = columns(model, pairs, shown["wrong"], ["R:P", "R"])
    bands = [[right, absent], [Block("wrong: decoded as predicted (P), beside it as labelled", wrong, 2)]]
    title = "Two digits, taken apart by two capsules"
    note = (
        f"the first of each kind among {count:,} test pairs  ·  L: labels, R: decoded classes; first blue, second "
        "orange  ·  framed: not what is there"
    )
    return page(lab.figure("pairs.png"), bands, title, note)


def columns(model: Model, pairs: Pairs, numbers: list[int], marks: list[str]) -> list[Column]:
    """The columns of some pairs: for each, one per mark."""
    if not numbers:
        return []
    batch = pairs.batch(numbers)
    assert batch.sources is not None
    poses, guess = answer(model, batch.images)
    labels = batch.sources.classes.numpy()
    chosen = {
        "R": labels,
        "R:P": np.array([as_labelled((int(a), int(b)), row) for (a, b), row in zip(labels, guess, strict=True)]),
        "*R": np.column_stack([labels[:, 0], absent_class(labels, guess)]),
    }
    drawn = {mark: decode(model, poses, chosen[mark]) for mark in marks}
    images, sources = batch.images[:, 0].numpy(), batch.sources.images[:, :, 0].numpy()
    return [
        Column(images[n], drawn[mark][n], sources[n], two(labels[n]), two(chosen[mark][n]), mark)
        for n in range(len(numbers))
        for mark in marks
    ]


def two(classes: NDArray[np.int64]) -> tuple[int, int]:
    return int(classes[0]), int(classes[1])


def draw_overlaps(lab: Lab, boxes: dict[str, NDArray[np.float64]]) -> Path:
    fig = figure(7.2, 4.0)
    ax = fig.add_axes((0.11, 0.14, 0.84, 0.68))
    values = 100 * boxes[TIGHT]
    heights, _, _ = ax.hist(values, bins=np.arange(0, 105, 5).tolist(), color=BLUE, edgecolor="white", linewidth=0.8)
    top = 1.35 * float(np.max(heights))
    ax.set(xlim=(0, 100), ylim=(0, top))
    tight, frames = float(values.mean()), 100 * float(boxes["28x28 frames"].mean())
    ax.axvline(tight, color=INK, linewidth=2)
    ax.axvline(frames, color=VERMILLION, linewidth=2, linestyle=(0, (4, 2)))
    paper: dict[str, Any] = {"va": "top", "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1}}
    text(ax, tight - 1.2, 0.98 * top, f"tight boxes:\nmean {tight:.1f} %", TICK, INK, ha="right", **paper)
    text(ax, frames + 1.2, 0.98 * top, f"28x28 frames:\nmean {frames:.1f} %", TICK, VERMILLION, ha="left", **paper)
    tidy(ax, "overlap of the two digits' tight bounding boxes, % of the smaller box", "test pairs")
    heading(
        ax, "How much the digits of a pair overlap", f"{len(values):,} test pairs; by area; the paper: 80 % on average"
    )
    return save(fig, lab.figure("overlap.png"), plot=True)
