"""Digits moved in steps: what changes in the vector that represents them, and what a linear map reads off it."""

from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from capsnet.data.warping import warp_images
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import Model

FINE = 4  # a pixel is this many wide while strokes are made thicker
STRENGTHS = tuple(10.0**k for k in range(-6, 2))  # of the ridge, in units of the features' mean variance
BATCH = 250


class Movement(NamedTuple):
    unit: str
    amounts: tuple[float, ...]  # of each step; the middle one is 0


MOVEMENTS = {
    "shift right": Movement("pixels", (-3, -2, -1, 0, 1, 2, 3)),
    "shift down": Movement("pixels", (-3, -2, -1, 0, 1, 2, 3)),
    "rotate": Movement("degrees", (-30, -20, -10, 0, 10, 20, 30)),
    "scale": Movement("percent", (-20, -40 / 3, -20 / 3, 0, 20 / 3, 40 / 3, 20)),
    "thicken": Movement("pixels", (-0.5, -0.25, 0, 0.25, 0.5)),
}


def move(images: Tensor, name: str, amount: float) -> Tensor:
    """All pictures moved by one amount; rotation is clockwise. Shapes: (B, C, H, W) -> (B, C, H, W)"""
    if amount == 0:
        return images
    if name == "thicken":
        return thicken(images, amount)
    turn = torch.tensor(np.deg2rad(amount if name == "rotate" else 0.0), dtype=torch.float32)
    size = 1 + amount / 100 if name == "scale" else 1.0
    turned = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()]).reshape(2, 2)
    offset = torch.tensor([amount * (name == "shift down"), amount * (name == "shift right")], dtype=torch.float32)
    return warp_images(images, (size * turned).expand(len(images), 2, 2), offset.expand(len(images), 2))


def thicken(images: Tensor, amount: float) -> Tensor:
    """Move every outline outwards by ``amount`` pixels, or inwards if it is negative. Shapes as ``move``.

    Grey dilation (or erosion) of the picture as a mosaic of square pixels, by a disc of that radius in quarters of a
    pixel, averaged over the pixels again.
    """
    radius = round(abs(amount) * FINE)
    mosaic = F.interpolate(images, scale_factor=FINE, mode="nearest")  # (B, C, FINE H, FINE W)
    H, W = mosaic.shape[2:]
    padded = F.pad(mosaic, (radius,) * 4)
    disc = [(y, x) for y, x in product(range(2 * radius + 1), repeat=2) if np.hypot(y - radius, x - radius) <= radius]
    windows = (padded[:, :, y : y + H, x : x + W] for y, x in disc)
    return F.avg_pool2d(reduce(torch.maximum if amount > 0 else torch.minimum, windows), FINE)


def vectors(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """The true class's pose, or for a CNN the input of its last layer. Shapes: (B, ...) -> (B, D)"""
    device, inputs, result = device_of(model), [], []
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1:]
    hooks = [module.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for module in last]
    try:
        with evaluating(model):
            for chunk, label in zip(images.split(BATCH), labels.split(BATCH), strict=True):
                poses = model(chunk.to(device)).poses
                result.append(inputs[-1] if poses is None else poses[torch.arange(len(chunk)), label])
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(result).float().cpu()


def trajectories(model: Model, images: Tensor, labels: Tensor) -> dict[str, NDArray]:
    """The vector of each digit at each step of each movement: {name: (N, S, D)}."""
    still = vectors(model, images, labels)
    return {
        name: torch.stack(
            [vectors(model, move(images, name, a), labels) if a else still for a in how.amounts], 1
        ).numpy()
        for name, how in MOVEMENTS.items()
    }


def changes(path: NDArray, start: int) -> tuple[NDArray, NDArray]:
    """How much length and direction differ from the start of a path: relative to the length, and in degrees.

    Shapes: (N, S, D) -> two of (N, S)
    """
    path = path.astype(np.float64)
    lengths = np.linalg.norm(path, axis=-1)  # (N, S)
    first = lengths[:, start, None]
    unit = path / np.maximum(lengths, 1e-12)[..., None]
    # half the angle by its sine and cosine: the arc cosine loses small angles to rounding
    origin = unit[:, start, None]
    half = np.arctan2(np.linalg.norm(unit - origin, axis=-1), np.linalg.norm(unit + origin, axis=-1))
    return abs(lengths - first) / np.maximum(first, 1e-12), np.rad2deg(2 * half)


def read_out(
    train: tuple[NDArray, NDArray],
    validation: tuple[NDArray, NDArray],
    test: tuple[NDArray, NDArray],
    amounts: tuple[float, ...],
    components: int | None = None,
) -> dict[str, float]:
    """How well the amount of a movement is a *linear* function of the vector: R^2 on test digits and its 95 % interval.

    A ridge regression for each class; one ``strength`` for all of them, the best on ``validation``. With
    ``components``, each class's vectors are first reduced to that many principal components of its training digits.
    Shapes: each part is paths (N, S, D) and classes (N,)
    """

    def rows(part: tuple[NDArray, NDArray], label: int) -> NDArray:  # every step of the digits of a class: (n * S, D)
        return part[0][part[1] == label].reshape(-1, part[0].shape[-1]).astype(np.float64)

    goal = np.asarray(amounts, dtype=np.float64)
    wrong: list[list[NDArray]] = [[], []]  # of validation and test: squared errors (strengths, digits) of each class
    for label in np.unique(train[1]):
        x = rows(train, label)
        centre = x.mean(axis=0)
        weights = ridge(x - centre, np.tile(goal - goal.mean(), len(x) // len(goal)), components)  # (A, D)
        for errors, part in zip(wrong, (validation, test), strict=True):
            guess = (rows(part, label) - centre) @ weights.T + goal.mean()  # (n * S, A)
            errors.append(((guess.reshape(-1, len(goal), len(STRENGTHS)) - goal[:, None]) ** 2).sum(axis=1).T)
    best = int(np.concatenate(wrong[0], axis=1).sum(axis=1).argmin())
    relative = np.concatenate(wrong[1], axis=1)[best] / ((goal - goal.mean()) ** 2).sum()  # (digits,)
    reach = 1.96 * relative.std(ddof=1) / len(relative) ** 0.5 if len(relative) > 1 else 0.0
    r2 = float(1 - relative.mean())
    return {"r2": r2, "low": float(r2 - reach), "high": float(r2 + reach), "strength": STRENGTHS[best]}


def ridge(x: NDArray, y: NDArray, components: int | None = None) -> NDArray:
    """Weights for each of ``STRENGTHS`` from one eigendecomposition; x and y are centred.

    Shapes: (n, D), (n,) -> (A, D)
    """
    values, basis = np.linalg.eigh(x.T @ x)  # ascending
    largest = slice(-components if components is not None and components < len(values) else 0, None)
    values, basis = np.maximum(values[largest], 0.0), basis[:, largest]
    scale = max(float(values.mean()), 1e-300)
    return (basis.T @ (x.T @ y)) / (values + scale * np.array(STRENGTHS)[:, None]) @ basis.T
