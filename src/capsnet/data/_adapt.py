"""``adapt``: a ``Dataset`` from what people hold in Python, see ``labelled``."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsnet.data._pixels import open_image, read_pixels
from capsnet.data.base import ArrayDataset, Dataset
from capsnet.data.labelled import Labelled, as_array, as_picture, labelled, number_labels, with_channels
from capsnet.data.preprocess import LUMA, Preprocess, preprocess_for

COLOUR = 8 / 255  # channels that differ less are grey
_ORIENTATION = 0x0112  # EXIF: 1 is upright


def adapt(
    source: Any,
    class_names: Sequence[str] | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    name: str = "your data",
) -> Dataset:
    """A ``Dataset`` from examples in Python, read once into memory.

    A transform of a torch data set runs once per example, so random augmentation belongs into the configuration.

    Args:
        source: a data set of this package, which is returned as it is; a pair of arrays (X, y), X of shape (N, H, W),
            (N, H, W, C) or (N, C, H, W); a torch map-style ``Dataset`` or a sequence of (image, label); or a Hugging
            Face ``datasets.Dataset``. Images are tensors, arrays (uint8, or float in [0, 1]), Pillow images or files.
            Labels are class numbers from 0, texts, or multi-hot rows.
        class_names: the classes by number; by default what the source says (``classes``, a ``ClassLabel``), the
            sorted texts, or the numbers.
        size: height and width to resize to (one number for a square), cropped to that aspect ratio; None keeps the
            size, which must then be the same for all.
        name: what errors and reports call the data.
    """
    if isinstance(source, Dataset):
        if class_names is not None and tuple(class_names) != source.class_names:
            raise ValueError(f"{source.name} has the classes {', '.join(source.class_names)}: leave out class_names")
        return source
    examples = labelled(source)
    if not len(examples):
        raise ValueError("the data set is empty")
    images, labels, prepare = _read(examples, size)
    targets, names = number_labels(_stacked(labels), class_names if class_names is not None else examples.class_names)
    try:
        return ArrayDataset(images, targets, names, name=name, preprocess=prepare)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _stacked(labels: Sequence[Any]) -> NDArray:
    arrays = [as_array(label) for label in labels]
    if len({array.shape for array in arrays}) > 1:
        raise ValueError("labels must all be class numbers, all texts, or all multi-hot rows of one length")
    return np.stack(arrays)


def _read(examples: Labelled, size: int | tuple[int, int] | None) -> tuple[NDArray, Sequence[Any], Preprocess | None]:
    """The images (N, C, H, W), the labels, and how a file becomes such an image, if that is not the default."""
    if size is not None:
        return _resized(examples, (size, size) if isinstance(size, int) else (size[0], size[1]))
    pairs = (examples[i] for i in range(len(examples)))
    planes, labels = zip(*((as_planes(image), label) for image, label in pairs), strict=True)
    most = max(len(image) for image in planes)
    planes = [np.repeat(image, most, axis=0) if len(image) == 1 else image for image in planes]
    if others := {image.shape for image in planes} - {planes[0].shape}:
        one, other = (" x ".join(map(str, shape)) for shape in (planes[0].shape, min(others)))
        raise ValueError(f"images must have one size, got {one} and {other}: adapt(source, size=64) resizes them")
    if any(image.dtype != np.uint8 for image in planes):
        planes = [image / np.float32(255) if image.dtype == np.uint8 else image for image in planes]
    return np.stack(planes), labels, None


def _resized(examples: Labelled, size: tuple[int, int]) -> tuple[NDArray, Sequence[Any], Preprocess]:
    """Images of this size as bytes: grey, unless one of them has colour."""
    prepare = preprocess_for(size, 3)
    if prepare is None:
        raise ValueError(f"size must be from 8 to 4096 pixels, got {size[0]} x {size[1]}")
    images, labels, colour = np.zeros((len(examples), 3, *size), dtype=np.uint8), [], False
    for i in range(len(examples)):
        image, label = examples[i]
        planes = prepare(as_picture(image)).numpy()
        colour = colour or bool(np.ptp(planes, axis=0).max() > COLOUR)
        images[i] = np.rint(planes * 255)
        labels.append(label)
    if colour:
        return images, labels, prepare
    grey = np.rint(np.tensordot(images, LUMA, (1, 0))).astype(np.uint8)[:, None]
    return grey, labels, prepare.model_copy(update={"channels": 1})


def as_planes(image: Any) -> NDArray:
    """One image as an array (C, H, W), uint8 or float."""
    picture = as_picture(image)
    if isinstance(picture, str | Path | bytes | Image.Image):
        with open_image(picture) if isinstance(picture, str | Path | bytes) else nullcontext(picture) as opened:
            upright = opened.getexif().get(_ORIENTATION, 1) == 1
            if opened.mode in ("L", "RGB") and upright and "transparency" not in opened.info:
                return with_channels(np.asarray(opened)[None])[0]
            pixels = read_pixels(opened)  # (H, W, 3)
            grey = np.ptp(pixels, axis=2).max() <= COLOUR
            return (pixels[:, :, :1] if grey else pixels).transpose(2, 0, 1)
    array = np.asarray(picture)
    if array.ndim not in (2, 3) or array.dtype.kind not in "buif":
        raise ValueError(
            f"an image must be a tensor or array (H, W), (H, W, C) or (C, H, W), a Pillow image or a file, got "
            f"{type(image).__name__} of shape {array.shape} and {array.dtype}"
        )
    array = with_channels(array[None])[0]
    return array.astype(np.float32) if array.dtype.kind == "b" else array
