"""Two pictures of a study: how it went, and which settings mattered."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from capsnet.drawing.style import (
    BLUE,
    BODY,
    FAINT,
    INK,
    MUTED,
    ORANGE,
    SMALL,
    VERMILLION,
    figure,
    heading,
    save,
    text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Point(NamedTuple):
    """One finished trial, in the order in which they ended."""

    number: int
    accuracy: float
    kind: str  # complete, pruned or default
    whole: bool  # ran to its end; the recipe's own values may diverge, too


LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": ("ran to its end", {"marker": "o", "color": BLUE}),
    "pruned": ("pruned", {"marker": "x", "color": MUTED}),
    "default": ("the recipe's own values", {"marker": "D", "color": ORANGE}),
}


def history(path: str | Path, points: Sequence[Point], title: str) -> Path:
    """Validation error of the trials one after the other, and the lowest so far. Errors are drawn on a logarithmic
    axis where none is zero: 99.2 and 99.6 % are a factor of two apart."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    fig = figure(7.2, 4.0)
    ax = fig.add_axes((0.11, 0.14, 0.85, 0.68))
    errors = [100 * (1 - point.accuracy) for point in points]
    for kind, (label, look) in LOOKS.items():
        at = [n for n, point in enumerate(points) if point.kind == kind]
        if at:
            ax.scatter([n + 1 for n in at], [errors[n] for n in at], s=34, label=label, zorder=3, **look)
    lowest = lowest_so_far(points)
    ax.step(range(1, len(points) + 1), lowest, where="post", color=VERMILLION, linewidth=1.6, label="lowest so far")
    if min(errors) > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g} %")
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set_xlim(0.5, len(points) + 0.5)
    ax.set_xlabel("trials, as they ended", fontsize=BODY, color=MUTED)
    _plain(ax, "y")
    ax.legend(fontsize=SMALL, frameon=False, labelcolor=INK)
    heading(ax, title, "validation error" + (f"  ·  lowest: {lowest[-1]:.3g} %" if lowest[-1] < math.inf else ""))
    return save(fig, path, plot=True)


def lowest_so_far(points: Sequence[Point]) -> list[float]:
    """The lowest error, in %, of those that ran to their end, after each trial; NaN (no line) before the first such."""
    lowest, best = [], math.inf
    for point in points:
        if point.whole:
            best = min(100 * (1 - point.accuracy), best)
        lowest.append(best if best < math.inf else math.nan)
    return lowest


def importance(path: str | Path, shares: Mapping[str, float], title: str, note: str) -> Path:
    """How much of what separates good trials from the others each setting accounts for."""
    fig = figure(7.2, 0.9 + 0.36 * len(shares))
    ax = fig.add_axes((0.3, 0.12, 0.6, 0.7))
    names = list(shares)[::-1]
    ax.barh(range(len(names)), [shares[name] for name in names], color=BLUE, height=0.62)
    ax.set_yticks(range(len(names)), names, fontsize=BODY, parse_math=False)
    most = max(shares.values()) or 1
    for n, name in enumerate(names):
        text(ax, shares[name] + 0.015 * most, n, f"{shares[name]:.0%}", SMALL, MUTED, va="center")
    ax.set_xlim(0, 1.12 * most)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    _plain(ax, "x")
    heading(ax, title, note)
    return save(fig, path, plot=True)


def _plain(ax: "Axes", along: Any) -> None:
    ax.grid(axis=along, color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left" if along == "y" else "bottom"]].set_visible(False)
    ax.spines["bottom" if along == "y" else "left"].set_color(MUTED)
    ax.tick_params(labelsize=SMALL, colors=MUTED, length=0, which="both")
