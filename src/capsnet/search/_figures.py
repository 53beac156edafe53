"""Two figures of a study: how it went, and which settings mattered."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from capsnet.drawing import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Point(NamedTuple):
    """One finished trial."""

    accuracy: float
    kind: str  # complete, pruned or default
    whole: bool  # ran to the end


LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": ("ran to the end", {"marker": "o", "color": style.BLUE}),
    "pruned": ("pruned", {"marker": "x", "color": style.MUTED}),
    "default": ("the recipe's own values", {"marker": "D", "color": style.ORANGE}),
}


def history(path: str | Path, points: Sequence[Point], title: str) -> Path:
    """Validation error of the trials in the order in which they ended, and the lowest so far.

    The axis is logarithmic if no error is zero: accuracies of 99.2 and 99.6 % are a factor of two apart.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    fig = style.figure(7.2, 4.0)
    ax = fig.add_axes((0.11, 0.14, 0.85, 0.68))
    errors = [100 * (1 - point.accuracy) for point in points]
    for kind, (label, look) in LOOKS.items():
        if places := [n for n, point in enumerate(points, 1) if point.kind == kind]:
            ax.scatter(places, [errors[n - 1] for n in places], s=34, label=label, zorder=3, **look)
    lowest = lowest_so_far(points)
    ax.step(
        range(1, len(points) + 1), lowest, where="post", color=style.VERMILLION, linewidth=1.6, label="lowest so far"
    )
    if min(errors) > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g} %")
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set_xlim(0.5, len(points) + 0.5)
    ax.set_xlabel("trials, in the order in which they ended", fontsize=style.BODY, color=style.MUTED)
    _bare_axes(ax, "y")
    ax.legend(fontsize=style.SMALL, frameon=False, labelcolor=style.INK)
    style.heading(ax, title, "validation error" + (f"  ·  lowest: {lowest[-1]:.3g} %" if lowest[-1] < math.inf else ""))
    return style.save(fig, path, plot=True)


def lowest_so_far(points: Sequence[Point]) -> list[float]:
    """The lowest error in % of the trials that ran to the end, after each trial; NaN (no line) before the first."""
    lowest, best = [], math.inf
    for point in points:
        if point.whole:
            best = min(100 * (1 - point.accuracy), best)
        lowest.append(best if best < math.inf else math.nan)
    return lowest


def importance(path: str | Path, values: Mapping[str, float], title: str, note: str) -> Path:
    """How much of the difference between good trials and the others each setting accounts for."""
    fig = style.figure(7.2, 0.9 + 0.36 * len(values))
    ax = fig.add_axes((0.3, 0.12, 0.6, 0.7))
    names = list(values)[::-1]
    ax.barh(range(len(names)), [values[name] for name in names], color=style.BLUE, height=0.62)
    ax.set_yticks(range(len(names)), names, fontsize=style.BODY, parse_math=False)
    largest = max(values.values()) or 1
    for n, name in enumerate(names):
        style.text(ax, values[name] + 0.015 * largest, n, f"{values[name]:.0%}", style.SMALL, style.MUTED, va="center")
    ax.set_xlim(0, 1.12 * largest)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    _bare_axes(ax, "x")
    style.heading(ax, title, note)
    return style.save(fig, path, plot=True)


def _bare_axes(ax: "Axes", along: Any) -> None:
    ax.grid(axis=along, color=style.FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left" if along == "y" else "bottom"]].set_visible(False)
    ax.spines["bottom" if along == "y" else "left"].set_color(style.MUTED)
    ax.tick_params(labelsize=style.SMALL, colors=style.MUTED, length=0, which="both")
