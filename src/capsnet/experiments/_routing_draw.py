"""Drawing what a routing did to capsules in the plane, as a strip of its iterations (`_routing_movie` animates it).

Any routing's trace will do, as long as poses have two dimensions. Each parent has its own plane, because each child
casts another vote for each parent. A vote's dot grows and darkens with its coupling, and its faint outline stays, so
that what was turned away can still be seen. The arrow is the parent's pose; the circle is length 1, which squashing
never reaches.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from capsnet.drawing.plots import COLOURS, MARKERS
from capsnet.drawing.style import FAINT, INK, MUTED, figure, save, text
from capsnet.routing.base import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8A8A8A"
HEAD = 1.1  # a plane's height over its width: room for its name


class Story(NamedTuple):
    """One example's routing as arrays, and how its children and parents are called."""

    votes: np.ndarray  # (I, J, 2)
    couplings: np.ndarray  # (R, I, J)
    poses: np.ndarray  # (R, J, 2)
    activations: np.ndarray  # (R, J)
    parents: Sequence[str]
    groups: Sequence[int]  # (I,): which parent a child really belongs to, J for none, -1 where nobody said

    @property
    def reach(self) -> float:
        """Half the side of a parent's plane: room for every vote and for the unit circle."""
        return 1.08 * max(1.0, float(np.abs(self.votes).max()))


def story(
    votes: Tensor,
    trace: Trace,
    *,
    parents: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
    activations: Tensor | None = None,
    example: int = 0,
) -> Story:
    """Pick one example out of a dense routing's votes (B, I, J, 2) and trace.

    ``activations`` (R, B, J) are what is written beside the arrows; left out, the lengths of the poses.
    """
    if votes.ndim != 4 or votes.shape[-1] != 2:
        raise ValueError(f"votes to draw must have shape (B, I, J, 2), got {tuple(votes.shape)}")
    R, B, I, J = (*trace.couplings.shape, 0, 0)[:4]
    if tuple(trace.couplings.shape) != (R, *votes.shape[:3]):
        raise ValueError(f"couplings must be (R, B, I, J) for votes {tuple(votes.shape)}, got {trace.couplings.shape}")
    if not 0 <= example < B:
        raise ValueError(f"example must lie in 0..{B - 1}, got {example}")
    poses = trace.poses[:, example].detach().cpu().double().numpy()  # (R, J, 2)
    lengths = np.linalg.norm(poses, axis=-1) if activations is None else activations[:, example].cpu().numpy()
    names = [chr(ord("A") + j) for j in range(J)] if parents is None else parents
    return Story(
        votes[example].detach().cpu().double().numpy(),
        trace.couplings[:, example].detach().cpu().double().numpy(),
        poses,
        lengths,
        names,
        [-1] * I if groups is None else groups,
    )


def entropy(couplings: np.ndarray) -> np.ndarray:
    """How undecided the children are, in bits, averaged over them. Shapes: (..., I, J) -> (...)

    A leaky routing's couplings sum to less than 1; what is missing counts as one more parent.
    """
    rest = np.clip(1 - couplings.sum(axis=-1, keepdims=True), 0, None)
    share = np.concatenate([couplings, np.where(rest < 1e-6, 0, rest)], axis=-1)
    return -(share * np.log2(np.where(share > 0, share, 1))).sum(axis=-1).mean(axis=-1)


def style(group: int, J: int) -> tuple[str, str]:
    """Colour and marker of the children that belong to a parent; of nobody: grey crosses; unknown: grey dots."""
    if group < 0:
        return MUTED, "o"
    return (COLOURS[group % len(COLOURS)], MARKERS[group % len(MARKERS)]) if group < J else (GREY, "X")


