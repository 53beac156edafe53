"""Pictures of two digits in two colours, and pages of them in columns: Figure 5 of *Dynamic Routing Between Capsules*.

The paper's red and green are one colour to many eyes; blue and orange are not, and these two add up to white where both
digits are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet.drawing.plots import LABEL
from capsnet.drawing.style import INK, MUTED, VERMILLION, canvas, frame, picture, save, text, tile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST, SECOND = np.array([0.0, 0.45, 1.0]), np.array([1.0, 0.55, 0.0])
SIDE, HEAD, GAP, APART, STEP, WORDS = 28, 104, 12, 30, 5, 66  # pixels; WORDS is the room for a column's two lines
ROWS = ("input", "decoded", "truth")
MARGIN = 108  # for the names of the rows


class Column(NamedTuple):
    """One answer, from top to bottom: what the network saw, what it drew, what was there."""

    image: NDArray  # (H, W)
    decoded: NDArray  # (2, H, W): what two capsules draw
    sources: NDArray  # (2, H, W): the two digits apart
    labels: tuple[int, int]
    drawn: tuple[int, int]  # classes of the two capsules
    mark: str = "R"  # as in the paper: R, R:P (the prediction), *R (a class that is not there)

    def words(self) -> str:
        return f"{self.mark}:({self.drawn[0]}, {self.drawn[1]})\nL:({self.labels[0]}, {self.labels[1]})"


class Block(NamedTuple):
    """Columns that belong together under one heading; every `group` of them stand closer."""

    title: str
    columns: Sequence[Column]
    group: int = 1

    def width(self, w: int) -> int:
        n = len(self.columns)
        return max(n * w + sum(self.space(k) for k in range(1, n)), 13 * len(self.title))

    def space(self, k: int) -> int:
        """How far column k stands from the one before it."""
        if self.group == 1:
            return GAP
        return 2 * GAP if k % self.group == 0 else STEP


def overlay(two: NDArray) -> NDArray:
    """Two grey pictures as one in colour: the first blue, the second orange, both white. (2, H, W) -> (H, W, 3)"""
    return np.clip(two[0][..., None] * FIRST + two[1][..., None] * SECOND, 0, 1)


def page(path: str | Path, bands: Sequence[Sequence[Block]], title: str, note: str) -> Path:
    """Blocks side by side in bands below each other."""
    some = next((block.columns[0] for band in bands for block in band if block.columns), None)
    height, width = some.image.shape if some is not None else (36, 36)
    w, h = tile(width, height, 144)
    tall = 40 + WORDS + 3 * (h + STEP) + 34
    wide = max(sum(block.width(w) + APART for block in band) - APART for band in bands)
    fig, ax = canvas(2 * SIDE + MARGIN + wide, HEAD + tall * len(bands), title, note)
    for n, band in enumerate(bands):
        x, y = SIDE + MARGIN, HEAD + n * tall
        for k, words in enumerate(ROWS):
            text(ax, x - 12, y + 40 + WORDS + k * (h + STEP) + h / 2, words, LABEL, MUTED, ha="right", va="center")
        for block in band:
            _block(ax, block, x, y, w, h)
            x += block.width(w) + APART
    return save(fig, path)


def _block(ax: "Axes", block: Block, x: float, y: float, w: int, h: int) -> None:
    text(ax, x, y, block.title, LABEL, INK, weight="bold", va="top")
    top = y + 40 + WORDS
    if not block.columns:
        text(ax, x, top, "none", LABEL, MUTED, va="top")
    for k, column in enumerate(block.columns):
        x += block.space(k) if k else 0
        wrong = set(column.drawn) != set(column.labels)
        text(ax, x + w / 2, top - 8, column.words(), LABEL, INK, ha="center", va="bottom", linespacing=1.25)
        grey = np.repeat(column.image[..., None], 3, axis=2)
        for row, rgb in enumerate((grey, overlay(column.decoded), overlay(column.sources))):
            picture(ax, rgb, x, top + row * (h + STEP), w, h)
        if wrong:
            frame(ax, x, top + h + STEP, w, h, VERMILLION, 2.5)
        x += w
