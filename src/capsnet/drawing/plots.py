"""Plots that several experiments need: lines, points, bars, ranked dots, intervals by row.

Colour never stands alone: each series has its own marker or hatch as well, so that figures can be read in grey and by
colour-blind people, and text stays readable at half size.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from capsnet.drawing.style import BLUE, DPI, FAINT, INK, MUTED, ORANGE, VERMILLION, figure, heading, save, text
from capsnet.metrics import Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREEN, PURPLE = "#009E73", "#CC79A7"  # Okabe and Ito's, as the others
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, INK)
MARKERS = ("o", "s", "^", "D", "v", "P")
LABEL, TICK = 11, 10  # points: readable at half size


class Line(NamedTuple):
    """One curve; ``low`` and ``high`` are its band, if it has one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    @classmethod
    def of(cls, name: str, x: Sequence[float], measures: Sequence[Measure]) -> "Line":
        """The means of some measures, with their intervals as the band."""
        low, high = zip(*(m.interval or (m.mean, m.mean) for m in measures), strict=True)
        return cls(name, x, [m.mean for m in measures], low, high)


def series_style(n: int) -> tuple[str, str]:
    """Colour and marker of the n-th series; past the last colour the markers are paired anew."""
    return COLOURS[n % len(COLOURS)], MARKERS[(n + n // len(COLOURS)) % len(MARKERS)]


def draw_line(ax: "Axes", n: int, line: Line) -> None:
    """The n-th series on some axes: band, line and markers."""
    colour, marker = series_style(n)
    if line.low is not None and line.high is not None:
        ax.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    ax.plot(line.x, line.y, color=colour, marker=marker, markersize=6, linewidth=2, label=line.name)


def tidy(ax: "Axes", xlabel: str, ylabel: str) -> None:
    """Axes as all plots have them: no box, faint horizontal lines, labels large enough for half size."""
    ax.set_xlabel(xlabel, fontsize=LABEL, color=MUTED)
    ax.set_ylabel(ylabel, fontsize=LABEL, color=MUTED)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(MUTED)
    ax.tick_params(labelsize=TICK, colors=MUTED, length=0, which="both")


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
    zero: bool = True,
) -> Path:
    """Curves over one axis with a legend; ``level`` is a horizontal mark with its words, ``zero`` shows y = 0.

    The legend of more curves than there are colours stands beside the plot, where it covers none of them.
    """
    fig, ax = _plot()
    for n, curve in enumerate(curves):
        draw_line(ax, n, curve)
    if logx:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    if logy:
        log_axis(ax)
    elif zero:
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    if level is not None:
        ax.axhline(level[0], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        text(ax, ax.get_xlim()[1], level[0], f"{level[1]} ", TICK, MUTED, ha="right", va="bottom")
    if not logx and all(float(x).is_integer() for curve in curves for x in curve.x) and len(curves[0].x) < 9:
        ax.set_xticks(sorted({x for curve in curves for x in curve.x}))
    tidy(ax, xlabel, ylabel)
    if len(curves) > 1:
        beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(curves) > len(COLOURS) else {}
        ax.legend(fontsize=LABEL, frameon=False, labelcolor=INK, **beside)
    heading(ax, title, note)
    return save(fig, path, plot=True)


def scatter(
    path: str | Path, points: Sequence[tuple[float, Measure]], title: str, note: str, xlabel: str, ylabel: str
) -> Path:
    """Measures at their places on the x axis: a named point each, with its interval."""
    fig, ax = _plot()
    for n, (x, measure) in enumerate(points):
        colour, marker = series_style(n)
        _whisker(ax, x, measure, colour)
        ax.plot([x], [measure.mean], marker=marker, color=colour, markersize=9, linestyle="none", label=measure.name)
    ax.set_xlim(left=0, right=1.2 * max(x for x, _ in points))
    ends = [end for _, measure in points for end in measure.interval or (measure.mean,)]
    if max(ends) > 5 * min(ends):  # otherwise one far value would press the others into a line
        log_axis(ax)
    else:
        ax.set_ylim(bottom=0, top=1.15 * max(ends))
    tidy(ax, xlabel, ylabel)
    ax.legend(fontsize=LABEL, frameon=False, labelcolor=INK, ncols=2)
    heading(ax, title, note)
    return save(fig, path, plot=True)


def bars(
    path: str | Path, names: Sequence[str], groups: Mapping[str, Sequence[Measure | None]], title: str, note: str
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
            colour, hatch = (BLUE, "") if x else (FAINT, "//")
            ax.bar(x, measure.mean, 0.62, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.8)
            _whisker(ax, x, measure, INK)
            highest = measure.interval[1] if measure.interval else measure.mean
            text(ax, x, highest + 0.02 * top, f"{measure.mean:.2f}", LABEL, ha="center", va="bottom", weight="bold")
        ax.set_ylim(0, 1.15 * top)
        ax.set_xlim(-0.6, len(names) - 0.4)
        tidy(ax, "", f"{group}: test error, %")
        ax.set_xticks(range(len(names)), names, fontsize=TICK - 1)
        if n == 0:
            heading(ax, title, note)
    return save(fig, path, plot=True)


def ranked(
    path: str | Path, rows: Mapping[str, Sequence[float]], title: str, note: str, xlabel: str, band: tuple[float, float]
) -> Path:
    """A dot per seed on one line per name, best on top, beside a band of what chance alone does."""
    fig, ax = _plot(7.6, 0.42 * len(rows) + 1.6, (0.42, 0.16, 0.54, 0.68))
    ax.axvspan(*band, color=FAINT, linewidth=0)
    for y, row in enumerate(rows.values()):
        ax.plot(row, [y] * len(row), "o", color=BLUE, markersize=7, alpha=0.55 if len(row) > 1 else 1.0)
        ax.plot([fmean(row)], [y], "|", color=INK, markersize=16, markeredgewidth=2)
    _row_axis(ax, list(rows), xlabel)
    heading(ax, title, note)
    return save(fig, path, plot=True)


def intervals(
    path: str | Path, rows: Mapping[str, Sequence[Measure]], title: str, xlabel: str, limits: tuple[float, float]
) -> Path:
    """A line per row; on it a dot with its interval for each measure, named as in the first row."""
    fig, ax = _plot(7.6, 4.6, (0.16, 0.13, 0.8, 0.6))
    for y, measures in enumerate(rows.values()):
        for n, measure in enumerate(measures):
            colour, marker = series_style(n)
            low, high = measure.interval or (measure.mean, measure.mean)
            ax.errorbar(
                [measure.mean],
                [y + min(0.2, 0.8 / len(measures)) * (n - (len(measures) - 1) / 2)],
                xerr=[[measure.mean - low], [high - measure.mean]],
                label=None if y else measure.name,
                color=colour, marker=marker, markersize=9, linestyle="none", capsize=4,
            )  # fmt: skip
    _row_axis(ax, list(rows), xlabel)
    ax.grid(visible=False, axis="y")
    ax.set_xlim(*limits)
    heading(ax, title, "", lift=_legend_above(ax))
    return save(fig, path, plot=True)


def panels(rows: int, columns: int, width: float, height: float) -> tuple["Figure", list[list["Axes"]]]:
    """A figure of panels, each of width x height inches with room for its labels and a heading."""
    fig = figure(width * columns, height * rows)
    left, low = min(0.16, 0.6 / width), 0.55 / height
    box = (1 - left - 0.02) / columns, (1 - low - min(0.25, 0.55 / height)) / rows
    places = [[((c + left) / columns, (rows - 1 - r + low) / rows) for c in range(columns)] for r in range(rows)]
    return fig, [[fig.add_axes((*place, *box)) for place in line] for line in places]


def _plot(
    width: float = 7.2, height: float = 4.4, box: tuple[float, float, float, float] = (0.11, 0.14, 0.84, 0.68)
) -> tuple["Figure", "Axes"]:
    fig = figure(width, height)
    return fig, fig.add_axes(box)


def log_axis(ax: "Axes", unit: str = "") -> None:
    """A logarithmic y axis with numbers at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}{unit}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _legend_above(ax: "Axes") -> float:
    """A legend between plot and title, in as few rows as fit the width; how many points it is higher than one row."""
    place = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "handletextpad": 0.2}
    count = len(ax.get_legend_handles_labels()[0])
    heights: list[float] = []
    for rows in range(1, count + 1):
        legend = ax.legend(fontsize=TICK, frameon=False, labelcolor=INK, ncols=math.ceil(count / rows), **place)
        box = legend.get_window_extent()
        heights.append(box.height * 72 / DPI)
        if box.x1 <= ax.get_window_extent().x1:
            break
    return heights[-1] - heights[0]


def _whisker(ax: "Axes", x: float, measure: Measure, colour: str) -> None:
    if measure.interval is not None:
        low, high = (max(0.0, end) for end in (measure.mean - measure.interval[0], measure.interval[1] - measure.mean))
        ax.errorbar(x, measure.mean, [[low], [high]], color=colour, capsize=4, linewidth=1.2)


def _row_axis(ax: "Axes", names: Sequence[str], xlabel: str) -> None:
    """Names down the y axis, the first on top, and faint vertical lines."""
    tidy(ax, xlabel, "")
    ax.grid(axis="x", color=FAINT, linewidth=0.8)
    ax.set_yticks(range(len(names)), names, fontsize=TICK, color=INK)
    ax.set_ylim(len(names) - 0.5, -0.5)
