"""Pages of pictures in rows: the layout that sweeps, galleries and examples share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from capsnet.drawing.style import INK, MUTED, canvas, pixels, save, text, tile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE, LINE = 10, 27  # of the words: points, and pixels from line to line


class Words(NamedTuple):
    """A line of text below a picture."""

    text: str
    colour: str = INK
    bold: bool = False


class Cell(NamedTuple):
    """One picture (C, H, W), the lines below it and the colour of its frame."""

    image: np.ndarray
    words: Sequence[Words] = ()
    frame: str | None = None


class Row(NamedTuple):
    """Pictures side by side, with words around them. Of a label or an end, the first line is bold."""

    cells: Sequence[Cell]
    label: str = ""  # left
    end: str = ""  # right
    heads: Sequence[str] = ()  # above each picture
    title: str = ""  # above all of them
    lines: Sequence[str] = ()  # left of the lines below the pictures


def picture_rows(
    path: str | Path, rows: Sequence[Row], title: str, note: str, *, size: int = 112, gap: int = 6, group: int = 0
) -> Path:
    """Draw rows of pictures, each of about ``size`` pixels squared; every ``group`` of them stand apart."""
    return save(picture_page(rows, title, note, size=size, gap=gap, group=group), path)


def picture_page(
    rows: Sequence[Row], title: str, note: str, *, size: int = 112, gap: int = 6, group: int = 0
) -> "Figure":
    """The figure of ``picture_rows``, not saved: a frame of an animation."""
    first = next(cell.image for row in rows for cell in row.cells)
    w, h = tile(first.shape[2], first.shape[1], size)
    places = [k * (w + gap) + (k // group * 24 if group else 0) for k in range(max(len(row.cells) for row in rows))]
    left = 28 + _width([row.label for row in rows] + [line for row in rows for line in row.lines])
    right = _width([row.end for row in rows])
    tops, y = [], 100.0
    for row in rows:
        y += 44 * bool(row.title) + LINE * max((1 + head.count("\n") for head in row.heads), default=0)
        tops.append(y)
        y += h + gap + LINE * max((len(cell.words) for cell in row.cells), default=0)
    fig, ax = canvas(left + places[-1] + w + right + 28, round(y) + 16, title, note)
    for row, y in zip(rows, tops, strict=True):
        above = y - LINE * max((1 + head.count("\n") for head in row.heads), default=0)
        text(ax, left, above - 10, row.title, SIZE + 1, weight="bold", va="bottom")
        _label(ax, left - 16, y + h / 2, row.label, "right")
        _label(ax, left + places[-1] + w + 12, y + h / 2, row.end, "left")
        for k, line in enumerate(row.lines):
            text(ax, left - 16, y + h + 5 + k * LINE, line, SIZE, MUTED, ha="right", va="top")
        for x, head in zip(places, row.heads, strict=False):
            text(ax, left + x + w / 2, y - 6, head, SIZE, ha="center", va="bottom")
        for x, cell in zip(places, row.cells, strict=False):
            _cell(ax, cell, left + x, y, w, h)
    return fig


def _cell(ax: "Axes", cell: Cell, x: float, y: float, w: int, h: int) -> None:
    from matplotlib.patches import Rectangle

    image = pixels(cell.image[None], 4)[0]
    smooth = "nearest" if w >= image.shape[1] else "antialiased"
    ax.imshow(image, extent=(x, x + w, y + h, y), aspect="auto", interpolation=smooth)
    if cell.frame is not None:
        ax.add_patch(Rectangle((x, y), w, h, fill=False, edgecolor=cell.frame, linewidth=2.5))
    for k, words in enumerate(cell.words):
        weight = "bold" if words.bold else "normal"
        text(ax, x + w / 2, y + h + 5 + k * LINE, words.text, SIZE, words.colour, ha="center", va="top", weight=weight)


def _label(ax: "Axes", x: float, y: float, label: str, side: str) -> None:
    first, _, rest = label.partition("\n")
    text(ax, x, y - 3 if rest else y, first, SIZE, ha=side, va="bottom" if rest else "center", weight="bold")
    text(ax, x, y + 3, rest, SIZE - 1, MUTED, ha=side, va="top")


def _width(labels: Sequence[str]) -> int:
    """Room for the longest line, in pixels."""
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    return 16 + 13 * longest if longest else 0
