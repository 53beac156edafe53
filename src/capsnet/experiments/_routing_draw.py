"""Drawing a routing of capsules in the plane: a strip of its iterations, and an animation of its steps.

Each parent has its own plane, because each child casts another vote for each parent. A vote's dot grows and darkens
with its coupling; its faint outline stays, so that a vote with a small coupling can still be seen. The arrow is the
parent's pose; the circle is length 1, which squashing never reaches.
"""

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from capsnet._files import write_atomically
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


class Plane:
    """One parent's plane. It is drawn once and then changed: an animation would take minutes otherwise."""

    def __init__(self, ax: "Axes", scene: Scene, j: int, size: float = 1.0) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Circle, FancyArrowPatch

        reach = 1.08 * max(1.0, float(np.abs(scene.votes).max()))
        self.votes, self.size, self.colour = scene.votes[:, j], size, COLOURS[j % len(COLOURS)]
        ax.set(xlim=(-reach, reach), ylim=(-reach, (2 * HEAD - 1) * reach), aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_color(FAINT)
        ax.add_patch(Circle((0, 0), 1, facecolor="#F5F5F5", edgecolor="#BBBBBB", linewidth=1.1 * size, zorder=0))
        ax.plot([0], [0], "+", color="#BBBBBB", markersize=6 * size, zorder=1)
        self.rays = LineCollection([], zorder=2)
        ax.add_collection(self.rays)
        self.dots = []
        for group in sorted(set(scene.groups)):
            members = np.flatnonzero(np.asarray(scene.groups) == group)
            colour, marker = group_style(group, len(scene.parents))
            x, y = self.votes[members].T
            shape: dict[str, Any] = {"marker": marker, "linewidths": 0.8 * size, "zorder": 3, "s": 26 * size**2}
            ax.scatter(x, y, facecolors="none", edgecolors=colour, alpha=0.35, **shape)
            self.dots.append((members, colour, ax.scatter(x, y, edgecolors="white", **shape)))
        self.arrow = FancyArrowPatch((0, 0), (0.01, 0), mutation_scale=15 * size, linewidth=0, zorder=4)
        self.arrow.set(arrowstyle="simple,head_length=0.9,head_width=0.85,tail_width=0.3", color=INK)
        ax.add_patch(self.arrow)
        line: dict[str, Any] = {"transform": ax.transAxes, "parse_math": False, "va": "top"}
        ax.text(0.035, 0.97, scene.parents[j], fontsize=11 * size, weight="bold", color=self.colour, **line)
        self.number = ax.text(0.965, 0.97, "", fontsize=10.5 * size, color=INK, ha="right", **line)

    def show(self, coupling: np.ndarray, pose: np.ndarray, activation: float, agreeing: float = 0.0) -> None:
        """Show a coupling (I,) and a pose (2,); ``agreeing`` in [0, 1] draws rays to the votes along the pose."""
        from matplotlib.colors import to_rgba

        for members, colour, dots in self.dots:
            share = coupling[members].clip(0, 1)
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
    """How each child is divided: a column per child, stacked from the first parent up."""

    def __init__(self, ax: "Axes", scene: Scene) -> None:
        I, J = scene.votes.shape[:2]
        self.bars = [ax.bar(range(I), np.ones(I), 0.8, color=COLOURS[j % len(COLOURS)], linewidth=0) for j in range(J)]
        ax.set(xlim=(-0.7, I - 0.3), ylim=(0, 1), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        for child, group in enumerate(scene.groups):
            colour, marker = group_style(group, J)
            ax.plot([child], [-0.09], marker, color=colour, markersize=4, clip_on=False)

    def show(self, couplings: np.ndarray) -> None:
        base = np.zeros(len(couplings))
        for j, bars in enumerate(self.bars):
            for bar, height, bottom in zip(bars, couplings[:, j], base, strict=True):
                bar.set(height=height, y=bottom)
            base = base + couplings[:, j]


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
            plane = Plane(page.place(x, head + j * (tall + gap), side, tall), scene, j)
            plane.show(moment.couplings[:, j], moment.poses[j], moment.activations[j])
        Shares(page.place(x, y, side, low), scene).show(moment.couplings)
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
    from PIL import Image

    stage, played = Stage(scene, history, title, note, steps), list(frames(history, tween))
    pictures = [stage.render(frame) for frame in played]
    # one palette for all frames, or colours would flicker; what is nearly white becomes white, as the page is
    sheet = np.concatenate([np.asarray(pictures[k]) for k in (0, len(pictures) // 2, -1)])
    palette = Image.fromarray(sheet).quantize(128, dither=Image.Dither.NONE)
    values = np.array(palette.getpalette()).reshape(-1, 3)
    values[values.min(axis=1) > 246] = 255
    palette.putpalette(values.reshape(-1).tolist())
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    out, times = io.BytesIO(), [frame.milliseconds for frame in played]
    first.save(out, format="GIF", save_all=True, append_images=rest, duration=times, loop=0, optimize=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(Path(path), out.getvalue())


class Stage:
    """The page of the animation: parents above, couplings, entropy and the procedure below."""

    def __init__(self, scene: Scene, history: Sequence[Moment], title: str, note: str, steps: Sequence[str]) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.history = history
        J, side, head = len(scene.parents), 2.85, 0.86
        tall = HEAD * side
        wide, high = J * (side + 0.12) + 0.28, head + tall + 2.05
        page = Page(wide, high, title, note)
        page.fig.set_dpi(100)
        self.canvas = FigureCanvasAgg(page.fig)
        self.count = page.ax.text(wide - 0.2, 0.18, "", fontsize=13, color=INK, ha="right", va="top")
        places = [page.place(0.2 + j * (side + 0.12), head, side, tall) for j in range(J)]
        self.planes = [Plane(ax, scene, j, 1.3) for j, ax in enumerate(places)]
        y, split = head + tall + 0.4, 0.62 * wide
        words = "how each child is divided among the parents (couplings)"
        text(page.ax, 0.2, y - 0.1, words, 10.5, MUTED, va="bottom")
        self.shares = Shares(page.place(0.2, y, split - 0.5, 0.85), scene)
        text(page.ax, split, y - 0.1, "how undecided the children are (1 to 0)", 10.5, MUTED, va="bottom")
        ax = page.place(split + 0.1, y, wide - split - 0.4, 0.9)
        ax.set(xlim=(-0.2, len(history) - 0.8), ylim=(0, 1.2), xticks=[], yticks=[])
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(MUTED)
        (self.curve,) = ax.plot([], [], "-o", color=INK, linewidth=2, markersize=6, clip_on=False)
        self.value = ax.text(0, 0, "", fontsize=10.5, color=INK, ha="left", va="bottom")
        at, line = (0.2, 0.2 + 0.335 * wide, 0.2 + 0.715 * wide), {"fontsize": 10.5, "parse_math": False}
        self.lines = [page.ax.text(x, high - 0.2, step, **line) for x, step in zip(at, steps, strict=True)]

    def render(self, frame: Frame) -> "Image":
        from PIL import Image

        couplings, poses, activations, *_ = frame.moment
        for j, plane in enumerate(self.planes):
            plane.show(couplings[:, j], poses[j], activations[j], frame.agreeing)
        self.shares.show(couplings)
        self.count.set_text(f"{self.history[frame.iteration].label} of {len(self.history)}")
        seen = [moment.undecided for moment in self.history[: frame.iteration + 1]]
        self.curve.set_data(range(len(seen)), seen)
        self.value.set(position=(len(seen) - 0.93, seen[-1] + 0.06), text=f"{seen[-1]:.2f}")
        for n, line in enumerate(self.lines):
            line.set(color=INK if n == frame.step else "#A8A8A8")
        self.canvas.draw()
        return Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
