"""Pictures between the wire, files of strangers and tensors."""

import base64
import binascii
import io
import struct
import warnings
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from capsnet.data import Preprocess
from capsnet.inference import preprocessing_of
from capsnet.models import Model

Bytes = NDArray[np.uint8]  # (H, W, C)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")  # Pillow knows more, some of which start other programs
MOST_PIXELS = 40_000_000
LEAST_SIDE = 8  # of a picture in which ink is looked for


class Unsupported(ValueError):
    """What was uploaded is no picture."""


class WirePixels(Protocol):
    width: int
    height: int
    channels: Any
    data: str


def to_bytes(pixels: WirePixels, what: str) -> Bytes:
    """A picture from the wire, (H, W, C)."""
    shape = (pixels.height, pixels.width, pixels.channels)
    try:
        raw = base64.b64decode(pixels.data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{what}.data is not base64") from None
    expected = shape[0] * shape[1] * shape[2]
    if len(raw) != expected:
        raise ValueError(
            f"{what}.data has {len(raw)} bytes, {pixels.width} x {pixels.height} x {pixels.channels} are {expected}"
        )
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def to_wire(picture: Bytes) -> dict[str, Any]:
    """(H, W, C) for the wire."""
    height, width, channels = picture.shape
    data = base64.b64encode(picture.tobytes()).decode("ascii")
    return {"width": width, "height": height, "channels": channels, "data": data}


def to_input(pixels: WirePixels, model: Model) -> Tensor:
    """A ``seen`` as the network takes it: (1, C, H, W). It has to be of the network's own size."""
    height, width = model.image_size
    if (pixels.height, pixels.width, pixels.channels) != (height, width, model.in_channels):
        raise ValueError(
            f"seen must be {width} x {height} with {model.in_channels} channels for this model, "
            f"got {pixels.width} x {pixels.height} with {pixels.channels}"
        )
    planes = to_bytes(pixels, "seen").transpose(2, 0, 1)
    return torch.from_numpy(planes.astype(np.float32)[None]).div_(255)


def quantise(pictures: Tensor) -> Bytes:
    """Pictures (..., C, H, W) in [0, 1] as bytes (..., H, W, C)."""
    return pictures.mul(255).round_().clamp_(0, 255).to(torch.uint8).movedim(-3, -1).numpy()


def tiled(pictures: Bytes) -> Bytes:
    """Rows and columns of pictures (R, S, H, W, C) as one (R * H, S * W, C)."""
    R, S, H, W, C = pictures.shape
    return pictures.transpose(0, 2, 1, 3, 4).reshape(R * H, S * W, C)


def see(picture: Bytes, model: Model, centre: bool) -> tuple[Bytes, bool]:
    """What the network gets to see of a drawing, and whether there is nothing on it."""
    prepare = preparation(model, centre)
    if prepare.style == "digit" and min(picture.shape[:2]) < LEAST_SIDE:
        height, width = picture.shape[:2]
        raise ValueError(f"a digit needs at least {LEAST_SIDE} x {LEAST_SIDE} pixels, image has {width} x {height}")
    black = np.zeros((*model.image_size, model.in_channels), dtype=np.uint8)
    if not picture.any():
        return black, True
    if prepare.style == "plain":
        return quantise(prepare(_at_least_two(picture))), False
    try:
        return quantise(prepare(picture)), False
    except ValueError:  # a first dot, or an even grey: no ink to be found yet, which is no fault of the visitor's
        return black, True


def read_upload(content: bytes, model: Model, centre: bool) -> Bytes:
    """A stranger's file as the network sees it."""
    with open_picture(content) as image:
        return quantise(preparation(model, centre)(image))


def open_picture(content: bytes) -> Image.Image:
    """A stranger's file, with Pillow's own limits on and ours before any pixel is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our limit is below
            image = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise Unsupported(f"this is not a picture: the formats are {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError:
        raise ValueError(f"the picture is too large: at most {MOST_PIXELS:,} pixels") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error) as error:
        raise ValueError(f"the picture is damaged or incomplete ({error})") from None
    if image.width * image.height > MOST_PIXELS:
        size = f"{image.width} x {image.height}"
        raise ValueError(f"the picture is too large: {size}, at most {MOST_PIXELS:,} pixels are taken")
    return image


def preparation(model: Model, centre: bool) -> Preprocess:
    """How pictures are prepared for a model: in its own way, or as they are."""
    if centre:
        own = preprocessing_of(model)
        assert isinstance(own, Preprocess)
        return own
    height, width = model.image_size
    channels = 3 if model.in_channels == 3 else 1
    return Preprocess(style="plain", height=height, width=width, channels=channels, fit="pad")


def _at_least_two(picture: Bytes) -> Bytes:
    """A resize needs two pixels a side; fewer are repeated."""
    times = [2 if side < 2 else 1 for side in picture.shape[:2]]
    return picture.repeat(times[0], axis=0).repeat(times[1], axis=1)
