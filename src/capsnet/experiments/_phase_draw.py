"""Pictures of ``phase-routing``: each child as a tile in the colour of the parent to which it is most coupled."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capsnet.data import Batch
from capsnet.drawing.pictures import Cell, Row, picture_rows
from capsnet.drawing.plots import COLOURS, LABEL, Line, draw_line, panels, tidy
from capsnet.drawing.style import INK, MUTED, heading, save
from capsnet.experiments._report import Measure
from capsnet.inference.coupling import objects, traced
from capsnet.models import Model, child_centres

ZOOM = 4  # pixels of a drawn picture per pixel of the input
GREY = (0.45, 0.45, 0.45)  # the colour of all absent classes


def palette(classes: NDArray, J: int) -> NDArray:
    """The colour of each parent of one picture: one for each class that is present, grey for the others. -> (J, 3)"""
    from matplotlib.colors import to_rgb

    colours = np.tile(GREY, (J, 1))
    for k, j in enumerate(classes):
        colours[j] = to_rgb(COLOURS[k])
    return colours


def child_colours(couplings: NDArray, presence: NDArray, colours: NDArray) -> NDArray:
    """The colour of each child's largest coupling, paler the less it leads over an even split and the less present the
    child is. Shapes: (I, J), (I,), (J, 3) -> (I, 3)
    """
    J = couplings.shape[-1]
    lead = np.clip(couplings.max(axis=-1) - 1 / J, 0, None) / (1 - 1 / J)
    strength = lead * np.clip(presence / max(float(presence.max()), 1e-12), 0, 1) ** 0.5
    return 1 - strength[:, None] * (1 - colours[couplings.argmax(axis=-1)])


def frame(model: Model) -> list[tuple[int, int]]:
    """First and last pixel plus one, of rows and of columns, of an area with the picture and all children's squares."""
    field, grid = model.receptive_field, model.grid
    assert field is not None
    assert grid is not None
    corner = child_centres(model)[:, 0].numpy() - field.stride // 2  # of the first square
    sides = zip(corner.tolist(), grid[:2], model.image_size, strict=True)
    return [(min(0, low), max(size, low + field.stride * count)) for low, count, size in sides]


def tiles(model: Model, colours: NDArray) -> NDArray:
    """Children as tiles: the types of a position share the square around it. Shapes: (I, 3) -> (3, H, W), zoomed.

    H and W are those of ``frame``.
    """
    field, grid = model.receptive_field, model.grid
    assert field is not None
    assert grid is not None
    side = math.ceil(math.sqrt(grid[2]))
    corner = child_centres(model)[:, 0].numpy() - field.stride // 2
    chosen = []
    for first, (low, high) in zip(corner, frame(model), strict=True):
        place = (np.arange(low * ZOOM, high * ZOOM) / ZOOM - first) / field.stride
        chosen.append((np.floor(place).astype(int), np.floor(place % 1 * side).astype(int)))
    (y, v), (x, u) = chosen
    kind = v[:, None] * side + u
    inside = ((y >= 0) & (y < grid[0]))[:, None] & ((x >= 0) & (x < grid[1])) & (kind < grid[2])
    rows, columns = np.clip(y, 0, grid[0] - 1)[:, None], np.clip(x, 0, grid[1] - 1)
    picture = colours.reshape(*grid, 3)[rows, columns, np.minimum(kind, grid[2] - 1)]  # (H, W, 3)
    return np.where(inside[..., None], picture, 1.0).transpose(2, 0, 1)


def framed(ink: NDArray, model: Model) -> NDArray:
    """Pictures with the margins of ``frame``, zoomed. Shapes: (..., H, W) -> (..., H', W')"""
    margins = [(-low, high - size) for (low, high), size in zip(frame(model), model.image_size, strict=True)]
    wide = np.pad(ink, [(0, 0)] * (ink.ndim - 2) + margins)
    return wide.repeat(ZOOM, axis=-2).repeat(ZOOM, axis=-1)


def truth_picture(alone: NDArray, colours: NDArray) -> NDArray:
    """Each object's ink in its colour; both colours mix where objects overlap. (K, H, W), (K, 3) -> (3, H, W)"""
    paper = np.ones((3, *alone.shape[1:]))
    for ink, colour in zip(alone, colours, strict=True):
        paper = paper * (1 - ink * (1 - colour[:, None, None]))
    return paper


def phase_pictures(path: Path, models: Mapping[str, Model], batch: Batch, names: Sequence[str]) -> Path:
    """Pictures above what the children of each network are coupled to in the last iteration."""
    alone, classes = objects(batch)
    first = next(iter(models.values()))  # they differ in the routing only
    inks, every = framed(batch.images.amax(dim=1).numpy(), first), [palette(row, len(names)) for row in classes]
    between = " and " if max(map(len, names)) <= 2 else "\nand "
    heads = [between.join(names[int(j)] for j in row) for row in classes]
    known = [
        Cell(truth_picture(framed(one, first), colours[row]))
        for one, colours, row in zip(alone, every, classes, strict=True)
    ]
    rows = [Row(known, "objects", heads=heads)]
    for name, model in models.items():
        seen, cells = traced(model, batch.images), []
        for n, (ink, colours) in enumerate(zip(inks, every, strict=True)):
            picture = tiles(model, child_colours(seen.couplings[-1, n], seen.presence[n], colours))
            cells.append(Cell(picture * (1 - 0.3 * ink)))
        rows.append(Row(cells, name))
    note = (
        "a tile per child, in the colour of its largest coupling (grey: a class that is absent); white: undecided or "
    )
    return picture_rows(path, rows, "Which child goes to which object?", note + "faint", size=150, gap=10)


Curves = Mapping[str, Mapping[str, Sequence[Measure]]]  # by data set and routing, a number of each iteration


def share_panels(path: Path, shares: Curves, entropy: Curves, chance: Mapping[str, float]) -> Path:
    """A column per data set, over the iterations: the share of the children on an object that goes to its capsule, and
    the entropy of the couplings."""
    fig, [above, below] = panels(2, len(shares), 3.6, 3.2)
    for ax, (spec, lines) in zip(above, shares.items(), strict=True):
        draw_curves(ax, lines, 100)
        ax.axhline(chance[spec], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        tidy(ax, "", "to the object's capsule, %" if ax is above[0] else "")
    for ax, (spec, lines) in zip(below, entropy.items(), strict=True):
        draw_curves(ax, lines, 1.05)
        tidy(ax, f"{spec}: iteration", "entropy (1: undecided)" if ax is below[0] else "")
    note = "children on an object, weighted by presence; bands: 95 % interval; dashed: chance"
    heading(above[0], "How much of the children goes to their object?", note)
    handles, names = above[0].get_legend_handles_labels()
    fig.legend(handles, names, fontsize=LABEL, frameon=False, labelcolor=INK, loc="center", ncols=len(names))
    return save(fig, path, plot=True)


def draw_curves(ax: Any, lines: Mapping[str, Sequence[Measure]], top: float) -> None:
    """A line per routing, from iteration 1 on."""
    for n, (name, measures) in enumerate(lines.items()):
        draw_line(ax, n, Line.of(name, range(1, len(measures) + 1), measures))
    most = max(len(measures) for measures in lines.values())
    ax.set(ylim=(0, top), xlim=(0.8, most + 0.2), xticks=range(1, most + 1))
