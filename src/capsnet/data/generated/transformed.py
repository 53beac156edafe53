"""MNIST on a 40x40 canvas: translated only (to train on), or under affNIST's affine maps (to test on).

The experiment [Sabour et al. 2017, Section 5.2]: a network that has only ever seen *shifted* digits is shown turned,
sheared and stretched ones. What it has understood of the digit's parts, it still recognises.

- `expanded-mnist`: digits padded by 6 to 40x40 and shifted by up to 6 pixels, another shift in each epoch.
- `affnist`: test digits rotated by up to 20 degrees, sheared by up to 0.2, each axis scaled by 0.8 to 1.2, then moved
  anywhere they still fit. The original files (Tijmen Tieleman's, 32 versions of each digit) if they are at hand or
  asked for, else made here by the same rules; `dataset.origin` says which.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor

from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.augment import Augment, shift_images, warp_images
from capsnet.data.base import ArrayDataset, Batch, BatchTransform, Dataset
from capsnet.data.preprocess import Preprocess
from capsnet.data.readers._cache import cache_dir
from capsnet.data.readers.affnist import find_affnist, read_affnist
from capsnet.data.readers.mnist import mnist
from capsnet.data.splits import SPLITS

CANVAS = 40
AFFINE = Augment(rotate=20, shear=0.2, scale=0.2)  # affNIST's bounds
VERSIONS = 32
INK = 0.1  # what counts as part of the digit when asking where it still fits; fainter pixels are interpolation's halo


class Transformed(Dataset):
    """Digits on a larger canvas, each moved (and bent) in its own way.

    `versions` of each digit: example n shows digit n mod N. With `fresh`, each epoch moves them anew, else never.

    Shapes of a batch: images (B, 1, 40, 40); targets (B,)
    """

    channels = 1
    image_size = (CANVAS, CANVAS)
    origin = "generated"

    def __init__(
        self,
        digits: ArrayDataset,
        *,
        shift: int | None,
        bend: bool = False,
        versions: int = 1,
        seed: int = 0,
        fresh: bool = False,
        name: str = "transformed",
    ) -> None:
        room = (CANVAS - max(digits.image_size)) // 2
        if room < 0 or (shift is not None and not 0 <= shift <= room):
            raise ValueError(
                f"{digits.image_size[0]}x{digits.image_size[1]} digits on a {CANVAS}x{CANVAS} canvas can be "
                f"shifted by 0 to {room} pixels, got {shift}"
            )
        self.digits, self.shift, self.bend, self.versions = digits, shift, bend, versions
        self.seed, self.fresh = seed, fresh
        self.name, self.class_names = name, digits.class_names
        self.preprocess = _digit(digits.image_size)
        self.targets = np.tile(digits.targets, versions)  # (N,), so that nobody has to draw the digits to know them

    def __len__(self) -> int:
        return self.versions * len(self.digits)

    def batch(
        self, indices: ArrayLike, *, augment: BatchTransform | None = None, seed: int = 0, epoch: int = 0
    ) -> Batch:
        index = self._check_indices(indices)
        when = 1 + epoch if self.fresh else 0
        digits = self.digits.batch(index % len(self.digits))
        images = _enlarge(digits.images)
        if self.bend:
            maps = AFFINE.draw_maps(self.seed, when, index)
            images = warp_images(images, maps, torch.zeros(len(index), 2, dtype=torch.int64))
        offsets = self._offsets(images, index, when)
        images = shift_images(images, torch.from_numpy(offsets), int(np.abs(offsets).max(initial=0)))
        if augment is not None:
            images = augment(images, seed=seed, epoch=epoch, indices=index)
        return Batch(images, digits.targets, torch.from_numpy(index))

    def _offsets(self, images: Tensor, index: NDArray[np.int64], when: int) -> NDArray[np.int64]:
        """Down and right in pixels: within the fixed bound, or (None) anywhere between the canvas's edges. (B, 2)"""
        if self.shift is not None:
            return keyed.integers(self.seed, when, index, 2, "transformed.shift", -self.shift, self.shift + 1)
        ink = images[:, 0].numpy() > INK  # (B, H, W)
        sides = np.asarray(ink.any(axis=2)), np.asarray(ink.any(axis=1))  # which rows, which columns have some
        low = np.stack([side.argmax(axis=1) for side in sides], axis=1)  # (B, 2)
        after = np.stack([side[:, ::-1].argmax(axis=1) for side in sides], axis=1)  # (B, 2)
        free = low + after + 1  # places between the edges where the digit can start
        drawn = keyed.uniform(self.seed, when, index, 2, "transformed.place")
        return np.minimum((drawn * free).astype(np.int64), free - 1) - low


