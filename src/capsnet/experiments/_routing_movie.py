"""A routing as a looping GIF: its steps one after another, each gliding from what was before to what it makes of it."""

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from capsnet._files import write_atomically
from capsnet.drawing.style import INK, MUTED, figure, text
from capsnet.experiments._routing_draw import HEAD, Plane, Shares, Story, entropy, story
from capsnet.routing.base import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.Image import Image

STEPS = (
    "1  couple:  cᵢⱼ = softmax over j of bᵢⱼ",
    "2  sum and squash:  vⱼ = squash( Σᵢ cᵢⱼ ûⱼ|ᵢ )",
    "3  agree:  bᵢⱼ = bᵢⱼ + ûⱼ|ᵢ · vⱼ",
)


class Frame(NamedTuple):
    """A moment of the animation."""

    couplings: np.ndarray  # (I, J)
    poses: np.ndarray  # (J, 2)
    activations: np.ndarray  # (J,)
    iteration: int
    step: int
    agreeing: float
    milliseconds: int


def moments(tale: Story, tween: int) -> Iterator[Frame]:
    """The steps of each iteration one after another, each gliding to its result in `tween` frames."""
    R, _, J = tale.couplings.shape
    glide = [0.5 - 0.5 * math.cos(math.pi * k / tween) for k in range(1, tween + 1)]
    c, v, a = tale.couplings[0], np.zeros((J, 2)), np.zeros(J)
    yield Frame(c, v, a, 0, 0, 0.0, 500)
    for r in range(R):
        to_c, to_v, to_a = tale.couplings[r], tale.poses[r], tale.activations[r]
        if r:
            yield from (Frame(c + t * (to_c - c), v, a, r, 0, 0.0, 60) for t in glide)
        yield from (Frame(to_c, v + t * (to_v - v), a + t * (to_a - a), r, 1, 0.0, 60) for t in glide)
        c, v, a = to_c, to_v, to_a
        if r < R - 1:
            yield Frame(c, v, a, r, 2, 0.5, 60)
            yield Frame(c, v, a, r, 2, 1.0, 260)
    yield Frame(c, v, a, R - 1, 1, 0.0, 1500)


def draw_animation(
    path: str | Path,
    votes: Tensor,
    trace: Trace,
    title: str,
    note: str,
    *,
    steps: Sequence[str] = STEPS,
    tween: int = 4,
    **words: Any,
) -> Path:
    """A looping GIF of the same. `steps` are the routing's three lines: couple, sum, agree; `words` as for `story`."""
    from PIL import Image

    tale = story(votes, trace, **words)
    stage, played = Stage(tale, title, note, steps), list(moments(tale, tween))
    frames = [stage.render(moment) for moment in played]
    palette = common_palette(frames)
    packed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [moment.milliseconds for moment in played]
    out = io.BytesIO()
    packed[0].save(out, format="GIF", save_all=True, append_images=packed[1:], duration=times, loop=0, optimize=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(Path(path), out.getvalue())


def common_palette(frames: Sequence["Image"], colours: int = 128) -> "Image":
    """One palette for all frames, or colours would flicker; what is nearly white is made white, as the page is."""
    from PIL import Image

    some = [frames[0], frames[len(frames) // 2], frames[-1]]
    sheet = Image.fromarray(np.concatenate([np.asarray(frame) for frame in some]))
    palette = sheet.quantize(colours, dither=Image.Dither.NONE)
    values = np.array(palette.getpalette()).reshape(-1, 3)
    values[values.min(axis=1) > 246] = 255
    palette.putpalette(values.reshape(-1).tolist())
    return palette


class Stage:
    """The page of the animation: parents above, couplings, entropy and the procedure below."""

    def __init__(self, tale: Story, title: str, note: str, steps: Sequence[str]) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.tale, self.undecided = tale, entropy(tale.couplings)
        J, side, head = len(tale.parents), 2.85, 0.86
        tall = HEAD * side
        wide, high = J * (side + 0.12) + 0.28, head + tall + 2.05
        self.fig = figure(wide, high)
        self.fig.set_dpi(100)
        self.canvas = FigureCanvasAgg(self.fig)

        def place(x: float, y: float, w: float, h: float) -> "Axes":
            return self.fig.add_axes((x / wide, 1 - (y + h) / high, w / wide, h / high))

        page = place(0, 0, wide, high)
        page.set(xlim=(0, wide), ylim=(high, 0))
        page.set_axis_off()
        text(page, 0.2, 0.16, title, 16, weight="bold", va="top")
        text(page, 0.2, 0.5, note, 10.5, MUTED, va="top")
        self.count = page.text(wide - 0.2, 0.18, "", fontsize=13, color=INK, ha="right", va="top")
        planes = [place(0.2 + j * (side + 0.12), head, side, tall) for j in range(J)]
        self.planes = [Plane(ax, tale, j, 1.3) for j, ax in enumerate(planes)]
        y, split = head + tall + 0.4, 0.62 * wide
        text(
            page, 0.2, y - 0.1, "how each child divides itself among the parents (couplings)", 10.5, MUTED, va="bottom"
        )
        self.shares = Shares(place(0.2, y, split - 0.5, 0.85), tale)
        text(page, split, y - 0.1, "how undecided the children are, bits", 10.5, MUTED, va="bottom")
        self._entropy(place(split + 0.1, y, wide - split - 0.4, 0.9))
        at, line = (0.2, 0.2 + 0.335 * wide, 0.2 + 0.715 * wide), {"fontsize": 10.5, "parse_math": False}
        self.lines = [page.text(x, high - 0.2, step, **line) for x, step in zip(at, steps, strict=True)]

    def _entropy(self, ax: "Axes") -> None:
        R, _, J = self.tale.couplings.shape
        ax.set(xlim=(-0.2, R - 0.8), ylim=(0, 1.2 * max(math.log2(J), 0.1)), xticks=[], yticks=[])
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(MUTED)
        (self.curve,) = ax.plot([], [], "-o", color=INK, linewidth=2, markersize=6, clip_on=False)
        self.value = ax.text(0, 0, "", fontsize=10.5, color=INK, ha="left", va="bottom")

    def render(self, moment: Frame) -> "Image":
        from PIL import Image

        for j, plane in enumerate(self.planes):
            plane.show(moment.couplings[:, j], moment.poses[j], moment.activations[j], moment.agreeing)
        self.shares.show(moment.couplings)
        self.count.set_text(f"iteration {moment.iteration + 1} of {len(self.undecided)}")
        seen = self.undecided[: moment.iteration + 1]
        self.curve.set_data(range(len(seen)), seen)
        self.value.set(position=(len(seen) - 0.93, seen[-1] + 0.06), text=f"{seen[-1]:.2f}")
        for n, line in enumerate(self.lines):
            line.set(color=INK if n == moment.step else "#A8A8A8")
        self.canvas.draw()
        return Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
