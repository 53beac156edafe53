"""The two plots most experiments need, in the house's hand: bars by method, lines by condition.

Colour never stands alone: each series has its own marker or hatch as well, so that figures survive grey printers and
colour-blind eyes, and text stays readable at half size.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from capsnet.drawing.style import BLUE, FAINT, INK, MUTED, ORANGE, VERMILLION, figure, heading, save, text
from capsnet.metrics import Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREEN, PURPLE = "#009E73", "#CC79A7"  # Okabe and Ito's, as the others
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, INK)
MARKERS = ("o", "s", "^", "D", "v", "P")
LABEL, TICK = 11, 10  # points: readable at half size


class Line(NamedTuple):
    """One curve; `low` and `high` are its band, if it has one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def look(n: int) -> tuple[str, str]:
    """Colour and marker of the n-th series: both differ, and past the last colour the markers are paired anew."""
    return COLOURS[n % len(COLOURS)], MARKERS[(n + n // len(COLOURS)) % len(MARKERS)]


def lines(
    path: str | Path,
    curves: Sequence[Line],
    title: str,
    note: str,
    xlabel: str,
    ylabel: str,
    *,
    logx: bool = False,
    logy: bool = False,
    level: tuple[float, str] | None = None,
) -> Path:
    """Curves over one axis, each named at its end or in a legend; `level` is a horizontal mark with its words."""
    fig = figure(7.2, 4.4)
    ax = fig.add_axes((0.11, 0.14, 0.84, 0.68))
    for n, curve in enumerate(curves):
        colour, marker = look(n)
        if curve.low is not None and curve.high is not None:
            ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(curve.x, curve.y, color=colour, marker=marker, markersize=6, linewidth=2, label=curve.name)
    if logx:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    if logy:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else "")
    else:
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    if level is not None:
        ax.axhline(level[0], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        text(ax, ax.get_xlim()[1], level[0], f"{level[1]} ", TICK, MUTED, ha="right", va="bottom")
    if not logx and all(float(x).is_integer() for curve in curves for x in curve.x) and len(curves[0].x) < 9:
        ax.set_xticks(sorted({x for curve in curves for x in curve.x}))
    tidy(ax, xlabel, ylabel)
    if len(curves) > 1:
        ax.legend(fontsize=LABEL, frameon=False, labelcolor=INK)
    heading(ax, title, note)
    return save(fig, path, plot=True)


def scatter(path: str | Path, points: Sequence[Line], title: str, note: str, xlabel: str, ylabel: str) -> Path:
    """One labelled point per line, with whiskers from `low` to `high`."""
    fig = figure(7.2, 4.4)
    ax = fig.add_axes((0.11, 0.14, 0.84, 0.68))
    for n, point in enumerate(points):
        colour, marker = look(n)
        x, y = point.x[0], point.y[0]
        low, high = (point.low or [y])[0], (point.high or [y])[0]
        ax.errorbar(x, y, [[max(0.0, y - low)], [max(0.0, high - y)]], color=colour, capsize=4, linewidth=1.2)
        ax.plot([x], [y], marker=marker, color=colour, markersize=9, linestyle="none", label=point.name)
    ax.set_xlim(left=0, right=1.2 * max(point.x[0] for point in points))
    lows, highs = [min(point.low or point.y) for point in points], [max(point.high or point.y) for point in points]
    if max(highs) > 5 * min(lows):  # one far off would press the others into a line
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else "")
    else:
        ax.set_ylim(bottom=0, top=1.15 * max(highs))
    tidy(ax, xlabel, ylabel)
    ax.legend(fontsize=LABEL, frameon=False, labelcolor=INK, ncols=2)
    heading(ax, title, note)
    return save(fig, path, plot=True)


def bars(
    path: str | Path,
    names: Sequence[str],
    groups: Mapping[str, Sequence[Measure | None]],
    title: str,
    note: str,
) -> Path:
    """One panel per group, one bar per name, each with its value and its interval; None leaves a gap."""
    fig = figure(max(4.0, 1.15 * len(names)) * len(groups) + 0.6, 4.0)
    for n, (group, measures) in enumerate(groups.items()):
        ax = fig.add_axes(((n + 0.1) / len(groups), 0.2, 0.84 / len(groups), 0.6))
        top = max((m.interval[1] if m.interval else m.mean for m in measures if m is not None), default=1.0)
        for x, measure in enumerate(measures):
            if measure is None:
                text(ax, x, 0.02 * top, "not in\nthe paper", TICK - 1, MUTED, ha="center", va="bottom")
                continue
            first = x == 0
            ax.bar(
                x, measure.mean, 0.62, color=FAINT if first else BLUE, edgecolor=INK, linewidth=0.8, hatch="//" * first
            )
            if measure.interval is not None:
                below, above = measure.mean - measure.interval[0], measure.interval[1] - measure.mean
                ax.errorbar(x, measure.mean, [[max(0, below)], [max(0, above)]], color=INK, capsize=4, linewidth=1.2)
            highest = measure.interval[1] if measure.interval else measure.mean
            text(ax, x, highest + 0.02 * top, f"{measure.mean:.2f}", LABEL, ha="center", va="bottom", weight="bold")
        ax.set_ylim(0, 1.15 * top)
        ax.set_xlim(-0.6, len(names) - 0.4)
        tidy(ax, "", f"{group}: test error, %")
        ax.set_xticks(range(len(names)), names, fontsize=TICK - 1)
        if n == 0:
            heading(ax, title, note)
    return save(fig, path, plot=True)


def tidy(ax: "Axes", xlabel: str, ylabel: str) -> None:
    """Axes as all our plots have them: no box, faint horizontal lines, labels large enough for half size."""
    ax.set_xlabel(xlabel, fontsize=LABEL, color=MUTED)
    ax.set_ylabel(ylabel, fontsize=LABEL, color=MUTED)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(MUTED)
    ax.tick_params(labelsize=TICK, colors=MUTED, length=0, which="both")


def ranked(
    path: str | Path,
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    title: str,
    note: str,
    xlabel: str,
    *,
    middle: float,
    noise: float,
) -> Path:
    """A dot per seed on one line per name, best on top, beside a band of what chance alone does."""
    fig = figure(7.6, 0.42 * len(names) + 1.6)
    ax = fig.add_axes((0.42, 0.16, 0.54, 0.68))
    ax.axvspan(middle - noise, middle + noise, color=FAINT, linewidth=0)
    for y, row in enumerate(values):
        ax.plot(row, [y] * len(row), "o", color=BLUE, markersize=7, alpha=0.55 if len(row) > 1 else 1.0)
        mean = sum(row) / len(row)
        ax.plot([mean], [y], "|", color=INK, markersize=16, markeredgewidth=2)
    tidy(ax, xlabel, "")
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
    ax.set_yticks(range(len(names)), names, fontsize=TICK, color=INK)
    ax.set_ylim(len(names) - 0.5, -0.5)
    heading(ax, title, note)
    return save(fig, path, plot=True)
