"""From what people give to ``fit`` and ``predict`` to pictures (N, C, H, W) in [0, 1]."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data
from torch.utils.data import Dataset as TorchDataset

from capsnet import data
from capsnet.data.labelled import as_array, as_picture, images_of, is_columns, with_channels

FRAME = 32  # pixels a side of files, unless image_shape says otherwise


class Reader:
    """How the training pictures were read, so that others are read in the same way.

    Args:
        image_shape: (H, W) or (H, W, C) of features, files and pictures of a data set.
    """

    def __init__(self, image_shape: tuple[int, ...] | None) -> None:
        if image_shape is not None and len(image_shape) not in (2, 3):
            raise ValueError(f"image_shape must be (H, W) or (H, W, C), got {image_shape}")
        self.image_shape = image_shape
        self.preprocess: data.Preprocess | None = None  # how a file becomes such a picture, if it can
        self.low, self.high = 0.0, 1.0
        self.usual = True  # pictures of uint8 or in [0, 1], not other numbers
        self.shape: tuple[int, ...] = ()  # (C, H, W)

    def read_data_set(self, source: Any) -> tuple[NDArray[np.float32], NDArray]:
        """The pictures and the labels of a data set of (image, label)."""
        images, labels = self._adapted(source, self.image_shape[:2] if self.image_shape else None)
        return images, labels

    def read(self, estimator: Any, X: Any) -> NDArray[np.float32]:
        """Training pictures, from which the scale is taken."""
        if are_pictures(X):
            return self._adapted([(picture, 0) for picture in X], self._frame(X))[0]
        X = stacked(X)
        numbers = self._numbers(estimator, X, True)
        low, high = float(numbers.min()), float(numbers.max())
        usual = None
        if _has_pictures(X) and numbers.dtype == np.uint8:
            usual = 0.0, 255.0
        elif _has_pictures(X) and numbers.dtype.kind == "f" and low >= 0 and high <= 1:
            usual = 0.0, 1.0
        channels, height, width = self.shape = tuple(numbers.shape[1:])
        self.low, self.high = usual or (low, high)
        self.usual = usual is not None
        self.preprocess = data.preprocess_for((height, width), channels) if usual else None
        return self._scaled(numbers)

    def read_again(self, estimator: Any, X: Any) -> NDArray[np.float32]:
        """Other pictures, as the training pictures were read."""
        if not is_data_set(X) and not are_pictures(X):
            return self._scaled(self._numbers(estimator, stacked(X), False))
        if isinstance(X, data.Dataset):
            pictures = X.batch(range(len(X))).images.numpy()
        elif self.preprocess is None:
            raise ValueError(
                f"the classifier was trained on numbers from {self.low:g} to {self.high:g}, laid out as (C, H, W) = "
                f"{self.shape}: give an array of such numbers, not files, Pillow images or a data set"
            )
        else:
            images = images_of(X) if is_data_set(X) else X
            pictures = np.stack([self.preprocess(as_picture(image)).numpy() for image in images])
        self._check(pictures)
        return pictures

    def _adapted(self, source: Any, size: Any) -> tuple[NDArray[np.float32], NDArray]:
        dataset = data.adapt(source, size=size)
        batch = dataset.batch(range(len(dataset)))
        if batch.targets.ndim != 1:
            raise ValueError("a classifier needs one label per image, the data set has several")
        prepare, names, labels = dataset.preprocess, dataset.class_names, batch.targets.numpy()
        self.preprocess = prepare if isinstance(prepare, data.Preprocess) else None
        self.shape = tuple(batch.images.shape[1:])
        numbered = names == tuple(str(j) for j in range(len(names)))
        return batch.images.numpy(), labels if numbered else np.array(names)[labels]

    def _numbers(self, estimator: Any, X: Any, first: bool) -> NDArray:
        """Numbers (N, C, H, W) as they were given. Features are padded with the least number."""
        X = as_array(X) if isinstance(X, torch.Tensor) else X
        if _has_pictures(X):
            array: NDArray = check_array(X, allow_nd=True, dtype="numeric", input_name="X")
            estimator.n_features_in_ = math.prod(array.shape[1:])
            pictures = with_channels(array)
        else:
            checked: Any = validate_data(estimator, X, reset=first, dtype=[np.float64, np.float32])
            array = checked
            height, width, channels = self._layout(array.shape[1])
            missing = height * width * channels - array.shape[1]
            padded = np.pad(array, ((0, 0), (0, missing)), constant_values=array.min() if first else self.low)
            pictures = padded.reshape(len(array), height, width, channels).transpose(0, 3, 1, 2)
        if not first:
            self._check(pictures)
        return pictures

    def _frame(self, pictures: Any) -> tuple[int, ...]:
        """(H, W) of files and Pillow images: that of the images, if they have one that files can be brought to."""
        if self.image_shape:
            return self.image_shape[:2]
        sizes = {getattr(picture, "size", (0, 0)) for picture in pictures}
        width, height = sizes.pop()
        return (FRAME, FRAME) if sizes or data.preprocess_for((height, width), 1) is None else (height, width)

    def _layout(self, features: int) -> tuple[int, int, int]:
        """(H, W, C) of the picture that features are laid out in."""
        side = math.isqrt(features - 1) + 1
        height, width, *channels = self.image_shape or (side, side)
        channel = channels[0] if channels else 1
        if height * width * channel < features:
            raise ValueError(f"image_shape {self.image_shape} has no room for {features} features")
        return height, width, channel

    def _scaled(self, numbers: NDArray) -> NDArray[np.float32]:
        high = self.high
        if self.usual:  # their type and range tell what is white, whatever the classifier was trained on
            most = float(numbers.max())
            high = 1.0 if numbers.dtype.kind == "f" and most <= 1 else 255.0
            if most > high or (self.high == 1 and high == 255 and numbers.dtype.kind == "f"):
                raise ValueError(f"pictures are uint8, or floats in [0, 1], got {numbers.dtype} up to {most:g}")
        return np.clip((numbers - self.low) / ((high - self.low) or 1.0), 0, 1).astype(np.float32)

    def _check(self, pictures: NDArray) -> None:
        if tuple(pictures.shape[1:]) != self.shape:
            raise ValueError(f"expected pictures of (C, H, W) = {self.shape}, got {tuple(pictures.shape[1:])}")


def _has_pictures(X: Any) -> bool:
    """Whether an array has more axes than features have."""
    return isinstance(X, np.ndarray | torch.Tensor) and X.ndim > 2


def is_data_set(X: Any) -> bool:
    """Whether this is a data set of (image, label): of torch, of Hugging Face or of this package."""
    return is_columns(X) or isinstance(X, TorchDataset | data.Dataset)


def are_pictures(X: Any) -> bool:
    """Whether these are names of files or Pillow images."""
    return _one_axis(X) and len(X) > 0 and all(isinstance(one, str | Path | Image.Image) for one in X)


def stacked(X: Any) -> Any:
    """A list of arrays (H, W), (H, W, C) or (C, H, W) as one array; everything else as it is."""
    if not _one_axis(X) or not len(X) or as_array(next(iter(X))).ndim < 2:
        return X
    arrays = [as_array(one) for one in X]
    if others := {array.shape for array in arrays} - {arrays[0].shape}:
        raise ValueError(
            f"arrays in a list must have one shape, got {arrays[0].shape} and {min(others)}: resize them, or give "
            "Pillow images or files, which are resized to image_shape"
        )
    return np.stack(arrays)


def _one_axis(X: Any) -> bool:
    return isinstance(X, list | tuple) or getattr(X, "ndim", 0) == 1
