"""The figures of a run: reconstructions, dimension sweep, confusion matrix, learning curves.

Each function takes arrays, writes one PNG and returns its path. Matplotlib is imported when a figure is drawn, and only
its object interface is used (no pyplot, no global figure list), so drawing is safe in a server or a thread. Files are
written whole or not at all. Colours are Okabe and Ito's, and no colour carries a meaning alone.

*Shapes*: images (N, C, H, W), floats in [0, 1] or integers in 0..255; C = 1 is grey, C = 3 RGB, else channel 0.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capsnet.drawing import style
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import log_axis, tidy
from capsnet.metrics import ArrayLike, as_array, multi_hot, top_k

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PICTURES = 48


def reconstructions(
    path: str | Path,
    images: ArrayLike,
    recon: ArrayLike,
    lengths: ArrayLike,
    targets: ArrayLike,
    class_names: Sequence[str] | None = None,
    threshold: float | None = None,
) -> Path:
    """Originals above what the network drew from its capsules, with label, prediction and capsule length.

    images, recon (N, C, H, W); lengths (N, J); targets (N,) or multi-hot (N, J), where the k longest capsules are the
    prediction, or, as in the metrics, all that reach the ``threshold``. A wrong answer is framed, crossed and bold.
    """
    above, below, scores = style.pixels(images, 4), style.pixels(recon, 4), as_array(lengths)
    shown, drawn = as_array(images), as_array(recon)
    if above.shape != below.shape or scores.ndim != 2 or len(above) != len(scores):
        raise ValueError(
            f"images {as_array(images).shape} and recon {as_array(recon).shape} must be equal in shape, (N, C, H, W), "
            f"and equal in length N to lengths {scores.shape}, which must be (N, J)"
        )
    if len(above) > MAX_PICTURES:
        raise ValueError(f"at most {MAX_PICTURES} pictures are readable in one figure, got {len(above)}: pass fewer")
    truth = multi_hot(targets, *scores.shape)  # (N, J)
    several = threshold is not None and as_array(targets).ndim == 2
    guess = scores >= threshold if several else top_k(scores, np.maximum(truth.sum(axis=1), 1))  # (N, J)
    right = (truth == guess).all(axis=1)  # (N,)
    names = style.label_classes(class_names, scores.shape[1])

    N = len(above)
    columns = math.ceil(N / math.ceil(N / 8))
    size = min(max(140, 720 // columns - 18), 224)  # a few pictures may be larger
    w = style.tile(above.shape[2], above.shape[1], size)[0]
    beside = not several and truth.sum(axis=1).max() <= 1 and max(map(len, names)) <= 3  # answer and length in a line
    rows = []
    for start in range(0, N, columns):
        heads, lower = [], []
        for n in range(start, min(start + columns, N)):
            chosen = sorted(np.flatnonzero(guess[n]), key=lambda j: -scores[n, j])
            heads.append(style.wrap(", ".join(names[j] for j in np.flatnonzero(truth[n])) or "none", w))
            answer = ("" if right[n] else "✗ ") + style.wrap(", ".join(names[j] for j in chosen) or "none", w)
            numbers = ", ".join(f"{scores[n, j]:.2f}" for j in chosen)
            words = [f"{answer}  {numbers}"] if beside else [*answer.split("\n"), numbers]
            lower.append(
                Cell(
                    drawn[n],
                    [Words(line, style.INK if right[n] else style.VERMILLION, not right[n]) for line in words],
                    None if right[n] else style.VERMILLION,
                )
            )
        rows += [Row([Cell(image) for image in shown[start : start + columns]], heads=heads), Row(lower)]
    title = f"Reconstructions: {right.sum()} of {N} classified correctly"
    note = "above: input and its label  ·  below: decoded, with prediction and capsule length"
    return picture_rows(path, rows, title, note, size=size, gap=12)


def dimension_sweep(path: str | Path, pictures: ArrayLike, offsets: ArrayLike, title: str = "Dimension sweep") -> Path:
    """What each dimension of one capsule means: Sabour et al. 2017, Figure 4.

    pictures (D, S, C, H, W): row d shows the decoder's output while only dimension d is moved by offsets (S,),
    -0.25 ... +0.25 in the paper. The column where nothing is moved is framed: it is the same picture in every row.
    """
    tiles, moves = as_array(pictures), as_array(offsets)
    style.pixels(tiles, 5)
    if moves.shape != (S := tiles.shape[1],):
        raise ValueError(f"offsets must be (S,) = ({S},) for pictures with S = {S} columns, got shape {moves.shape}")
    frames = [style.ORANGE if abs(offset) < 1e-9 else None for offset in moves]
    rows = []
    for d, row in enumerate(tiles):
        cells = [Cell(image, frame=frame) for image, frame in zip(row, frames, strict=True)]
        rows.append(Row(cells, f"dim {d}", heads=() if d else [style.signed(offset) for offset in moves]))
    note = "each row moves one dimension of the capsule's pose and decodes it"
    return picture_rows(path, rows, title, note, size=84, gap=4)


def confusion_matrix(path: str | Path, matrix: ArrayLike, class_names: Sequence[str] | None = None) -> Path:
    """Counts (J, J) of true (row) and predicted (column) classes.

    A good model's diagonal is a thousand times its errors: no common colour scale would show them. The diagonal is
    plain grey, and an error is shaded by its share of the true class (its row) on a logarithmic scale.
    """
    from matplotlib.colors import LinearSegmentedColormap, ListedColormap, LogNorm

    counts = as_array(matrix)
    J = len(counts) if counts.ndim else 0
    if counts.shape != (J, J) or not J or not (counts >= 0).all() or not counts.sum():
        raise ValueError(f"a confusion matrix must be (J, J) with counts >= 0, not all 0, got shape {counts.shape}")
    names = [style.short(name, 24) for name in style.label_classes(class_names, J)]
    total, hits, diagonal = counts.sum(), np.trace(counts), np.eye(J, dtype=bool)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    share = np.ma.masked_where((counts == 0) | diagonal, share)

    side = min(12.0, max(5.6, 0.28 * J)) if J > 3 else 1.4 * J + 0.6  # of the matrix, in inches
    cell, zoom = 72 * side / J, max(1.0, side / 7)  # points; large matrices get larger words around them
    fig = style.figure(side + 1, side)
    ax = fig.add_axes((0, 0, side / (side + 1), 1))
    colours = LinearSegmentedColormap.from_list("errors", ["#FFF1E6", "#F6B27A", style.VERMILLION, "#8A3C00"])
    edges, grid = np.arange(J + 1) - 0.5, {"edgecolors": "white", "linewidth": 0.02 * cell}
    norm = LogNorm(min(0.001, share.min()) if share.count() else 0.001, 1)
    ax.pcolormesh(edges, edges, np.ma.masked_where(~diagonal, diagonal), cmap=ListedColormap([style.FAINT]), **grid)
    shades = ax.pcolormesh(edges, edges, share, cmap=colours, norm=norm, **grid)
    ax.set(xlim=edges[[0, -1]], ylim=edges[[-1, 0]])
    font = min(style.BODY + 2, 0.4 * cell, 1.35 * cell / len(f"{counts.max():,}"))
    for i, j in np.argwhere(counts > 0) if font >= 4 else ():
        ink = "white" if i != j and share[i, j] > 0.1 else style.INK
        style.text(ax, j, i, f"{counts[i, j]:,}", font, ink, ha="center", va="center")
    size = min(style.BODY, 0.5 * cell)
    turn = 90 if max(map(len, names)) * size * 0.65 > cell else 0  # names that would overlap are rotated
    ax.set_xticks(range(J), names, fontsize=size, rotation=turn, parse_math=False)
    ax.set_yticks(range(J), names, fontsize=size, parse_math=False)
    ax.tick_params(colors=style.INK, length=0, which="both")
    ax.spines[:].set_color(style.FAINT)
    ax.set_xlabel("predicted", fontsize=style.BODY * zoom, color=style.MUTED)
    ax.set_ylabel("true", fontsize=style.BODY * zoom, color=style.MUTED)
    bar = fig.colorbar(shades, cax=fig.add_axes(((side + 0.2) / (side + 1), 0, 0.14 / (side + 1), 1)))
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    bar.ax.tick_params(labelsize=style.SMALL * zoom, colors=style.MUTED, length=0, which="both")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    note = "grey: correct  ·  orange: wrong, by share of the true class"
    style.heading(ax, f"Confusion matrix: {100 * hits / total:.2f} % of {total:,} correct", note, zoom)
    return style.save(fig, path, plot=True)


def learning_curves(path: str | Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """Loss, error and learning rate over the epochs, from records of ``metrics.jsonl``.

    Reads, where present, epoch, {train,val,test}_{loss,accuracy,error} and lr; missing or non-finite values are left
    out. Accuracy a is drawn as the error 1 - a, on a logarithmic axis: 99.2 and 99.6 % are a factor of two apart.
    """
    losses = {split: _series(records, f"{split}_loss") for split in _SPLITS}
    errors = {split: _series(records, f"{split}_error", f"{split}_accuracy") for split in _SPLITS}
    panels = [("Loss", losses), ("Error", errors), ("Learning rate", {"lr": _series(records, "lr")})]
    panels = [(name, {key: xy for key, xy in curves.items() if len(xy)}) for name, curves in panels]
    panels = [(name, curves) for name, curves in panels if curves]
    if not panels:
        raise ValueError(f"none of the {len(records)} records holds a loss, an accuracy, an error or an lr to draw")
    fig = style.figure(4.2 * len(panels), 3.2)
    for n, (name, curves) in enumerate(panels):
        ax = fig.add_axes(((n + 0.13) / len(panels), 0.14, 0.74 / len(panels), 0.68))
        _panel(ax, name, curves)
    return style.save(fig, path, plot=True)


# --- learning curves -------------------------------------------------------------------------------------------------

_SPLITS = {
    "train": (style.BLUE, "s", "white"),
    "val": (style.VERMILLION, "o", style.VERMILLION),
    "test": (style.INK, "^", style.INK),
}


def _series(records: Sequence[Mapping[str, Any]], key: str, complement: str = "") -> np.ndarray:
    """The (epoch, value) pairs that records have for ``key``, or for 1 - ``complement``: (n, 2)."""
    points = []
    for n, record in enumerate(records):
        value = record.get(key)
        if value is None and record.get(complement) is not None:
            value = 1 - record[complement]
        x = record.get("epoch", n + 1)
        if isinstance(value, int | float) and isinstance(x, int | float) and math.isfinite(value):
            points.append((x, value))
    return np.array(sorted(points), dtype=float).reshape(-1, 2)


def _panel(ax: "Axes", name: str, curves: Mapping[str, np.ndarray]) -> None:
    from matplotlib.ticker import MaxNLocator

    factor, unit = (100, " %") if name == "Error" else (1, "")
    for key, xy in curves.items():
        colour, marker, fill = _SPLITS.get(key, (style.INK, "", style.INK))
        sparse = max(1, len(xy) // 12)  # markers tell the curves apart where colour does not
        marks: dict[str, Any] = {"marker": marker, "markersize": 5, "markerfacecolor": fill, "markevery": sparse}
        ax.plot(xy[:, 0], factor * xy[:, 1], color=colour, linewidth=1.6, label=key, clip_on=False, **marks)
    points = np.concatenate(list(curves.values()))
    if name == "Learning rate" or len(points) < 3 or points[:, 1].min() <= 0:
        ax.set_ylim(min(0, factor * points[:, 1].min()), 1.1 * factor * points[:, 1].max() or 1)
        ax.yaxis.set_major_locator(MaxNLocator(5))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}{unit}")
    else:
        log_axis(ax, unit)
    ax.set_xlim(points[:, 0].min() - 0.5, points[:, 0].max() + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    tidy(ax, "epoch", "")
    key = "val" if "val" in curves else next(iter(curves))
    best = curves[key][curves[key][:, 1].argmin()]
    if name == "Learning rate":
        style.heading(ax, name, f"highest: {points[:, 1].max():.3g}")
    else:
        style.heading(ax, name, f"lowest {key}: {factor * best[1]:.3g}{unit}, epoch {best[0]:g}")
        ax.legend(fontsize=style.SMALL, frameon=False, labelcolor=style.INK)
