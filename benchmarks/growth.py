"""How cost grows with batch, iterations, children and parents: tables and one picture. About eight minutes.

python -m benchmarks.growth [--threads N] [--figure docs/benchmarks.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks import _contenders, _peak
from benchmarks._timing import alternate
from capsnet.drawing.style import BLUE, BODY, INK, MUTED, ORANGE, SMALL, figure, save

BATCHES = (1, 4, 16, 64, 128, 256, 512)
ITERATIONS = (1, 2, 3, 4, 6, 8)
CHILDREN = (128, 512, 1152, 4096, 16384)
PARENTS = (2, 5, 10, 30, 100)


@dataclass
class Curve:
    """One table: seconds (or megabytes) of both contenders against one size."""

    title: str
    axis: str
    unit: str
    points: list[tuple[int, float, float]] = field(default_factory=list)  # (size, ours, textbook)

    def show(self) -> None:
        print(f"\n{self.title}\n{self.axis:>12} {'ours':>12} {'textbook':>12} {'ratio':>8}   [{self.unit}]")
        for size, ours, plain in self.points:
            print(f"{size:>12} {ours:>12.4g} {plain:>12.4g} {plain / ours:>8.1f}")


def _time(
    title: str, axis: str, sizes: Sequence[int], make: Callable[[int], tuple[_contenders.Run, _contenders.Run]]
) -> Curve:
    curve = Curve(title, axis, "milliseconds")
    for size in sizes:
        ours, plain = make(size)
        median = alternate({"ours": ours, "plain": plain}, rounds=3)
        curve.points.append((size, 1e3 * median["ours"], 1e3 * median["plain"]))
    curve.show()
    return curve


def _memory(title: str, axis: str, sizes: Sequence[int], what: str, name: str, **fixed: int) -> Curve:
    curve = Curve(title, axis, "megabytes")
    for size in sizes:
        both = [_peak.megabytes(who, what, **(fixed | {name: size})) for who in ("ours", "textbook")]
        curve.points.append((size, both[0], both[1]))
    curve.show()
    return curve


def measure() -> list[Curve]:
    """All tables, printed as they come: time, then memory, against batch, iterations, children and parents."""
    ours, plain = _contenders.pair()
    steps, answers, routing = _contenders.training, _contenders.inference, _contenders.routing
    many, few = "routing, both ways, batch 32", "routing, both ways, batch 8"
    peak = "peak memory"
    return [
        _time("training step", "batch", BATCHES, lambda n: (steps(ours, n), steps(plain, n))),
        _time("inference", "batch", BATCHES, lambda n: (answers(ours, n), answers(plain, n))),
        _time(many, "iterations", ITERATIONS, lambda n: routing(32, iterations=n)),
        _time(few, "children", CHILDREN, lambda n: routing(8, children=n)),
        _time(few, "parents", PARENTS, lambda n: routing(8, parents=n)),
        _memory(f"{peak}, training step", "batch", BATCHES, "training", "size"),
        _memory(f"{peak}, {many}", "iterations", ITERATIONS, "routing", "iterations", size=32),
        _memory(f"{peak}, {few}", "children", CHILDREN, "routing", "children", size=8),
        _memory(f"{peak}, {few}", "parents", PARENTS, "routing", "parents", size=8),
    ]


def draw(curves: Sequence[Curve], path: Path) -> None:
    """All tables as one picture, both axes logarithmic: a straight line of slope 1 is proportional growth."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    rows = -(-len(curves) // 3)
    page = figure(12, 3.5 * rows)
    axes = page.subplots(rows, 3, squeeze=False)
    for panel, curve in zip(axes.flat, curves, strict=False):
        sizes, ours, plain = zip(*curve.points, strict=True)
        panel.loglog(sizes, plain, "s--", color=ORANGE, label="textbook", markersize=4)
        panel.loglog(sizes, ours, "o-", color=BLUE, label="capsnet", markersize=4)
        panel.set_title(curve.title, fontsize=BODY, color=INK, loc="left", weight="bold")
        panel.set_xlabel(curve.axis, fontsize=SMALL, color=MUTED)
        panel.set_ylabel(curve.unit, fontsize=SMALL, color=MUTED)
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.tick_params(labelsize=SMALL, colors=INK)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[len(curves) :]:
        panel.set_axis_off()
    axes.flat[0].legend(fontsize=SMALL, frameon=False)
    page.tight_layout()
    save(page, path, plot=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--figure", type=Path, default=Path("docs/benchmarks.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    draw(measure(), arguments.figure)
    print(f"\npicture: {arguments.figure}")


if __name__ == "__main__":
    main()
