"""Augmentation of batches, keyed by (seed, epoch, example): it does not depend on the other examples of a batch.

Integer shifts alone, as in the CapsNet paper, are an exact gather. With rotation, scale, shear or elastic distortion,
these and the shift are *one* bilinear sampling, so that an image is never interpolated twice. Mirroring comes first and
brightness last. Each kind has its own stream of random numbers: switching one on does not change the others.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from capsnet.data import keyed

NET = 5  # points of the elastic net along each side


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

    def __post_init__(self) -> None:
        if not isinstance(self.shift, int) or isinstance(self.shift, bool) or self.shift < 0:
            raise ValueError(f"shift must be a whole number of pixels, 0 or more, got {self.shift!r}")
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

    def __call__(self, images: Tensor, *, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        """Augment images (B, C, H, W) of the examples ``indices`` (B,)."""
        if len(images) == 0:
            return images
        if self.flip:
            mirror = self.draw_flips(seed, epoch, indices).to(images.device)
            images = torch.where(mirror[:, None, None, None], images.flip(3), images)
        if self.shift or self.interpolates:
            images = self._moved(images, seed, epoch, indices)
        if self.brightness:
            gain = self.draw_gains(seed, epoch, indices).to(images.device, images.dtype)
            images = (images * gain[:, None, None, None]).clamp_(0, 1)
        return images

    def _moved(self, images: Tensor, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        offsets = self.draw_shifts(seed, epoch, indices)
        if not self.interpolates:
            return shift_images(images, offsets, self.shift)
        pulls = self.draw_pulls(seed, epoch, indices) if self.elastic else None
        return warp_images(images, self.draw_maps(seed, epoch, indices), offsets, pulls)

    def draw_flips(self, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        """Draw which examples are mirrored, one in two. Shapes: (B,) -> (B,) bool"""
        return torch.from_numpy(keyed.integers(seed, epoch, indices, 1, "augment.flip", 0, 2)[:, 0] == 1)

    def draw_gains(self, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        """Draw the factor of each example's pixels. Shapes: (B,) -> (B,) float32"""
        unit = 2 * keyed.uniform(seed, epoch, indices, 1, "augment.brightness")[:, 0] - 1
        return torch.from_numpy((1 + self.brightness * unit).astype(np.float32))

    def draw_shifts(self, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        """Draw (down, right) in pixels per example. Shapes: (B,) -> (B, 2) int64"""
        drawn = keyed.integers(seed, epoch, indices, 2, "augment.shift", -self.shift, self.shift + 1)
        return torch.from_numpy(drawn)

    def draw_maps(self, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        """Draw the linear map of each example, on pixel coordinates (x right, y down) about the image centre.

        Shear acts first, then scale, then rotation. Shapes: (B,) -> (B, 2, 2) float32
        """
        unit = 2 * keyed.uniform(seed, epoch, indices, 4, "augment.affine") - 1  # (B, 4)
        angle = np.deg2rad(self.rotate * unit[:, 0])
        wide, tall = 1 + self.scale * unit[:, 1], 1 + self.scale * unit[:, 2]
        slant = self.shear * unit[:, 3]
        cos, sin = np.cos(angle), np.sin(angle)
        # [[cos, -sin], [sin, cos]] @ diag(wide, tall) @ [[1, slant], [0, 1]]
        rows = [cos * wide, cos * wide * slant - sin * tall, sin * wide, sin * wide * slant + cos * tall]
        return torch.from_numpy(np.stack(rows, axis=1).reshape(-1, 2, 2).astype(np.float32))

    def draw_pulls(self, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
        """Draw (right, down) in pixels for each point of each example's net. Shapes: (B,) -> (B, 2, 5, 5) float32"""
        unit = 2 * keyed.uniform(seed, epoch, indices, 2 * NET * NET, "augment.elastic", dtype=np.float32) - 1
        return torch.from_numpy(np.float32(self.elastic) * unit).unflatten(1, (2, NET, NET))


def shift_images(images: Tensor, offsets: Tensor, limit: int) -> Tensor:
    """Move each image down and right by whole pixels, filling with zeros.

    All windows of a padded image are one strided view, of which each example picks its own.

    Shapes: images (B, C, H, W), offsets (B, 2) in -limit..limit -> (B, C, H, W)
    """
    height, width = images.shape[2:]
    padded = F.pad(images, (limit, limit, limit, limit))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, 2 limit + 1, 2 limit + 1, H, W), a view
    start = limit - offsets.to(images.device)
    return windows[torch.arange(len(images), device=images.device), :, start[:, 0], start[:, 1]].contiguous()


def warp_images(images: Tensor, maps: Tensor, offsets: Tensor, pulls: Tensor | None = None) -> Tensor:
    """Apply each image's linear map about its centre, then its shift, in one bilinear sampling with zero fill.

    Sampling starts from the *output* pixels, hence the inverse map; ``affine_grid`` counts in half widths and half
    heights, hence the factors. Pulls move the sampled positions: elastic distortion (Simard, Steinkraus,
    Platt 2003), with a coarse net and bicubic interpolation in place of a smoothed random field.

    Shapes: images (B, C, H, W), maps (B, 2, 2) on (x, y), offsets (B, 2) as (down, right), pulls (B, 2, n, n) in pixels
    of x and y -> (B, C, H, W)
    """
    height, width = images.shape[2:]
    half = torch.tensor([width / 2, height / 2], dtype=torch.float32)  # (2,) for x, y
    inverse = torch.linalg.inv(maps.float())  # (B, 2, 2)
    move = -(inverse @ offsets.flip(1).float().unsqueeze(2)).squeeze(2)  # (B, 2) in x, y pixels
    theta = torch.cat([inverse * half[None, None, :] / half[None, :, None], (move / half).unsqueeze(2)], dim=2)
    theta = theta.to(images.device, images.dtype)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)  # (B, H, W, 2)
    if pulls is not None:
        field = F.interpolate(pulls / half[:, None, None], (height, width), mode="bicubic", align_corners=True)
        grid = grid + field.movedim(1, -1).to(images.device, images.dtype)
    warped = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return warped.clamp_(0, 1)  # rounding must not leave [0, 1]
