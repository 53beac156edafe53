"""Outlines: several overlapping outlines, or a digit and an outline, with the owner of every pixel.

After the data of Reichert and Serre 2014 (arXiv 1312.6115), on which networks bind pixels to objects by phase: squares,
triangles, circles and diamonds of one size at random places, drawn with a line of one pixel. The outlines of a picture
are of different classes. With ``digit=true`` the first object is an MNIST digit of the same split, moved by up to 2
pixels. Every picture is a pure function of (seed, split, epoch, index); each training epoch shows new ones.

``owners`` says to which object each pixel belongs, for these and for any other data with ``sources``, as MultiMNIST.
"""

from typing import Annotated

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor

from capsnet._names import check_name
from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset, Augmentation, Batch, Dataset, Singles, Sources, cut_out
from capsnet.data.generated._shapes_draw import ELLIPSE, RECTANGLE, TRIANGLE, draw
from capsnet.data.readers.mnist import mnist
from capsnet.data.splits import SPLITS

OUTLINES = ("square", "triangle", "circle", "diamond")
COUNTS = {"train": 20_000, "validation": 2_000, "test": 2_000}
SHIFT = 2  # of a digit, in pixels
INK = 0.5  # from here on a pixel is part of an object
BACKGROUND, OVERLAP = 0, -1
"""What ``owners`` gives to pixels of no object and of several; object k has k + 1."""

_SMALLEST = 24
_KINDS = np.array([RECTANGLE, TRIANGLE, ELLIPSE, RECTANGLE])
_ANGLES = np.array([0, 0, 0, np.pi / 4])
_WIDTHS = np.array([0.34, 0.44, 0.41, 0.31])  # of the picture's side
_ASPECTS = np.array([1, 0.87, 1, 1])
_RESIDUES = {"train": (0, 1, 2), "validation": (3,), "test": (4,)}
_MODULUS = 5
_REACH = 0.26  # how near to the edge a centre may lie, of the side: nothing is cut off


def owners(alone: Tensor, ink: float = INK) -> Tensor:
    """The owner of each pixel, from each object alone: ``BACKGROUND``, k + 1 for object k, or ``OVERLAP``.

    Shapes: (B, K, C, H, W) in [0, 1] -> (B, H, W) int64
    """
    if alone.ndim != 5:
        raise ValueError(f"expected each object alone, (B, K, C, H, W) as in sources.images, got {tuple(alone.shape)}")
    inked = alone.amax(dim=2) >= ink  # (B, K, H, W)
    count = inked.sum(dim=1)
    first = inked.to(torch.int64).argmax(dim=1) + 1
    return torch.where(count > 1, OVERLAP, torch.where(count == 1, first, BACKGROUND))