def _digit(image_size: tuple[int, int]) -> Preprocess:
    """Digits keep their size on the larger canvas."""
    return Preprocess(style="digit", height=CANVAS, width=CANVAS, border=(CANVAS - max(image_size)) // 2)


def _enlarge(images: Tensor) -> Tensor:
    """Put the digits in the middle of the canvas. Shapes: (B, 1, h, w) -> (B, 1, 40, 40)"""
    height, width = images.shape[2:]
    top, left = (CANVAS - height) // 2, (CANVAS - width) // 2
    return torch.nn.functional.pad(images, (left, CANVAS - width - left, top, CANVAS - height - top))


@register(
    "expanded-mnist",
    "MNIST on 40x40, translated only: what the affNIST experiment trains on",
    SPLITS,
    source="generated",
    gallery="expanded-mnist",
    objects=1,
    environment="CAPSNET_DATA",
)
def expanded_mnist(
    split: str = "train",
    path: str | Path | None = None,
    *,
    shift: Annotated[int, Field(ge=0)] = 6,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Transformed:
    """Load one split: digits shifted by up to `shift` pixels, anew in each epoch of training and once for testing."""
    return Transformed(
        mnist(split, path), shift=shift, seed=seed, fresh=split.startswith("train"), name=f"expanded-mnist {split}"
    )


@register(
    "affnist",
    "Digits under affine maps, 40x40, to test on: original files, or generated by the same rules",
    ("validation", "test"),
    source=lambda options: "download" if options["source"] == "original" else "generated",
    gallery="affnist",
    objects=1,
    environment="CAPSNET_AFFNIST",
)
def affnist(
    split: str = "test",
    path: str | Path | None = None,
    *,
    source: Literal["auto", "original", "generated"] = "auto",
    versions: Annotated[int, Field(ge=1, le=VERSIONS)] = VERSIONS,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Dataset:
    """Load affNIST's test split, or one made likewise from MNIST's validation digits for choosing on.

    Args:
        path: folder of the original MATLAB files.
        source: `auto` takes the original where its files are at hand (`path`, or downloaded before) and else generates;
            `original` downloads if it must; `generated` never looks.
        versions: how many versions of each digit; the original has 32.
        seed: of the generated ones.
    """
    digits = mnist(split)
    files = _original(split, path, source)
    if files:
        images, labels = read_affnist(files, limit=versions * len(digits))
        name, digit = f"affnist {split} (original files)", _digit(digits.image_size)
        return ArrayDataset(images[:, None], labels, digits.class_names, name=name, preprocess=digit)
    return Transformed(digits, shift=None, bend=True, versions=versions, seed=seed, name=f"affnist {split} (generated)")


def _original(split: str, path: str | Path | None, source: str) -> list[Path]:
    """The files to read, or none if it is to be generated."""
    if source == "generated" or split != "test":
        return []
    if path is not None or source == "original":
        return find_affnist(split, None if path is None else Path(path))
    try:
        return find_affnist(split, cache_dir() / "affnist")  # downloaded before
    except FileNotFoundError:
        return []
