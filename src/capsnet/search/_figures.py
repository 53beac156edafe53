"""Two figures of a study: how it went, and which settings mattered."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capsnet.drawing.plots import tidy
from capsnet.drawing.style import BLUE, BODY, FAINT, INK, MUTED, ORANGE, SMALL, VERMILLION, figure, heading, save, text


class Point(NamedTuple):
    """One finished trial."""

    accuracy: float
    kind: str  # complete, pruned or default
    whole: bool  # ran to the end


LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": ("ran to the end", {"marker": "o", "color": BLUE}),
    "pruned": ("pruned", {"marker": "x", "color": MUTED}),
    "default": ("the recipe's own values", {"marker": "D", "color": ORANGE}),
}


def history(path: str | Path, points: Sequence[Point], title: str) -> Path:
    """Validation error of the trials in the order in which they ended, and the lowest so far.

    The axis is logarithmic if no error is zero: accuracies of 99.2 and 99.6 % are a factor of two apart.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    fig = figure(7.2, 4.0)
    ax = fig.add_axes((0.11, 0.14, 0.85, 0.68))
    errors = [100 * (1 - point.accuracy) for point in points]
    for kind, (label, look) in LOOKS.items():
        if places := [n for n, point in enumerate(points, 1) if point.kind == kind]:
            ax.scatter(places, [errors[n - 1] for n in places], s=34, label=label, zorder=3, **look)
    lowest = lowest_so_far(points)
    ax.step(range(1, len(points) + 1), lowest, where="post", color=VERMILLION, linewidth=1.6, label="lowest so far")
    if min(errors) > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g} %")
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set_xlim(0.5, len(points) + 0.5)
    tidy(ax, "trials, in the order in which they ended", "")
    ax.legend(fontsize=SMALL, frameon=False, labelcolor=INK)
    heading(ax, title, "validation error" + (f"  ·  lowest: {lowest[-1]:.3g} %" if lowest[-1] < math.inf else ""))
    return save(fig, path, plot=True)


def lowest_so_far(points: Sequence[Point]) -> list[float]:
    """The lowest error in % of the trials that ran to the end, after each trial; NaN (no line) before the first."""
    errors = [100 * (1 - point.accuracy) if point.whole else math.inf for point in points]
    lowest = [min(errors[: n + 1]) for n in range(len(errors))]
    return [value if value < math.inf else math.nan for value in lowest]


def importance(path: str | Path, values: Mapping[str, float], title: str, note: str) -> Path:
    """How much of the difference between good trials and the others each setting accounts for."""
    fig = figure(7.2, 0.9 + 0.36 * len(values))
    ax = fig.add_axes((0.3, 0.12, 0.6, 0.7))
    names, largest = list(values)[::-1], max(values.values()) or 1
    ax.barh(range(len(names)), [values[name] for name in names], color=BLUE, height=0.62)
    for n, name in enumerate(names):
        text(ax, values[name] + 0.015 * largest, n, f"{values[name]:.0%}", SMALL, MUTED, va="center")
    tidy(ax, "", "")
    ax.set_yticks(range(len(names)), names, fontsize=BODY, parse_math=False)
    ax.set_xlim(0, 1.12 * largest)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.grid(visible=False, axis="y")
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
    heading(ax, title, note)
    return save(fig, path, plot=True)