class Plane:
    """One parent's plane. Drawn once, then moved: an animation would take minutes otherwise."""

    def __init__(self, ax: "Axes", tale: Story, j: int, size: float = 1.0) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Circle, FancyArrowPatch

        J, reach = tale.votes.shape[1], tale.reach
        self.votes, self.size, self.colour = tale.votes[:, j], size, COLOURS[j % len(COLOURS)]
        ax.set(xlim=(-reach, reach), ylim=(-reach, (2 * HEAD - 1) * reach), aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_color(FAINT)
        ax.add_patch(Circle((0, 0), 1, facecolor="#F5F5F5", edgecolor="#BBBBBB", linewidth=1.1 * size, zorder=0))
        ax.plot([0], [0], "+", color="#BBBBBB", markersize=6 * size, zorder=1)
        self.rays = LineCollection([], zorder=2)
        ax.add_collection(self.rays)
        self.dots = []
        groups = np.asarray(tale.groups)
        for group in sorted(set(tale.groups)):
            who = np.flatnonzero(groups == group)
            colour, marker = style(int(group), J)
            x, y = self.votes[who].T
            shape: dict[str, Any] = {"marker": marker, "linewidths": 0.8 * size, "zorder": 3}
            ax.scatter(x, y, s=26 * size**2, facecolors="none", edgecolors=colour, alpha=0.35, **shape)
            self.dots.append((who, colour, ax.scatter(x, y, s=26 * size**2, edgecolors="white", **shape)))
        self.arrow = FancyArrowPatch((0, 0), (0.01, 0), mutation_scale=15 * size, linewidth=0, zorder=4)
        self.arrow.set(arrowstyle="simple,head_length=0.9,head_width=0.85,tail_width=0.3", color=INK)
        ax.add_patch(self.arrow)
        line: dict[str, Any] = {"transform": ax.transAxes, "parse_math": False, "va": "top"}
        ax.text(0.035, 0.97, tale.parents[j], fontsize=11 * size, weight="bold", color=self.colour, **line)
        self.number = ax.text(0.965, 0.97, "", fontsize=10.5 * size, color=INK, ha="right", **line)

    def show(self, coupling: np.ndarray, pose: np.ndarray, activation: float, agreeing: float = 0.0) -> None:
        """Move to this coupling (I,) and pose (2,); `agreeing` in [0, 1] draws rays to the votes along the pose."""
        from matplotlib.colors import to_rgba

        for who, colour, dots in self.dots:
            share = coupling[who].clip(0, 1)
            dots.set_sizes((14 + 130 * share) * self.size**2)
            dots.set_facecolor([to_rgba(colour, 0.06 + 0.94 * s) for s in share])
        length = float(np.linalg.norm(pose))
        self.arrow.set_positions((0, 0), tuple(pose if length > 1e-3 else (1e-3, 0)))
        self.arrow.set_mutation_scale(15 * self.size * min(1.0, 0.25 + 1.5 * length))
        self.arrow.set_visible(length > 0.015)
        gain = (self.votes @ pose).clip(0, 1) * agreeing
        self.rays.set_segments([(pose, vote) for vote in self.votes])
        self.rays.set(color=[to_rgba(self.colour, 0.75 * g) for g in gain], linewidth=1.3 * self.size)
        self.number.set_text(f"length {activation:.2f}")


class Shares:
    """How each child divides itself: a column per child, stacked from the first parent up."""

    def __init__(self, ax: "Axes", tale: Story) -> None:
        I, J = tale.votes.shape[:2]
        self.bars = [
            ax.bar(range(I), np.full(I, 1 / J), 0.8, color=COLOURS[j % len(COLOURS)], linewidth=0) for j in range(J)
        ]
        ax.set(xlim=(-0.7, I - 0.3), ylim=(0, 1), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        groups = np.asarray(tale.groups)
        for group in sorted(set(tale.groups)):
            colour, marker = style(int(group), J)
            who = np.flatnonzero(groups == group)
            ax.plot(who, np.full(len(who), -0.09), marker, color=colour, markersize=4, clip_on=False)

    def show(self, couplings: np.ndarray) -> None:
        base = np.zeros(len(couplings))
        for j, bars in enumerate(self.bars):
            for bar, height, bottom in zip(bars, couplings[:, j], base, strict=True):
                bar.set(height=height, y=bottom)
            base = base + couplings[:, j]


def draw_strip(
    path: str | Path,
    votes: Tensor,
    trace: Trace,
    title: str,
    note: str,
    *,
    iterations: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    **words: Any,
) -> Path:
    """A still picture: one row per parent and one of couplings, one column per iteration.

    `iterations` says which to show, counted from 1 (left out: all); `columns` names them otherwise; `words` as for
    `story`.
    """
    tale = story(votes, trace, **words)
    R, _, J = tale.couplings.shape
    shown = range(1, R + 1) if iterations is None else iterations
    if not shown or not all(1 <= r <= R for r in shown):
        raise ValueError(f"iterations to show must lie in 1..{R}, got {list(shown)}")
    side, gap, low, head = 2.0, 0.1, 0.75, 1.05  # inches
    tall = HEAD * side
    wide, high = len(shown) * (side + gap) + 0.3, head + J * (tall + gap) + low + 0.45
    fig = figure(wide, high)
    undecided = entropy(tale.couplings)

    def place(x: float, y: float, w: float, h: float) -> "Axes":
        return fig.add_axes((x / wide, 1 - (y + h) / high, w / wide, h / high))

    page = place(0, 0, wide, high)
    page.set(xlim=(0, wide), ylim=(high, 0))
    page.set_axis_off()
    text(page, 0.2, 0.17, title, 15, weight="bold", va="top")
    text(page, 0.2, 0.48, note, 11, MUTED, va="top")
    for column, r in enumerate(r - 1 for r in shown):
        x, y = 0.2 + column * (side + gap), head + J * (tall + gap)
        text(
            page,
            x + side / 2,
            head - 0.06,
            columns[column] if columns else f"iteration {r + 1}",
            11.5,
            ha="center",
            va="bottom",
        )
        for j in range(J):
            plane = Plane(place(x, head + j * (tall + gap), side, tall), tale, j)
            plane.show(tale.couplings[r, :, j], tale.poses[r, j], tale.activations[r, j])
        Shares(place(x, y, side, low), tale).show(tale.couplings[r])
        text(
            page,
            x + side / 2,
            y + low + 0.16,
            f"undecided: {undecided[r]:.2f} bits",
            10.5,
            MUTED,
            ha="center",
            va="top",
        )
    return save(fig, path)
