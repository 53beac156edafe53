"""MultiMNIST: two overlapping digits of different classes in one picture [Sabour et al. 2017, Section 6].

Two digits of *different* classes from the *same* split are each moved by up to 4 pixels in each direction on a 36x36
canvas, added and clipped. Pair number n is a pure function of (seed, n) and shows digit n mod N first. The paper makes
a thousand pairs of each digit: 60 million for training and 10 million for testing.

The authors' code differs from the paper's text: it moves digits by up to 6 pixels on the same canvas and cuts them at
its edge, ``multimnist:shift=6,canvas=36``. The tight boxes of two digits then overlap by 61 % on average, not 73 %.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset, Augmentation, Batch, Dataset, Singles, Sources
from capsnet.data.readers.mnist import mnist
from capsnet.data.splits import SPLITS

PARTNERS = 1000  # pairs per digit in the paper


class Pairs(Dataset):
    """Pairs of overlapping digits, made from the digits of one split.

    With ``fresh``, each epoch shows other pairs (epoch e: numbers e * pairs to (e + 1) * pairs - 1), as training on 60
    million of them does; without it all epochs show the same pairs.

    Shapes of a batch: images (B, 1, H, W); targets (B, 10) multi-hot; sources.images (B, 2, 1, H, W), classes (B, 2)
    """

    channels = 1
    origin = "generated"

    def __init__(
        self, digits: ArrayDataset, pairs: int, *, shift: int, canvas: int, seed: int, fresh: bool, name: str
    ) -> None:
        height, width = digits.image_size
        side = max(height, width)
        least = max(side, 2 * shift)  # at least half of the digit's side is visible
        if canvas < least:
            raise ValueError(
                f"a canvas of {canvas} cuts off more than half of {height}x{width} digits shifted by {shift}: "
                f"it needs at least {least}, and {side + 2 * shift} to cut nothing"
            )
        if digits.images.dtype != np.uint8:
            raise ValueError(f"{digits.name}: expected digits as bytes, got {digits.images.dtype}")
        if len(np.unique(digits.targets)) < 2:
            raise ValueError(f"{digits.name}: pairs of different classes need at least two classes, found one")
        self.digits, self.pairs, self.shift, self.seed, self.fresh = digits, pairs, shift, seed, fresh
        self.name = name
        self.class_names = digits.class_names
        self.image_size = (canvas, canvas)
        self._by_class = np.argsort(digits.targets, kind="stable")  # digits sorted by class
        self._counts = np.bincount(digits.targets, minlength=digits.num_classes)  # (J,)
        self._starts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])  # (J,)

    def __len__(self) -> int:
        return self.pairs

    def numbers(self, indices: ArrayLike, epoch: int = 0) -> NDArray[np.int64]:
        """Which of all pairs the examples of an epoch are. Shapes: (B,) -> (B,)"""
        return self._check_indices(indices) + (epoch * self.pairs if self.fresh else 0)

    def choose(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which two digits make each pair. Shapes: (B,) -> (B, 2)

        The partner is drawn uniformly from all digits of other classes: sorted by class, those of the first digit's
        class are one block, which is skipped.
        """
        first = numbers % len(self.digits)
        label = self.digits.targets[first]
        others = len(self.digits) - self._counts[label]
        drawn = keyed.uniform(self.seed, 0, numbers, 1, "multimnist.partner")[:, 0]
        place = np.minimum((drawn * others).astype(np.int64), others - 1)
        place += np.where(place >= self._starts[label], self._counts[label], 0)
        return np.stack([first, self._by_class[place]], axis=1)

    def offsets(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """How far each digit is moved down and right from the middle. Shapes: (B,) -> (B, 2, 2)"""
        drawn = keyed.integers(self.seed, 0, numbers, 4, "multimnist.shift", -self.shift, self.shift + 1)
        return drawn.reshape(-1, 2, 2)

    def singles(self, number: int) -> Singles:
        """The two digits of pair ``number``, and how far each is moved."""
        numbers = np.array([number])
        digits = self.digits.batch(self.choose(numbers)[0])
        return Singles(digits.images, digits.targets, torch.from_numpy(self.offsets(numbers)[0]))

    def place(self, chosen: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Each digit alone on the canvas. Shapes: (B, 2), (B, 2, 2) -> (B, 2, H, W)

        Of a digit with enough empty border, the canvas is a window whose corner depends on the offset; what lies
        outside of it is cut off.
        """
        digits = self.digits.images[chosen.reshape(-1), 0]  # (2B, h, w)
        canvas, shifts = self.image_size[0], offsets.reshape(-1, 2)
        corner = (np.array([canvas, canvas]) - digits.shape[1:]) // 2
        reach = self.shift
        border = [
            (int(c) + reach, canvas - int(c) - side + reach) for c, side in zip(corner, digits.shape[1:], strict=True)
        ]
        padded = np.pad(digits, [(0, 0), *border])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (canvas, canvas), axis=(1, 2))
        alone = windows[np.arange(len(digits)), reach - shifts[:, 0], reach - shifts[:, 1]]
        return alone.reshape(*chosen.shape, canvas, canvas)

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        """Make pairs; ``augment`` moves a pair together with its sources."""
        index = self._check_indices(indices)
        numbers = self.numbers(index, epoch)
        chosen = self.choose(numbers)
        alone = torch.from_numpy(self.place(chosen, self.offsets(numbers))).unsqueeze(2)  # (B, 2, 1, H, W)
        single = alone.to(torch.float32).div_(255)
        merged = single.sum(dim=1).clamp_(max=1)
        classes = torch.from_numpy(self.digits.targets[chosen])  # (B, 2)
        if augment is not None:
            both = torch.cat([merged.unsqueeze(1), single], dim=1).flatten(1, 2)  # one map moves all three pictures
            both = augment(both, seed=seed, epoch=epoch, indices=index).unsqueeze(2)
            merged, single = both[:, 0], both[:, 1:]
        sources = Sources(single, classes)
        return Batch(merged, sources.targets(self.num_classes), torch.from_numpy(index), sources)

    def overlaps(self, indices: ArrayLike, epoch: int = 0) -> NDArray[np.float64]:
        """How much the two digits overlap: the tight boxes' intersection over the smaller box, by area. (B,) -> (B,)"""
        numbers = self.numbers(indices, epoch)
        return box_overlap(self.place(self.choose(numbers), self.offsets(numbers)))


def box_overlap(pairs: NDArray) -> NDArray[np.float64]:
    """Area of the intersection of the two tight bounding boxes over that of the smaller one.

    Shapes: (B, 2, H, W), ink is what is not zero -> (B,) from 0 (apart) to 1 (one inside the other)
    """
    ink = pairs > 0
    low_y, high_y = _extent(np.asarray(ink.any(axis=3)))
    low_x, high_x = _extent(np.asarray(ink.any(axis=2)))
    areas = (high_y - low_y) * (high_x - low_x)  # (B, 2)
    tall = np.clip(high_y.min(axis=1) - low_y.max(axis=1), 0, None)
    wide = np.clip(high_x.min(axis=1) - low_x.max(axis=1), 0, None)
    smaller = areas.min(axis=1)
    return np.divide(tall * wide, smaller, out=np.zeros(len(pairs)), where=smaller > 0)


def _extent(marks: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First marked place and the one after the last; (0, 0) where nothing is. Shapes: (B, 2, N) -> twice (B, 2)"""
    size = marks.shape[-1]
    first, last = marks.argmax(axis=-1), size - marks[..., ::-1].argmax(axis=-1)
    some = marks.any(axis=-1)
    return np.where(some, first, 0), np.where(some, last, 0)


@register(
    "multimnist",
    "Two overlapping digits, 36x36, generated: 50,000 new pairs per epoch, 10,000 fixed test pairs",
    SPLITS,
    source="generated",
    gallery="mnist",
    objects=2,
    environment="CAPSNET_DATA",
)
def multimnist(
    split: str = "train",
    path: str | Path | None = None,
    *,
    shift: Annotated[int, Field(ge=0)] = 4,
    canvas: Annotated[int, Field(ge=1)] | None = None,
    pairs: Annotated[int, Field(ge=1)] | None = None,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Pairs:
    """Load one split; both digits of a pair are from that split.

    Args:
        path: a folder of IDX files to take the digits from, instead of MNIST.
        shift: how many pixels each digit moves in each direction, at most.
        canvas: side of the picture; None is the digit's plus twice the shift (36), less cuts digits at the edge.
        pairs: pairs per epoch, and the size of the validation and test split; None makes one pair of each digit.
            The paper's test set is pairs=10000000.
        seed: another seed makes other pairs.
    """
    digits = mnist(split, path)
    fresh = split.startswith("train")
    if not fresh and pairs is not None and pairs > PARTNERS * len(digits):
        raise ValueError(f"{split} has at most {PARTNERS} pairs for each of {len(digits):,} digits, got pairs={pairs}")
    return Pairs(
        digits,
        pairs or len(digits),
        shift=shift,
        canvas=canvas or max(digits.image_size) + 2 * shift,
        seed=seed,
        fresh=fresh,
        name=f"multimnist {split}",
    )
