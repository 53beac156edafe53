"""Drawing a routing of capsules in the plane: a strip of its iterations, and an animation of its steps.

Each parent has its own plane, because each child casts another vote for each parent. A vote's dot grows and darkens
with its coupling; its faint outline stays, so that a vote with a small coupling can still be seen. The arrow is the
parent's pose; the circle is length 1, which squashing never reaches.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from capsnet.drawing.animation import render, save_gif
from capsnet.drawing.plots import COLOURS, MARKERS
from capsnet.drawing.style import FAINT, INK, MUTED, figure, save, text
from capsnet.routing import Routing, Trace, undecided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

HEAD = 1.1  # a plane's height over its width: room for its name


class Scene(NamedTuple):
    """The votes of one example, and the names of parents and groups of children."""

    votes: np.ndarray  # (I, J, 2)
    parents: Sequence[str]
    groups: Sequence[int]  # (I,): the parent that a child belongs to, J for none


class Moment(NamedTuple):
    """What a routing has at one time."""

    couplings: np.ndarray  # (I, J)
    poses: np.ndarray  # (J, 2)
    activations: np.ndarray  # (J,)
    undecided: float
    label: str = ""


def moments(trace: Trace, routing: Routing, example: int = 0) -> list[Moment]:
    """The iterations of one example. Couplings that sum to 1 over the children are scaled to sum to I over all."""
    if trace.votes.ndim != 4 or trace.votes.shape[-1] != 2:
        raise ValueError(f"votes to draw must have shape (B, I, J, 2), got {tuple(trace.votes.shape)}")
    B, I, J, _ = trace.votes.shape
    if not 0 <= example < B:
        raise ValueError(f"example must lie in 0..{B - 1}, got {example}")
    scale = I / J if routing.normalised == "children" else 1.0
    entropy = undecided(trace.couplings, trace.logits, routing.normalised)[:, example]
    parts = (scale * trace.couplings, trace.poses, trace.activations)
    arrays = [part[:, example].detach().cpu().double().numpy() for part in parts]
    labels = [f"{routing.iteration_name} {r + 1}" for r in range(len(entropy))]
    return [Moment(*values) for values in zip(*arrays, entropy.tolist(), labels, strict=True)]


def group_style(group: int, J: int) -> tuple[str, str]:
    """Colour and marker of the children that belong to a parent; of none: grey crosses."""
    return (COLOURS[group % len(COLOURS)], MARKERS[group % len(MARKERS)]) if group < J else ("#8A8A8A", "X")


def draw_plane(ax: "Axes", scene: Scene, j: int, moment: Moment, size: float = 1.0, agreeing: float = 0.0) -> None:
    """One parent's plane; ``agreeing`` in [0, 1] draws rays to the votes along the pose."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Circle, FancyArrowPatch

    votes, pose, own = scene.votes[:, j], moment.poses[j], COLOURS[j % len(COLOURS)]
    reach = 1.08 * max(1.0, float(np.abs(scene.votes).max()))
    ax.set(xlim=(-reach, reach), ylim=(-reach, (2 * HEAD - 1) * reach), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_color(FAINT)
    ax.add_patch(Circle((0, 0), 1, facecolor="#F5F5F5", edgecolor="#BBBBBB", linewidth=1.1 * size, zorder=0))
    ax.plot([0], [0], "+", color="#BBBBBB", markersize=6 * size, zorder=1)
    for vote, gain in zip(votes, (votes @ pose).clip(0, 1) * agreeing, strict=True):
        ax.plot(*zip(pose, vote, strict=True), color=own, alpha=0.75 * gain, linewidth=1.3 * size, zorder=2)
    for group in sorted(set(scene.groups)):
        members = np.flatnonzero(np.asarray(scene.groups) == group)
        colour, marker = group_style(group, len(scene.parents))
        (x, y), share = votes[members].T, moment.couplings[members, j].clip(0, 1)
        shape: dict[str, Any] = {"marker": marker, "linewidths": 0.8 * size, "zorder": 3}
        ax.scatter(x, y, 26 * size**2, facecolors="none", edgecolors=colour, alpha=0.35, **shape)
        faces = [to_rgba(colour, 0.06 + 0.94 * s) for s in share]
        ax.scatter(x, y, (14 + 130 * share) * size**2, faces, edgecolors="white", **shape)
    if (length := float(np.linalg.norm(pose))) > 0.015:
        head = {"arrowstyle": "simple,head_length=0.9,head_width=0.85,tail_width=0.3", "linewidth": 0, "zorder": 4}
        scale = 15 * size * min(1.0, 0.25 + 1.5 * length)
        ax.add_patch(FancyArrowPatch((0, 0), tuple(pose), mutation_scale=scale, color=INK, **head))
    place: dict[str, Any] = {"transform": ax.transAxes, "va": "top"}
    text(ax, 0.035, 0.97, scene.parents[j], 11 * size, own, weight="bold", **place)
    text(ax, 0.965, 0.97, f"length {moment.activations[j]:.2f}", 10.5 * size, ha="right", **place)


def draw_shares(ax: "Axes", scene: Scene, couplings: np.ndarray) -> None:
    """How each child is divided: a column per child, stacked from the first parent up."""
    I, J = couplings.shape
    for j, below in enumerate(couplings.cumsum(axis=1).T - couplings.T):
        ax.bar(range(I), couplings[:, j], 0.8, below, color=COLOURS[j % len(COLOURS)], linewidth=0)
    for child, group in enumerate(scene.groups):
        colour, marker = group_style(group, J)
        ax.plot([child], [-0.09], marker, color=colour, markersize=4, clip_on=False)
    ax.set(xlim=(-0.7, I - 0.3), ylim=(0, 1), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


class Page:
    """A titled page addressed in inches, origin top left."""

    def __init__(self, wide: float, high: float, title: str, note: str) -> None:
        self.fig: Figure = figure(wide, high)
        self.wide, self.high = wide, high
        self.ax = self.place(0, 0, wide, high)
        self.ax.set(xlim=(0, wide), ylim=(high, 0))
        self.ax.set_axis_off()
        text(self.ax, 0.2, 0.17, title, 15, weight="bold", va="top")
        text(self.ax, 0.2, 0.5, note, 10.5, MUTED, va="top")

    def place(self, x: float, y: float, w: float, h: float) -> "Axes":
        return self.fig.add_axes((x / self.wide, 1 - (y + h) / self.high, w / self.wide, h / self.high))


def draw_strip(path: str | Path, scene: Scene, columns: Sequence[Moment], title: str, note: str) -> Path:
    """A still picture: one row per parent and one of couplings, one column per moment."""
    J, side, gap, low, head = len(scene.parents), 2.0, 0.1, 0.75, 1.05  # inches
    tall = HEAD * side
    page = Page(len(columns) * (side + gap) + 0.3, head + J * (tall + gap) + low + 0.45, title, note)
    for n, moment in enumerate(columns):
        x, y = 0.2 + n * (side + gap), head + J * (tall + gap)
        text(page.ax, x + side / 2, head - 0.06, moment.label, 11.5, ha="center", va="bottom")
        for j in range(J):
            draw_plane(page.place(x, head + j * (tall + gap), side, tall), scene, j, moment)
        draw_shares(page.place(x, y, side, low), scene, moment.couplings)
        words = f"undecided: {moment.undecided:.2f}"
        text(page.ax, x + side / 2, y + low + 0.16, words, 10.5, MUTED, ha="center", va="top")
    return save(page.fig, path)


class Frame(NamedTuple):
    """A frame of the animation: a moment between two iterations."""

    moment: Moment
    iteration: int
    step: int
    agreeing: float
    milliseconds: int


def frames(history: Sequence[Moment], tween: int) -> Iterator[Frame]:
    """The steps of each iteration one after another, each reaching its result in ``tween`` frames."""
    glide = [0.5 - 0.5 * math.cos(math.pi * k / tween) for k in range(1, tween + 1)]
    now = history[0]._replace(poses=0 * history[0].poses, activations=0 * history[0].activations)
    yield Frame(now, 0, 0, 0.0, 500)
    for r, goal in enumerate(history):
        for t in glide if r else ():
            yield Frame(now._replace(couplings=now.couplings + t * (goal.couplings - now.couplings)), r, 0, 0.0, 60)
        for t in glide:
            poses, lengths = (
                a + t * (b - a) for a, b in ((now.poses, goal.poses), (now.activations, goal.activations))
            )
            yield Frame(goal._replace(poses=poses, activations=lengths), r, 1, 0.0, 60)
        now = goal
        if r < len(history) - 1:
            yield Frame(now, r, 2, 0.5, 60)
            yield Frame(now, r, 2, 1.0, 260)
    yield Frame(now, len(history) - 1, 1, 0.0, 1500)


def draw_animation(
    path: str | Path,
    scene: Scene,
    history: Sequence[Moment],
    title: str,
    note: str,
    steps: Sequence[str],
    tween: int = 4,
) -> Path:
    """A looping GIF of the iterations. ``steps`` are the routing's three lines: couple, sum, agree."""
    played = list(frames(history, tween))
    pictures = [draw_frame(scene, history, frame, title, note, steps) for frame in played]
    return save_gif(path, pictures, [frame.milliseconds for frame in played])


def draw_frame(
    scene: Scene, history: Sequence[Moment], frame: Frame, title: str, note: str, steps: Sequence[str]
) -> "Image":
    """A page of the animation: parents above; couplings, entropy and the procedure below."""
    J, side, head = len(scene.parents), 2.85, 0.86
    tall = HEAD * side
    wide, high = J * (side + 0.12) + 0.28, head + tall + 2.05
    y, split = head + tall + 0.4, 0.62 * wide
    page = Page(wide, high, title, note)
    count = f"{history[frame.iteration].label} of {len(history)}"
    text(page.ax, wide - 0.2, 0.18, count, 13, ha="right", va="top")
    for j in range(J):
        place = page.place(0.2 + j * (side + 0.12), head, side, tall)
        draw_plane(place, scene, j, frame.moment, 1.3, frame.agreeing)
    words = "how each child is divided among the parents (couplings)", "how undecided the children are (1 to 0)"
    text(page.ax, 0.2, y - 0.1, words[0], 10.5, MUTED, va="bottom")
    text(page.ax, split, y - 0.1, words[1], 10.5, MUTED, va="bottom")
    draw_shares(page.place(0.2, y, split - 0.5, 0.85), scene, frame.moment.couplings)
    ax = page.place(split + 0.1, y, wide - split - 0.4, 0.9)
    ax.set(xlim=(-0.2, len(history) - 0.8), ylim=(0, 1.2), xticks=[], yticks=[])
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(MUTED)
    seen = [moment.undecided for moment in history[: frame.iteration + 1]]
    ax.plot(seen, "-o", color=INK, linewidth=2, markersize=6, clip_on=False)
    text(ax, len(seen) - 0.93, seen[-1] + 0.06, f"{seen[-1]:.2f}", 10.5, ha="left", va="bottom")
    for n, (x, step) in enumerate(zip((0, 0.335, 0.715), steps, strict=True)):
        text(page.ax, 0.2 + x * wide, high - 0.2, step, 10.5, INK if n == frame.step else "#A8A8A8")
    return render(page.fig)
