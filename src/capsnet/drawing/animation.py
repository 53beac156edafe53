"""Looping GIFs from matplotlib figures."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capsnet._files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image


def render(fig: "Figure") -> "Image":
    """A figure as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    fig.set_dpi(100)
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def save_gif(path: str | Path, pictures: Sequence["Image"], milliseconds: Sequence[int]) -> Path:
    """A looping GIF; each picture is shown for so long."""
    from PIL import Image

    # one palette for all frames, or colours would flicker; what is nearly white becomes white, as the page is
    sheet = np.concatenate([np.asarray(pictures[k]) for k in (0, len(pictures) // 2, -1)])
    palette = Image.fromarray(sheet).quantize(128, dither=Image.Dither.NONE)
    values = np.array(palette.getpalette()).reshape(-1, 3)
    values[values.min(axis=1) > 246] = 255
    palette.putpalette(values.reshape(-1).tolist())
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    out = io.BytesIO()
    first.save(
        out, format="GIF", save_all=True, append_images=rest, duration=list(milliseconds), loop=0, optimize=False
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(Path(path), out.getvalue())
