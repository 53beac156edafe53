"""Augmentation of batches, keyed by (seed, epoch, example): it does not depend on the other examples of a batch.

Integer shifts alone, as in the CapsNet paper, are an exact gather. With rotation, scale, shear or elastic distortion,
these and the shift are *one* bilinear sampling, so that an image is never interpolated twice. Mirroring comes first,
brightness and erasing last. Each kind has its own stream of random numbers: switching one on does not change the
others.

This module does not import PyTorch, so that a configuration can be read and shown without it.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor


@dataclass(frozen=True)
class Augment:
    """How images are augmented. Every amount is a bound: values are drawn uniformly from [-amount, amount]."""

    shift: int = 0
    """Whole pixels, each axis separately, zero fill."""
    rotate: float = 0.0
    """Degrees about the image centre."""
    scale: float = 0.0
    """Fraction of the size, each axis separately (0.1: between 0.9 and 1.1)."""
    shear: float = 0.0
    """Pixels to the side per pixel down."""
    elastic: float = 0.0
    """Pixels by which the points of a 5 x 5 net over the image are displaced; between them it is interpolated."""
    flip: bool = False
    """Mirror left and right with probability one half."""
    brightness: float = 0.0
    """Fraction by which the pixels of an image are scaled (0.2: by 0.8 to 1.2), clipped to [0, 1]."""
    erase: int = 0
    """Side in pixels of a square that is set to 0, anywhere in the image."""

    def __post_init__(self) -> None:
        for name in ("shift", "erase"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be a whole number of pixels, 0 or more, got {value!r}")
        for name, limit in (("rotate", 180.0), ("scale", 0.9), ("shear", 2.0), ("elastic", 16.0), ("brightness", 1.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 <= value <= limit):
                raise ValueError(f"{name} must lie between 0 and {limit:g}, got {value!r}")
        if not isinstance(self.flip, bool):
            raise ValueError(f"flip must be True or False, got {self.flip!r}")

    @property
    def interpolates(self) -> bool:
        """Whether images are sampled between pixels."""
        return bool(self.rotate or self.scale or self.shear or self.elastic)

    def __call__(self, images: "Tensor", *, seed: int, epoch: int, indices: "ArrayLike") -> "Tensor":
        """Augment images (B, C, H, W) of the examples ``indices`` (B,)."""
        from capsnet.data.warping import augment_images

        return augment_images(self, images, seed=seed, epoch=epoch, indices=indices)
