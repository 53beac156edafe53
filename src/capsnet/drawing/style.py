"""The style of all figures: white page, one typeface, Okabe and Ito's colours, pictures on whole pixels.

Matplotlib is imported when something is drawn, and only its object interface is used.
"""

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capsnet._files import write_atomically
from capsnet.metrics import ArrayLike, as_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
INK, MUTED, FAINT = "#222222", "#666666", "#E4E4E4"
BLUE, ORANGE, VERMILLION = "#0072B2", "#E69F00", "#D55E00"  # Okabe & Ito 2008: distinct to colour-blind eyes too
TITLE, BODY, SMALL = 12, 9, 8  # points


def require_matplotlib(what: str = "figures") -> None:
    """Raise one sentence if nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError(f"{what} need matplotlib: pip install 'capsnet[train]'") from None


def figure(width: float, height: float) -> "Figure":
    """An empty white page of width x height inches, known to no global list of figures."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def canvas(width: int, height: int, title: str, note: str) -> tuple["Figure", "Axes"]:
    """A titled page addressed in pixels, origin top left: enlarged pictures fall on whole pixels and stay crisp."""
    width = max(width, 56 + 17 * len(title), 56 + 9 * len(note))  # about what a character of each takes
    fig = figure(width / DPI, height / DPI)
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    text(ax, 28, 24, title, TITLE, weight="bold", va="top")
    text(ax, 28, 58, note, SMALL, MUTED, va="top")
    return fig, ax


def save(fig: "Figure", path: str | Path, plot: bool = False) -> Path:
    """Write the figure as a PNG, whole or not at all.

    A ``plot`` is cropped to what was drawn and reduced to 256 colours; a page of pictures is not.
    """
    from PIL import Image

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    box: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.18} if plot else {}
    drawn, packed = io.BytesIO(), io.BytesIO()
    fig.savefig(drawn, format="png", dpi=DPI, pil_kwargs={"compress_level": 1}, **box)
    image = Image.open(drawn, formats=("PNG",)).convert("RGB")
    (image.quantize(256, dither=Image.Dither.NONE) if plot else image).save(packed, format="PNG")
    return write_atomically(path, packed.getvalue())


def text(ax: "Axes", x: float, y: float, words: str, size: float = BODY, color: str = INK, **style: Any) -> None:
    ax.text(x, y, words, fontsize=size, color=color, parse_math=False, **style)  # a "$" in a class name is a dollar


def heading(ax: "Axes", title: str, note: str, zoom: float = 1, lift: float = 0) -> None:
    """Title and note above a plot, as on a ``canvas``; ``lift`` points higher to leave room for something else."""
    box: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "parse_math": False}
    ax.annotate(title, (0, 1), (0, 24 * zoom + lift), fontsize=TITLE * zoom, color=INK, weight="bold", **box)
    ax.annotate(note, (0, 1), (0, 9 * zoom + lift), fontsize=SMALL * zoom, color=MUTED, **box)


def pixels(images: ArrayLike, ndim: int) -> np.ndarray:
    """Channels last, three of them, in [0, 1]: (..., C, H, W) -> (..., H, W, 3)."""
    pixels = as_array(images)
    if pixels.ndim != ndim or not pixels.size:
        raise ValueError(f"pictures must be ({'D, S' if ndim == 5 else 'N'}, C, H, W) and some, got {pixels.shape}")
    scale = 255 if np.issubdtype(pixels.dtype, np.integer) else 1
    pixels = np.nan_to_num(np.moveaxis(pixels, -3, -1).astype(np.float32) / scale).clip(0, 1)
    return pixels if pixels.shape[-1] == 3 else np.repeat(pixels[..., :1], 3, axis=-1)


def tile(width: int, height: int, target: int) -> tuple[int, int]:
    """Size in pixels at which to show a picture: near ``target`` squared, and if enlarged, by a whole factor."""
    scale = target / math.sqrt(width * height)
    scale = round(scale) if scale >= 1 else scale
    return max(1, round(width * scale)), max(1, round(height * scale))


def label_classes(class_names: Sequence[str] | None, J: int) -> list[str]:
    names = [str(j) for j in range(J)] if class_names is None else [str(name) for name in class_names]
    if len(names) != J:
        raise ValueError(f"class_names must name all {J} classes, got {len(names)} names")
    return names


def short(name: str, room: int) -> str:
    return name if len(name) <= room else name[: room - 1].rstrip() + "…"


def wrap(words: str, width: int) -> str:
    """At most two lines that fit over a picture ``width`` pixels wide."""
    room = max(4, round(width / 10.5))  # a character of BODY size is about this wide
    return "\n".join(short(line, room) for line in textwrap.wrap(words, room, max_lines=2, placeholder="…"))


def signed(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{value:+.2f}".replace("-", "−")  # noqa: RUF001
