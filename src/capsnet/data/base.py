"""Data sets: they turn example indices into batches of tensors.

A batch is one gather, one conversion and at most one augmentation, without loader processes. Order and augmentation are
keyed by (seed, epoch, example index), so any batch can be made without those before it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from capsnet.data import keyed
from capsnet.data.preprocess import Preprocess, preprocess_for
from capsnet.data.words import Words


class Sources(NamedTuple):
    """The objects of a picture, which a decoder draws separately."""

    images: Tensor  # (B, K, C, H, W) float32 in [0, 1]: each object alone, where it is in the picture
    classes: Tensor  # (B, K) int64

    def targets(self, num_classes: int) -> Tensor:
        """Multi-hot (B, J): the classes of all objects."""
        return torch.zeros(len(self.classes), num_classes).scatter_(1, self.classes, 1.0)


class Singles(NamedTuple):
    """The pictures that one picture of several objects is made of, and where in it they are put."""

    images: Tensor  # (K, C, h, w) float32 in [0, 1]: each object alone, before it is moved
    classes: Tensor  # (K,) int64
    offsets: Tensor  # (K, 2) int64: pixels down and right from the middle


class Batch(NamedTuple):
    """One batch, as every model takes it."""

    images: Tensor  # (B, C, H, W) float32 in [0, 1]; of texts (B, L) int64, the numbers of their words, 0 is padding
    targets: Tensor  # (B,) int64, or (B, J) float32 multi-hot
    indices: Tensor  # (B,) int64: which examples of the data set these are
    sources: Sources | None = None


def cut_out(batch: Batch) -> Singles:
    """The objects of a batch of one picture with ``sources``, each in the middle of a square just large enough for all.

    Put back at their offsets they are where they were.
    """
    assert batch.sources is not None
    alone, classes = batch.sources.images[0], batch.sources.classes[0]  # (K, C, H, W), (K,)
    frame = np.array(alone.shape[-2:])
    places = [np.argwhere(one.amax(dim=0).numpy() > 0) for one in alone]  # rows and columns of ink
    boxes = np.array(
        [(ink.min(axis=0), ink.max(axis=0) + 1) if len(ink) else (frame // 2, frame // 2) for ink in places]
    )
    side = min(int((boxes[:, 1] - boxes[:, 0]).max()) + 2, *alone.shape[-2:])
    corners = boxes.sum(axis=1) // 2 - side // 2  # (K, 2)
    padded = torch.nn.functional.pad(alone, (side, side, side, side))
    images = [one[:, y : y + side, x : x + side] for one, (y, x) in zip(padded, corners + side, strict=True)]
    return Singles(torch.stack(images), classes, torch.from_numpy(corners - (frame - side) // 2))


class BatchTransform(Protocol):
    """What may be passed as ``augment``: a pure function of its arguments."""

    def __call__(self, images: Tensor, *, seed: int, epoch: int, indices: NDArray[np.int64]) -> Tensor: ...


Augmentation: TypeAlias = BatchTransform | None


class Dataset:
    """Base class: a subclass sets the first four attributes and overrides ``__len__`` and ``batch``.

    ``preprocess`` turns an image file (or a text) into an input of this kind, and is stored with the weights of a model
    that is trained on the data set. By default pictures keep their colours and are resized. It is None if no image file
    can become an input.
    """

    name: str
    class_names: tuple[str, ...]
    image_size: tuple[int, int]  # (H, W); of texts (1, L)
    channels: int
    origin: Literal["original", "generated"] = "original"  # files of that name, or made here by the same rules

    @cached_property
    def preprocess(self) -> Preprocess | Words | None:
        return preprocess_for(self.image_size, self.channels)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of a text by number; empty if the examples are pictures."""
        return self.preprocess.vocabulary if isinstance(self.preprocess, Words) else ()

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        raise NotImplementedError

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        """Make the batch of these examples; ``seed`` and ``epoch`` only matter if something is random."""
        raise NotImplementedError

    def singles(self, number: int) -> Singles | None:
        """The pictures that example ``number`` is made of; None if examples are not made of other pictures.

        A generated data set may take numbers beyond its length, and call its examples otherwise in each epoch.
        """
        return None

    def originals(self) -> NDArray[np.int64] | None:
        """Of which original each example is a version (N,), where originals have several; None: each is its own."""
        return None

    def subset(self, indices: ArrayLike, *, name: str | None = None) -> "Dataset":
        """Keep only these examples, in this order, numbered from 0."""
        return Subset(self, indices, name=name)

    def __repr__(self) -> str:
        height, width = self.image_size
        return f"{self.name}: {len(self):,} images {self.channels}x{height}x{width}, {self.num_classes} classes"

    def _check_indices(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Negative indices are refused: they would name the same example by another key."""
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"indices must be one-dimensional integers, got shape {array.shape} of {array.dtype}")
        if array.size and (int(array.min()) < 0 or int(array.max()) >= len(self)):
            raise ValueError(f"indices must lie in 0..{len(self) - 1}, got {array.min()}..{array.max()}")
        return array.astype(np.int64)


class ArrayDataset(Dataset):
    """A data set that fits in memory: images as stored (uint8, or floats in [0, 1]) and their targets.

    The arrays are neither copied nor written to; batches are converted to float, so MNIST takes 47 MB instead of 188.

    Shapes: images (N, C, H, W); targets (N,) class numbers or (N, J) multi-hot
    """

    def __init__(
        self,
        images: NDArray,
        targets: NDArray,
        class_names: Sequence[str] | None = None,
        *,
        name: str = "arrays",
        preprocess: Preprocess | None = None,
    ) -> None:
        self.name = name
        self.images = _check_images(np.asarray(images))
        self.targets, self.class_names = _check_targets(np.asarray(targets), class_names, len(self.images))
        self.channels = self.images.shape[1]
        self.image_size = (self.images.shape[2], self.images.shape[3])
        if preprocess is not None:
            self.preprocess = preprocess

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        index = self._check_indices(indices)
        images = torch.from_numpy(self.images.take(index, axis=0)).to(torch.float32)
        if self.images.dtype == np.uint8:
            images = images.div_(255)
        if augment is not None:
            images = augment(images, seed=seed, epoch=epoch, indices=index)
        return Batch(images, torch.from_numpy(self.targets.take(index, axis=0)), torch.from_numpy(index))

    def subset(self, indices: ArrayLike, *, name: str | None = None) -> "ArrayDataset":
        """Keep only these examples, in this order, numbered from 0."""
        index = self._check_indices(indices)
        subset = ArrayDataset(
            self.images[index], self.targets[index], self.class_names, name=name or f"{self.name} (subset)"
        )
        subset.preprocess = self.preprocess
        return subset


class Subset(Dataset):
    """Some examples of any data set. They keep their keys, so generated ones stay the same."""

    def __init__(self, dataset: Dataset, indices: ArrayLike, *, name: str | None = None) -> None:
        self.dataset, self.indices = dataset, dataset._check_indices(indices)
        self.name = name or f"{dataset.name} (subset)"
        self.class_names, self.image_size, self.channels = dataset.class_names, dataset.image_size, dataset.channels
        self.preprocess, self.origin = dataset.preprocess, dataset.origin

    def __len__(self) -> int:
        return len(self.indices)

    def originals(self) -> NDArray[np.int64] | None:
        all_of_them = self.dataset.originals()
        return None if all_of_them is None else all_of_them[self.indices]

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        index = self._check_indices(indices)
        batch = self.dataset.batch(self.indices[index], augment=augment, seed=seed, epoch=epoch)
        return batch._replace(indices=torch.from_numpy(index))


def _check_images(images: NDArray) -> NDArray:
    if images.ndim != 4 or 0 in images.shape:
        raise ValueError(f"images must be a non-empty array (N, C, H, W), got shape {images.shape}")
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise ValueError(f"images must be uint8, or floats in [0, 1], got {images.dtype}")
    if np.isnan(images).any():
        bad = np.isnan(images).any(axis=(1, 2, 3))
        raise ValueError(f"{int(bad.sum())} of {len(images)} images contain NaN pixels, the first is {bad.argmax()}")
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        raise ValueError(f"float images must lie in [0, 1], got values from {low:g} to {high:g}")
    return images.astype(np.float32, copy=False)


def _check_targets(targets: NDArray, class_names: Sequence[str] | None, count: int) -> tuple[NDArray, tuple[str, ...]]:
    """Targets as int64 (N,) or float32 (N, J), and the class names, by default the class numbers."""
    if targets.ndim not in (1, 2) or len(targets) != count:
        raise ValueError(f"{count} images need targets of shape ({count},) or ({count}, J), got {targets.shape}")
    if targets.ndim == 2:
        names = tuple(class_names) if class_names is not None else tuple(str(j) for j in range(targets.shape[1]))
        if targets.shape[1] != len(names) or not names:
            raise ValueError(f"multi-hot targets have {targets.shape[1]} columns for {len(names)} class names")
        if not np.isin(targets, (0, 1)).all():
            raise ValueError("multi-hot targets must be 0 or 1 everywhere")
        return targets.astype(np.float32), names
    if targets.dtype.kind not in "iu":
        raise ValueError(f"class numbers must be integers, got {targets.dtype}")
    low, high = int(targets.min()), int(targets.max())
    names = tuple(class_names) if class_names is not None else tuple(str(j) for j in range(high + 1))
    if low < 0 or high >= len(names):
        raise ValueError(f"class numbers must lie in 0..{len(names) - 1}, got {low}..{high}")
    return targets.astype(np.int64), names


def num_batches(count: int | Dataset, batch_size: int, *, drop_last: bool = False) -> int:
    """The number of batches of an epoch."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    total = count if isinstance(count, int) else len(count)
    return total // batch_size if drop_last else -(-total // batch_size)


def batch_indices(
    count: int,
    batch_size: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = False,
    start: int = 0,
    drop_last: bool = False,
) -> Iterator[NDArray[np.int64]]:
    """Yield the example indices of each batch of an epoch, from batch ``start`` on.

    With N processes each takes a part of every array, and the union is what one process would see.
    """
    total = num_batches(count, batch_size, drop_last=drop_last)
    if not 0 <= start <= total:
        raise ValueError(f"start must lie in 0..{total} (batches per epoch), got {start}")
    order = keyed.permutation(seed, epoch, count) if shuffle else np.arange(count, dtype=np.int64)
    return (order[i * batch_size : (i + 1) * batch_size] for i in range(start, total))


def batches(
    dataset: Dataset,
    batch_size: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = False,
    augment: BatchTransform | None = None,
    start: int = 0,
    drop_last: bool = False,
) -> Iterator[Batch]:
    """Yield the batches of one epoch; ``start`` skips that many without making them, to resume within an epoch."""
    order = batch_indices(
        len(dataset), batch_size, seed=seed, epoch=epoch, shuffle=shuffle, start=start, drop_last=drop_last
    )
    return (dataset.batch(index, augment=augment, seed=seed, epoch=epoch) for index in order)
