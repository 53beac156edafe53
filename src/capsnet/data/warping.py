"""What ``Augment`` does to a batch: the draws, keyed by (seed, epoch, example), and the sampling of images."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from capsnet.data import keyed
from capsnet.data.augment import Augment

NET = 5  # points of the elastic net along each side


def augment_images(amounts: Augment, images: Tensor, *, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Mirror, move, bend, light and erase from images (B, C, H, W) of the examples ``indices`` (B,)."""
    if len(images) == 0:
        return images
    if amounts.flip:
        mirror = draw_flips(seed, epoch, indices).to(images.device)
        images = torch.where(mirror[:, None, None, None], images.flip(3), images)
    if amounts.shift or amounts.interpolates:
        images = _moved(amounts, images, seed, epoch, indices)
    if amounts.brightness:
        gain = draw_gains(amounts, seed, epoch, indices).to(images.device, images.dtype)
        images = (images * gain[:, None, None, None]).clamp_(0, 1)
    if amounts.erase:
        corners = draw_corners(amounts, images.shape[2:], seed, epoch, indices).to(images.device)
        images = erase_squares(images, corners, amounts.erase)
    return images


def _moved(amounts: Augment, images: Tensor, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    offsets = draw_shifts(amounts, seed, epoch, indices)
    if not amounts.interpolates:
        return shift_images(images, offsets, amounts.shift)
    pulls = draw_pulls(amounts, seed, epoch, indices) if amounts.elastic else None
    return warp_images(images, draw_maps(amounts, seed, epoch, indices), offsets, pulls)


def draw_flips(seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Draw which examples are mirrored, one in two. Shapes: (B,) -> (B,) bool"""
    return torch.from_numpy(keyed.integers(seed, epoch, indices, 1, "augment.flip", 0, 2)[:, 0] == 1)


def draw_gains(amounts: Augment, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Draw the factor of each example's pixels. Shapes: (B,) -> (B,) float32"""
    unit = 2 * keyed.uniform(seed, epoch, indices, 1, "augment.brightness")[:, 0] - 1
    return torch.from_numpy((1 + amounts.brightness * unit).astype(np.float32))


def draw_corners(amounts: Augment, size: Sequence[int], seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Draw the (top, left) of each example's square, so that it lies in the image. Shapes: (B,) -> (B, 2) int64"""
    unit = keyed.uniform(seed, epoch, indices, 2, "augment.erase")
    places = np.maximum(np.array(size) - amounts.erase, 0) + 1
    return torch.from_numpy((unit * places).astype(np.int64))


def draw_shifts(amounts: Augment, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Draw (down, right) in pixels per example. Shapes: (B,) -> (B, 2) int64"""
    drawn = keyed.integers(seed, epoch, indices, 2, "augment.shift", -amounts.shift, amounts.shift + 1)
    return torch.from_numpy(drawn)


def draw_maps(amounts: Augment, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Draw the linear map of each example, on pixel coordinates (x right, y down) about the image centre.

    Shear acts first, then scale, then rotation. Shapes: (B,) -> (B, 2, 2) float32
    """
    unit = 2 * keyed.uniform(seed, epoch, indices, 4, "augment.affine") - 1  # (B, 4)
    angle = np.deg2rad(amounts.rotate * unit[:, 0])
    wide, tall = 1 + amounts.scale * unit[:, 1], 1 + amounts.scale * unit[:, 2]
    slant = amounts.shear * unit[:, 3]
    cos, sin = np.cos(angle), np.sin(angle)
    # [[cos, -sin], [sin, cos]] @ diag(wide, tall) @ [[1, slant], [0, 1]]
    rows = [cos * wide, cos * wide * slant - sin * tall, sin * wide, sin * wide * slant + cos * tall]
    return torch.from_numpy(np.stack(rows, axis=1).reshape(-1, 2, 2).astype(np.float32))


def draw_pulls(amounts: Augment, seed: int, epoch: int, indices: ArrayLike) -> Tensor:
    """Draw (right, down) in pixels for each point of each example's net. Shapes: (B,) -> (B, 2, 5, 5) float32"""
    unit = 2 * keyed.uniform(seed, epoch, indices, 2 * NET * NET, "augment.elastic", dtype=np.float32) - 1
    return torch.from_numpy(np.float32(amounts.elastic) * unit).unflatten(1, (2, NET, NET))


def erase_squares(images: Tensor, corners: Tensor, side: int) -> Tensor:
    """Set a square to 0 in each image (random erasing: Zhong et al. 2017, arXiv 1708.04896).

    Shapes: images (B, C, H, W), corners (B, 2) as (top, left) -> (B, C, H, W)
    """
    top, left = corners[:, :1], corners[:, 1:]
    rows, columns = (torch.arange(n, device=images.device) for n in images.shape[2:])
    high, wide = (rows >= top) & (rows < top + side), (columns >= left) & (columns < left + side)  # (B, H), (B, W)
    return images.masked_fill((high[:, :, None] & wide[:, None, :]).unsqueeze(1), 0)


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

    Sampling starts from the *output* pixels, hence the inverse map; ``affine_grid`` counts in half widths and
    half heights, hence the factors. Pulls move the sampled positions: elastic distortion (Simard, Steinkraus,
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