class Outlines(Dataset):
    """One split of generated outlines.

    Shapes of a batch: images (B, 1, H, W); targets (B, J) multi-hot; sources.images (B, K, 1, H, W), classes (B, K)

    Args:
        size: side of the picture.
        objects: outlines in a picture; with ``digit`` the digit is one of the objects.
        digit: the first object is a digit of MNIST.
        count: pictures of the split, or of each epoch.
        seed: another seed makes other pictures.
    """

    channels = 1
    origin = "generated"

    def __init__(
        self,
        split: str = "train",
        *,
        size: Annotated[int, Field(ge=_SMALLEST)] = 32,
        objects: Annotated[int, Field(ge=2, le=len(OUTLINES))] = 2,
        digit: bool = False,
        count: Annotated[int, Field(ge=1)] | None = None,
        seed: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        check_name("split", split, SPLITS)
        smallest = 28 + 2 * SHIFT if digit else _SMALLEST
        if size < smallest:
            raise ValueError(f"outlines{' with a digit' * digit} need a size of at least {smallest}, got {size}")
        if not 2 <= objects <= len(OUTLINES):
            raise ValueError(f"objects must lie in 2..{len(OUTLINES)} (outlines of a picture differ), got {objects}")
        if count is not None and count < 1:
            raise ValueError(f"count must be at least 1 example, got {count}")
        self.objects, self.seed, self.split = objects, seed, split
        self._digits: ArrayDataset | None = mnist(split) if digit else None
        self.name = f"outlines {split}"
        self.class_names = (*(self._digits.class_names if self._digits else ()), *OUTLINES)
        self.image_size = (size, size)
        self.fresh = split.startswith("train")
        self._count = sum(COUNTS[piece] for piece in split.split("+")) if count is None else count

    def __len__(self) -> int:
        return self._count

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        """Draw these examples; ``augment`` moves the objects together with the picture."""
        index = self._check_indices(indices)
        alone, classes = self._draw(index, epoch if self.fresh else 0)
        if augment is not None:
            repeated = np.repeat(index, self.objects)  # the same key, hence the same movement for all objects
            moved = augment(alone.flatten(0, 1), seed=seed, epoch=epoch, indices=repeated)
            alone = moved.unflatten(0, alone.shape[:2])
        sources = Sources(alone, classes)
        images = alone.sum(dim=1).clamp_(max=1)
        return Batch(images, sources.targets(self.num_classes), torch.from_numpy(index), sources)

    def singles(self, number: int) -> Singles:
        return cut_out(self.batch([number % len(self)]))

    def _draw(self, index: NDArray[np.int64], epoch: int) -> tuple[Tensor, Tensor]:
        """Each object alone (B, K, 1, H, W), and its class (B, K)."""
        (size, _), shapes = self.image_size, self.objects - (self._digits is not None)
        stream = f"outlines.{self.split}"
        order = keyed.uniform(self.seed, epoch, index, len(OUTLINES), f"{stream}.kinds")
        kinds = np.argsort(order, axis=1)[:, :shapes]  # (B, S)
        centres, flat = self._places(index, epoch, stream, shapes), kinds.reshape(-1)
        widths = 2 * np.floor(_WIDTHS[flat] * size / 2) + 1  # odd: both edges lie between pixels
        poses = np.stack([centres[:, 0], centres[:, 1], _ANGLES[flat], widths, _ASPECTS[flat]], axis=1)
        drawn = draw(_KINDS[flat], poses, np.zeros(len(flat), bool), size, stroke=1.2) >= 0.5
        alone = torch.from_numpy(drawn.reshape(-1, shapes, 1, size, size)).to(torch.float32)
        classes = torch.from_numpy(kinds)
        if self._digits is None:
            return alone, classes
        digits, labels = self._place_digits(index, epoch, stream)
        return torch.cat([digits, alone], dim=1), torch.cat([labels, classes + self._digits.num_classes], dim=1)

    def _places(self, index: NDArray[np.int64], epoch: int, stream: str, shapes: int) -> NDArray[np.int64]:
        """The centres of the outlines on whole pixels, (B S, 2), rows of x and y.

        There are not so many pictures of two outlines. So that no picture is in two splits, the sum of all coordinates
        modulo 5 tells the split; the last coordinate makes up for it.
        """
        low, high = (int(share * self.image_size[0]) for share in (_REACH, 1 - _REACH))
        centres = keyed.integers(self.seed, epoch, index, 2 * shapes, f"{stream}.places", low, high + 1)
        allowed = np.array([k for piece in self.split.split("+") for k in _RESIDUES[piece]])
        wanted = allowed[keyed.integers(self.seed, epoch, index, 1, f"{stream}.split", 0, len(allowed))[:, 0]]
        last = centres[:, -1] + (wanted - centres.sum(axis=1)) % _MODULUS
        centres[:, -1] = np.where(last > high, last - _MODULUS, last)
        return centres.reshape(-1, 2)

    def _place_digits(self, index: NDArray[np.int64], epoch: int, stream: str) -> tuple[Tensor, Tensor]:
        """A digit in each picture (B, 1, 1, H, W), and its class (B, 1)."""
        assert self._digits is not None
        size = self.image_size[0]
        chosen = keyed.integers(self.seed, epoch, index, 1, f"{stream}.digits", 0, len(self._digits))[:, 0]
        shifts = keyed.integers(self.seed, epoch, index, 2, f"{stream}.shifts", -SHIFT, SHIFT + 1)
        digits = self._digits.batch(chosen)
        canvas = torch.zeros(len(index), 1, 1, size, size)
        height, width = self._digits.image_size
        corners = shifts + np.array([(size - height) // 2, (size - width) // 2])
        for row, (down, right) in enumerate(corners):
            canvas[row, 0, :, down : down + height, right : right + width] = digits.images[row]
        return canvas, digits.targets[:, None]


outlines = register(
    "outlines",
    "Overlapping outlines, or a digit and an outline (digit=true), 32x32, generated, with the owner of every pixel",
    SPLITS,
    source="generated",
    gallery="outlines",
    objects=lambda options: options["objects"],
    path="none",
)(Outlines)

__all__ = ["BACKGROUND", "INK", "OUTLINES", "OVERLAP", "Outlines", "outlines", "owners"]
