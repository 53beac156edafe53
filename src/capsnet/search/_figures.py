"""The figure of a study: how it went."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capsnet.drawing.plots import log_axis, tidy
from capsnet.drawing.style import BLUE, INK, MUTED, ORANGE, SMALL, VERMILLION, figure, heading, save


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
    from matplotlib.ticker import MaxNLocator

    fig = figure(7.2, 4.0)
    ax = fig.add_axes((0.11, 0.14, 0.85, 0.68))
    errors = [100 * (1 - point.accuracy) for point in points]
    for kind, (label, look) in LOOKS.items():
        if places := [n for n, point in enumerate(points, 1) if point.kind == kind]:
            ax.scatter(places, [errors[n - 1] for n in places], s=34, label=label, zorder=3, **look)
    lowest = lowest_so_far(points)
    ax.step(range(1, len(points) + 1), lowest, where="post", color=VERMILLION, linewidth=1.6, label="lowest so far")
    if min(errors) > 0:
        log_axis(ax, " %")
    else:
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g} %")
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    ax.set_xlim(0.5, len(points) + 0.5)
    tidy(ax, "trials, in the order in which they ended", "")
    ax.legend(fontsize=SMALL, frameon=False, labelcolor=INK)
    heading(ax, title, "validation error" + (f"  ·  lowest: {lowest[-1]:.3g} %" if lowest[-1] < math.inf else ""))
    return save(fig, path, plot=True)


def lowest_so_far(points: Sequence[Point]) -> list[float]:
    """The lowest error in % of the trials that ran to the end, after each trial; NaN (no line) before the first."""
    errors = [100 * (1 - point.accuracy) if point.whole else math.nan for point in points]
    return np.fmin.accumulate(errors).tolist()
