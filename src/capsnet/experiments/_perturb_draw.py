"""The two pictures of what a capsule's dimensions mean: measured sweeps, and a chart of every effect."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from capsnet.drawing.style import (
    BLUE,
    BODY,
    FAINT,
    INK,
    MUTED,
    ORANGE,
    VERMILLION,
    canvas,
    figure,
    frame,
    picture,
    pixels,
    save,
    signed,
    text,
    tile,
)
from capsnet.experiments._strokes import PROPERTIES, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from capsnet.experiments.perturb import Effects

MINUS = "\u2212"
FULL = 3.0  # strength that fills a cell


def measured_sweep(
    path: str | Path,
    strips: Tensor,
    rows: Sequence[tuple[int, int]],
    found: Sequence["Effects"],
    offsets: Sequence[float],
) -> Path:
    """A row of decoded pictures per property, with its numbers. Shapes: strips (P, S, H, W); rows: class, dimension"""
    P, S, H, W = strips.shape
    ends = measure(strips[:, [0, -1]])  # (P, 2, P)
    tiles = pixels(strips[:, :, None].numpy(), 5)
    w, h = tile(W, H, 84)
    left, right, head, gap, between = 250, 330, 128, 4, 14
    step = h + between
    note = (
        "one dimension of one capsule is moved from left to right; everything else stays (y position counts downwards)"
    )
    fig, ax = canvas(left + S * (w + gap) + right, head + P * step + 12, "What a dimension means, measured", note)
    for s, offset in enumerate(offsets):
        x, still = left + s * (w + gap), abs(offset) < 1e-9
        text(
            ax,
            x + w / 2,
            head - 10,
            signed(offset),
            BODY,
            ha="center",
            va="bottom",
            weight="bold" if still else "normal",
        )
        for p in range(P):
            picture(ax, tiles[p, s], x, head + p * step, w, h)
        if still:
            frame(ax, x - gap / 2, head - gap / 2, w + gap, P * step - between + gap, ORANGE, 2)
    for p, (label, dim) in enumerate(rows):
        prop, one, y = PROPERTIES[p], found[label], head + p * step + h / 2
        text(ax, left - 16, y - 3, prop.name, 11, ha="right", va="bottom", weight="bold")
        text(ax, left - 16, y + 3, f"digit {label}, dimension {dim}", BODY, MUTED, ha="right", va="top")
        x, (before, after) = left + S * (w + gap) + 12, ends[p, :, p].tolist()
        words = f"{before:.1f} to {after:.1f} {prop.unit}".replace("-", MINUS)
        text(ax, x, y - 3, words, 11, va="bottom", weight="bold")
        words = f"all digits {label}: {one.effect[dim, p]:+.1f}, r {one.r[dim, p]:+.2f}".replace("-", MINUS)
        text(ax, x, y + 3, words, BODY, MUTED, va="top")
    return save(fig, path)


def meanings(path: str | Path, found: Sequence["Effects"], steady: float, class_names: Sequence[str]) -> Path:
    """Every effect of every dimension: a chart per class after Hinton's diagrams, size for strength."""
    columns = 5
    lines = -(-len(found) // columns)
    wide, tall, head = 2.5, 4.1, 1.15  # inches
    page_w, page_h = columns * wide + 0.6, head + lines * tall + 0.25
    fig = figure(page_w, page_h)
    page = fig.add_axes((0, 0, 1, 1))
    page.set(xlim=(0, page_w), ylim=(page_h, 0))
    page.set_axis_off()
    text(page, 0.2, 0.18, "What each dimension of each digit capsule does", 16, weight="bold", va="top")
    _legend(page, 0.2, 0.72, steady)
    for n, one in enumerate(found):
        x, y = 0.62 + n % columns * wide, head + n // columns * tall + 0.3
        w, h = wide - 0.3, tall - 1.1
        ax = fig.add_axes((x / page_w, 1 - (y + h) / page_h, w / page_w, h / page_h))
        _chart(ax, one, steady)
        if n % columns == 0:
            ax.set_ylabel("dimension", fontsize=11, color=MUTED, labelpad=1)
        ax.set_title(f"digit {class_names[n]}", fontsize=13, color=INK, weight="bold", pad=5)
        ax.set_yticks(range(len(one.r)), [str(d) for d in range(len(one.r))] if n % columns == 0 else [""] * len(one.r))
    return save(fig, path)


def _legend(page: "Axes", x: float, y: float, steady: float) -> None:
    page.scatter([x + 0.1], [y], s=110, marker="s", color=BLUE)
    text(page, x + 0.3, y, "more of it as the dimension grows", 11, va="center")
    page.scatter([x + 3.5], [y], s=80, marker="s", facecolors="white", edgecolors=VERMILLION, linewidths=2.2)
    text(page, x + 3.7, y, "less of it", 11, va="center")
    page.scatter([x + 5.0], [y], s=60, marker="s", color=FAINT)
    text(page, x + 5.2, y, f"unsteady (|r| < {steady:g})", 11, va="center")
    text(
        page,
        x + 7.4,
        y,
        "size: change over the sweep beside the 16 dimensions' mean",
        11,
        MUTED,
        va="center",
    )


def _chart(ax: "Axes", one: "Effects", steady: float) -> None:
    from matplotlib.patches import Rectangle

    D, P = one.r.shape
    ax.set(xlim=(-0.5, P - 0.5), ylim=(D - 0.5, -0.5))
    ax.set_xticks(range(P), [p.name for p in PROPERTIES], rotation=60, fontsize=10.5, color=INK, ha="right",
                  rotation_mode="anchor")  # fmt: skip
    ax.tick_params(length=0, labelsize=10.5, colors=MUTED)
    ax.spines[:].set_color(FAINT)
    ax.set_xticks(np.arange(P - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(D - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="#F0F0F0", linewidth=0.8)
    ax.tick_params(which="minor", length=0)
    for d, p in np.ndindex(D, P):
        side = 0.94 * float(np.sqrt(min(1.0, abs(one.strength[d, p]) / FULL)))  # the area is the strength
        if side < 0.08:
            continue
        sure, more = abs(one.r[d, p]) >= steady, one.strength[d, p] > 0
        colour = (BLUE if more else VERMILLION) if sure else FAINT
        inner = side if more else max(0.02, side - 0.12)
        box = Rectangle((p - inner / 2, d - inner / 2), inner, inner, linewidth=0 if more else 1.6)
        box.set(facecolor=colour if more else "white", edgecolor=colour)
        ax.add_patch(box)
