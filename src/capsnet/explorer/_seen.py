"""What the network sees: drawings, uploads and data-set images in the model's frame."""

import numpy as np
import torch
from torch import Tensor

from capsnet.data import Preprocess, open_image
from capsnet.inference import preprocessing_of
from capsnet.models import Model
from capsnet.serving.images import Bytes, quantise, to_array
from capsnet.serving.wire import Pixels

LEAST_SIDE = 8  # of an image in which ink is looked for


def to_input(pixels: Pixels, model: Model) -> Tensor:
    """A ``seen`` as the network takes it: (1, C, H, W). It must have the network's own size."""
    height, width = model.image_size
    if (pixels.height, pixels.width, pixels.channels) != (height, width, model.in_channels):
        raise ValueError(
            f"seen must be {width} x {height} with {model.in_channels} channels for this model, "
            f"got {pixels.width} x {pixels.height} with {pixels.channels}"
        )
    planes = to_array(pixels, "seen").transpose(2, 0, 1)
    return torch.from_numpy(planes.astype(np.float32)[None]).div_(255)


def tiled(pictures: Bytes) -> Bytes:
    """Rows and columns of pictures (R, S, H, W, C) as one (R * H, S * W, C)."""
    R, S, H, W, C = pictures.shape
    return pictures.transpose(0, 2, 1, 3, 4).reshape(R * H, S * W, C)


def see(picture: Bytes, model: Model, centre: bool) -> Bytes:
    """What the network sees of a drawing."""
    prepare = preparation(model, centre)
    if prepare.style == "digit" and min(picture.shape[:2]) < LEAST_SIDE:
        height, width = picture.shape[:2]
        raise ValueError(f"a digit needs at least {LEAST_SIDE} x {LEAST_SIDE} pixels, image has {width} x {height}")
    black = np.zeros((*model.image_size, model.in_channels), dtype=np.uint8)
    if not picture.any():
        return black
    if prepare.style == "plain":  # a resize needs two pixels a side: repeat a single row or column
        rows, columns = (2 if side < 2 else 1 for side in picture.shape[:2])
        return quantise(prepare(picture.repeat(rows, axis=0).repeat(columns, axis=1)))
    try:
        return quantise(prepare(picture))
    except ValueError:  # a first dot, or uniform grey: no ink yet, which is not an error of the user's
        return black


def read_upload(content: bytes, model: Model, centre: bool) -> Bytes:
    """An uploaded file as the network sees it."""
    with open_image(content) as image:
        return quantise(preparation(model, centre)(image))


def preparation(model: Model, centre: bool) -> Preprocess:
    """The model's own preprocessing, or, not centred, the picture fitted into its frame as it is."""
    if centre:
        own = preprocessing_of(model)
        assert isinstance(own, Preprocess)
        return own
    height, width = model.image_size
    channels = 3 if model.in_channels == 3 else 1
    return Preprocess(style="plain", height=height, width=width, channels=channels, fit="pad")


def place(picture: Bytes, frame: tuple[int, int], offset: tuple[int, int] = (0, 0)) -> Bytes:
    """A picture (h, w, C) in the middle of a black frame, moved down and right; parts outside the frame are cut off."""
    framed = np.zeros((*frame, picture.shape[2]), dtype=np.uint8)
    into, out = [], []
    for whole, part, move in zip(frame, picture.shape[:2], offset, strict=True):
        start = (whole - part) // 2 + move
        first, last = max(0, start), max(0, start, min(whole, start + part))
        into.append(slice(first, last))
        out.append(slice(first - start, last - start))
    framed[into[0], into[1]] = picture[out[0], out[1]]
    return framed
