"""From any image to a model's input: the one preprocessing of ``predict``, the web page and export.

It is stored in the weights file, so that pictures are prepared as in training.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import Tensor

from capsnet.data._frame import BOX, extent, frame_ink
from capsnet.data._ink import WORK, Ink, find_ink
from capsnet.data._pixels import ImageLike, Pixels, name_of, open_image, read_pixels, resize

Side = Annotated[int, Field(ge=8, le=4096)]
White = Annotated[int, Field(ge=256, le=65535)]
Fit: TypeAlias = Literal["crop", "pad", "stretch"]

LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R 601, as Pillow
_LONGEST = 4096  # pixels of the longer side: a longer picture is reduced even if its shorter side is small
AS_IT_IS = "as it is, because it has the size, the margin and the centre of MNIST's digits"
_SPARE = 4  # a large picture is first reduced to this many times the frame, by cheap averaging


class Read(NamedTuple):
    """An image as a model's input, and how it was read, in words."""

    tensor: Tensor  # (C, H, W)
    how: str


class Preprocess(BaseModel):
    """How an image becomes a tensor (C, H, W), float32 in [0, 1].

    - "digit": ink is found (dark on light or light on dark, photo or drawing), cropped, scaled into the middle 20/28 of
      the frame and centred by mass, white on black, as MNIST was made. An image in this format is not changed.
      ``border`` pixels on each side are added: digits of MNIST's size on a larger canvas.
    - "plain": the colours are kept, the image is resized. ``fit`` is for another aspect ratio than the frame's: "crop"
      covers the frame and cuts off the rest, "pad" keeps the whole picture between black bars, "stretch" distorts it.

    ``white`` is the grey level that counts as white where levels do not fit 8 bits; None is 65535, the most of 16 bits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    style: Literal["digit", "plain"] = "digit"
    height: Side = 28
    width: Side = 28
    channels: Literal[1, 3] = 1
    fit: Fit = "crop"
    border: Annotated[int, Field(ge=0, le=2048)] = 0
    white: White | None = None

    @model_validator(mode="after")
    def _leave_room(self) -> "Preprocess":
        if min(self.height, self.width) - 2 * self.border < 8:
            raise ValueError(f"a border of {self.border} leaves less than 8 pixels of {self.height} x {self.width}")
        return self

    @model_serializer(mode="wrap")
    def _without_default_white(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store ``white`` only if it is set: most weights files are older than it."""
        return {key: value for key, value in handler(self).items() if key != "white" or value is not None}

    def __call__(self, image: ImageLike) -> Tensor:
        """Prepare one image: a path, the bytes of a file, a Pillow image, or an array (H, W), (H, W, C) or (C, H, W).

        Raises ValueError if it cannot be used, FileNotFoundError if there is no such file.
        """
        return self.read(image).tensor

    def read(self, image: ImageLike) -> Read:
        """The same, with a sentence on how the image was read."""
        name = name_of(image)
        with open_image(image) if isinstance(image, str | Path | bytes) else nullcontext(image) as opened:
            enough = 2 * WORK if self.style == "digit" else self._enough(opened)
            pixels = read_pixels(opened, enough=enough, white=self.white, name=name)
        planes, how = self._digit(pixels, name) if self.style == "digit" else self._plain(pixels, name)
        return Read(torch.from_numpy(np.ascontiguousarray(planes, dtype=np.float32)), how)

    def _digit(self, pixels: Pixels, name: str) -> tuple[NDArray[np.float32], str]:
        if min(pixels.shape[:2]) < 8:
            height, width = pixels.shape[:2]
            raise ValueError(f"{name}: a digit needs at least 8x8 pixels, the image has {height}x{width}")
        height, width = self.height - 2 * self.border, self.width - 2 * self.border
        try:
            framed, how = already_framed(pixels, self.height, self.width), AS_IT_IS
            if framed is None:
                inner = already_framed(pixels, height, width)
                if inner is None:
                    ink = find_ink(pixels)
                    inner, how = frame_ink(ink.map, height, width), describe_ink(ink)
                framed = np.pad(inner, self.border)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return np.repeat(framed[None], self.channels, axis=0), how

    def _plain(self, pixels: Pixels, name: str) -> tuple[NDArray[np.float32], str]:
        height, width = pixels.shape[:2]
        if min(height, width) < 2:
            raise ValueError(f"{name}: an image needs at least 2x2 pixels, this one has {height}x{width}")
        if self.channels == 1:
            pixels = (pixels @ LUMA)[:, :, None]
        same = (height, width) == (self.height, self.width)
        done = {"crop": "its middle cropped", "pad": "between black bars", "stretch": "distorted"}[self.fit]
        even = height * self.width == width * self.height
        how = "as it is" if same else f"resized to {self.width} x {self.height}" + ("" if even else f", {done}")
        return np.clip(self._fitted(pixels), 0, 1).transpose(2, 0, 1), how + (", in grey" if self.channels == 1 else "")

    def _fitted(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Resize (h, w, C) to the frame's (H, W, C)."""
        frame, (height, width) = (self.height, self.width), pixels.shape[:2]
        if self.fit == "stretch":
            return resize(pixels, frame)
        if self.fit == "pad":
            scale = min(self.height / height, self.width / width)
            high, wide = max(1, round(scale * height)), max(1, round(scale * width))
            top, left = (self.height - high) // 2, (self.width - wide) // 2
            padded = np.zeros((*frame, pixels.shape[2]), dtype=np.float32)
            padded[top : top + high, left : left + wide] = resize(pixels, (high, wide))
            return padded
        scale = min(height / self.height, width / self.width)
        high, wide = scale * self.height, scale * self.width
        top, left = (height - high) / 2, (width - wide) / 2
        # rounding may leave the picture by the last bit, which Pillow refuses
        box = max(0.0, left), max(0.0, top), min(width, left + wide), min(height, top + high)
        return resize(pixels, frame, box=box)

    def _enough(self, image: Image.Image | NDArray) -> int | None:
        """The least size of the longer side for which the shorter one has enough pixels.

        With it 12 megapixels are decoded 20 times faster for a frame of 64x64, in a tenth of the memory.
        """
        if not isinstance(image, Image.Image) or min(image.size) == 0:
            return None
        size = image.size
        shorter = _SPARE * max(self.height, self.width)
        return min(-(-shorter * max(size) // min(size)), max(shorter, _LONGEST))


def describe_ink(ink: Ink) -> str:
    """How a digit was found, in words: which ink, in what kind of picture, where."""
    tone = "dark ink on light paper" if ink.dark else "light ink on dark paper"
    top, left, bottom, right = extent(ink.map)
    height, width = ink.map.shape
    share = f"{100 * (bottom - top) / height:.0f} % of the height and {100 * (right - left) / width:.0f} % of the width"
    sides = {"top": top == 0, "bottom": bottom == height, "left": left == 0, "right": right == width}
    touched = [side for side, touches in sides.items() if touches]
    beyond = f"; it touches the border ({', '.join(touched)}), where a part may be missing" if touched else ""
    return f"{tone}, in a {ink.kind}; cropped to {share}, scaled and centred{beyond}"


def preprocess_for(
    image_size: tuple[int, int], channels: int, style: Literal["digit", "plain"] = "plain", **options: Any
) -> Preprocess | None:
    """The ``Preprocess`` for inputs of this size, or None if no image file can become such an input."""
    if channels not in (1, 3) or not all(8 <= side <= 4096 for side in image_size):
        return None
    return Preprocess(height=image_size[0], width=image_size[1], channels=channels, style=style, **options)


def already_framed(pixels: Pixels, height: int, width: int) -> NDArray[np.float32] | None:
    """Recognise an image in MNIST's format (either polarity) and return it white on black; else return None.

    It would only be blurred by another resampling. It has the frame's size, an empty margin, the full range of grey,
    and its centre of mass in the middle.
    """
    if pixels.shape[:2] != (height, width):
        return None
    grey = pixels.mean(axis=2)
    margin = max(1, round((1 - BOX) / 2 * 0.4 * min(height, width)))  # of MNIST's 4 pixels, some digits need two
    border = np.ones((height, width), dtype=bool)
    border[margin:-margin, margin:-margin] = False
    if grey[border].mean() > 0.5:
        grey = 1 - grey
    if grey[border].max() > 0.1 or grey.max() < 0.9:
        return None
    mass = float(grey.sum())
    y = float((grey.sum(axis=1) * np.arange(height)).sum()) / mass - height / 2  # as MNIST: zero is pixel (14, 14)
    x = float((grey.sum(axis=0) * np.arange(width)).sum()) / mass - width / 2
    return grey if max(abs(y) / height, abs(x) / width) < 1.2 / 28 else None
