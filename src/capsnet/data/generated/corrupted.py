"""MNIST's digits corrupted as a camera or a pen would: to ask whether a network holds beyond the digits of its kind.

- ``blur``: Gaussian, of one pixel.
- ``thick``, ``thin``: outlines moved outwards by one pixel, inwards by half a pixel. Nine in ten of MNIST's strokes are
  1.6 to 3.8 pixels wide.
- ``contrast``: strokes of 0.3 of their brightness.
- ``noise``: normal, of 0.15 of the range, cut to [0, 1].
- ``any``: each digit in one of these ways, drawn by the seed.

Nothing depends on the other digits of a batch. Corrupted digits are not trained on: there is no training split.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from torch import Tensor

from capsnet._names import check_name
from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset, Augmentation, Batch, Dataset
from capsnet.data.readers.mnist import mnist

BLUR, THICKER, THINNER, CONTRAST, NOISE = 1.0, 1.0, 0.5, 0.3, 0.15
FINE = 4  # a pixel is this many wide while strokes are made thicker

Index = NDArray[np.int64]


def blur(images: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of ``sigma`` pixels. Shapes: (B, C, H, W) -> (B, C, H, W)"""
    from scipy.ndimage import gaussian_filter

    return torch.from_numpy(gaussian_filter(images.numpy(), (0, 0, sigma, sigma), mode="constant")).clamp_(0, 1)


def thicken(images: Tensor, amount: float) -> Tensor:
    """Move every outline outwards by ``amount`` pixels, or inwards if it is negative.

    Grey dilation (or erosion) of the picture as a mosaic of square pixels, by a disc of that radius in quarters of a
    pixel, averaged over the pixels again. Shapes: (B, C, H, W) -> (B, C, H, W)
    """
    from scipy.ndimage import grey_dilation, grey_erosion

    reach = round(abs(amount) * FINE)
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    mosaic = images.numpy().repeat(FINE, axis=2).repeat(FINE, axis=3)  # (B, C, FINE H, FINE W)
    grow = grey_dilation if amount > 0 else grey_erosion
    grown = grow(mosaic, footprint=(x**2 + y**2 <= reach**2)[None, None], mode="constant")
    return F.avg_pool2d(torch.from_numpy(grown), FINE)


def add_noise(images: Tensor, strength: float, seed: int, indices: Index) -> Tensor:
    """Normal noise, keyed by example, cut to [0, 1]. Shapes: (B, C, H, W), indices (B,) -> (B, C, H, W)"""
    from scipy.special import ndtri

    drawn = ndtri(keyed.uniform(seed, 0, indices, images[0].numel(), "corrupted.noise")) if len(images) else np.empty(0)
    return (images + strength * torch.from_numpy(drawn).to(images.dtype).view_as(images)).clamp_(0, 1)


KINDS: Mapping[str, Callable[[Tensor, int, Index], Tensor]] = {
    "blur": lambda images, seed, indices: blur(images, BLUR),
    "thick": lambda images, seed, indices: thicken(images, THICKER),
    "thin": lambda images, seed, indices: thicken(images, -THINNER),
    "contrast": lambda images, seed, indices: CONTRAST * images,
    "noise": lambda images, seed, indices: add_noise(images, NOISE, seed, indices),
}


class Corrupted(Dataset):
    """Digits, each corrupted in one way.

    Shapes of a batch: images as those of ``digits``, (B, 1, H, W); targets (B,)

    Args:
        digits: the pictures to corrupt.
        kind: one of ``KINDS``, or "any": one of them for each digit.
        seed: of the noise, and of the kind of each digit.
    """

    origin = "generated"

    def __init__(self, digits: ArrayDataset, kind: str = "any", *, seed: int = 0, name: str = "corrupted") -> None:
        self.kind = check_name("kind of corruption", kind, ("any", *KINDS))
        self.digits, self.seed, self.name = digits, seed, name
        self.class_names, self.targets = digits.class_names, digits.targets
        self.channels, self.image_size, self.preprocess = digits.channels, digits.image_size, digits.preprocess

    def __len__(self) -> int:
        return len(self.digits)

    def kinds(self, indices: ArrayLike) -> NDArray[np.str_]:
        """How each of these digits is corrupted. Shapes: (B,) -> (B,)"""
        index = self._check_indices(indices)
        if self.kind != "any":
            return np.full(len(index), self.kind)
        return np.array(list(KINDS))[keyed.integers(self.seed, 0, index, 1, "corrupted.kind", 0, len(KINDS))[:, 0]]

    def batch(self, indices: ArrayLike, *, augment: Augmentation = None, seed: int = 0, epoch: int = 0) -> Batch:
        index = self._check_indices(indices)
        clean = self.digits.batch(index)
        kinds, images = self.kinds(index), clean.images.clone()
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            images[rows] = KINDS[kind](clean.images[rows], self.seed, index[rows])
        if augment is not None:
            images = augment(images, seed=seed, epoch=epoch, indices=index)
        return clean._replace(images=images)


@register(
    "corrupted-mnist",
    "MNIST's digits blurred, with thicker or thinner strokes, less contrast or noise (kind=), to test on",
    ("validation", "test"),
    source="generated",
    gallery="corrupted-mnist",
    objects=1,
    environment="CAPSNET_DATA",
)
def corrupted_mnist(
    split: str = "test",
    path: str | Path | None = None,
    *,
    kind: Literal["any", "blur", "thick", "thin", "contrast", "noise"] = "any",
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Corrupted:
    """Load one split of MNIST, or of any other IDX data set from the folder ``path``, corrupted."""
    return Corrupted(mnist(split, path), kind, seed=seed, name=f"corrupted-mnist {split} ({kind})")
