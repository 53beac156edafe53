"""A digit moved step by step: what changes in a vector that stands for it, and what can be read off it."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from capsnet.data.augment import warp_images
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import CNN, Model

FINE = 4  # a pixel is this many wide while strokes are made thicker
STRENGTHS = tuple(10.0**k for k in range(-6, 2))  # of the ridge, in units of the features' mean variance
BATCH = 250


class Transformation(NamedTuple):
    """Amounts in steps; the middle one leaves the picture as it is."""

    unit: str
    amounts: tuple[float, ...]

    @property
    def start(self) -> int:
        return len(self.amounts) // 2


TRANSFORMATIONS = {
    "shift right": Transformation("pixels", (-3, -2, -1, 0, 1, 2, 3)),
    "shift down": Transformation("pixels", (-3, -2, -1, 0, 1, 2, 3)),
    "rotate": Transformation("degrees", (-30, -20, -10, 0, 10, 20, 30)),
    "scale": Transformation("percent", (-20, -40 / 3, -20 / 3, 0, 20 / 3, 40 / 3, 20)),
    "thicken": Transformation("pixels", (-0.5, -0.25, 0, 0.25, 0.5)),
}


def transform(images: Tensor, name: str, amount: float) -> Tensor:
    """All pictures moved by one amount of one transformation; rotation is clockwise. Shapes: (B, C, H, W) as given."""
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
    """Move every outline outwards by `amount` pixels, or inwards if it is negative.

    The picture is taken as a mosaic of square pixels, each grey level of it grows or shrinks by a disc of that radius
    (grey dilation or erosion, in quarters of a pixel), and the result is averaged over the pixels again.

    Shapes: (B, C, H, W) as given
    """
    radius = round(abs(amount) * FINE)
    mosaic = F.interpolate(images, scale_factor=FINE, mode="nearest")  # (B, C, FINE H, FINE W)
    H, W = mosaic.shape[2:]
    padded = F.pad(mosaic, (radius,) * 4)
    grown = mosaic
    for dy in range(-radius, radius + 1):
        reach = int((radius**2 - dy**2) ** 0.5)
        for dx in range(-reach, reach + 1):
            window = padded[:, :, radius + dy : radius + dy + H, radius + dx : radius + dx + W]
            grown = torch.maximum(grown, window) if amount > 0 else torch.minimum(grown, window)
    return F.avg_pool2d(grown, FINE)


def vectors(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """What stands for the digit: the true class's pose, or the CNN's last hidden layer. Shapes: (B, ...) -> (B, D)"""
    device = device_of(model)
    seen: list[Tensor] = []
    hook = None
    if isinstance(model, CNN):
        last = model.head[-1]
        assert isinstance(last, nn.Linear)
        hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        with evaluating(model):
            for chunk, label in zip(images.split(BATCH), labels.split(BATCH), strict=True):
                output = model(chunk.to(device))
                if output.poses is not None:
                    seen.append(output.poses[torch.arange(len(chunk)), label])
    finally:
        if hook is not None:
            hook.remove()
    return torch.cat(seen).float().cpu()


def trajectories(model: Model, images: Tensor, labels: Tensor) -> dict[str, NDArray]:
    """The vector of each digit at each step of each transformation: {name: (N, S, D)}."""
    still = vectors(model, images, labels)
    return {
        name: torch.stack(
            [vectors(model, transform(images, name, a), labels) if a else still for a in how.amounts], dim=1
        ).numpy()
        for name, how in TRANSFORMATIONS.items()
    }


def changes(path: NDArray, start: int) -> tuple[NDArray, NDArray]:
    """How much length and direction differ from where a path started: relative to the length, and in degrees.

    Shapes: (N, S, D) -> two of (N, S)
    """
    path = path.astype(np.float64)
    lengths = np.linalg.norm(path, axis=-1)  # (N, S)
    first = lengths[:, start, None]
    unit = path / np.maximum(lengths, 1e-12)[..., None]
    # half the angle by its sine and cosine: the plain arc cosine loses small angles to rounding
    origin = unit[:, start, None]
    half = np.arctan2(np.linalg.norm(unit - origin, axis=-1), np.linalg.norm(unit + origin, axis=-1))
    return abs(lengths - first) / np.maximum(first, 1e-12), np.rad2deg(2 * half)


class Part(NamedTuple):
    """Some digits: their paths (N, S, D) under one transformation, and their classes (N,)."""

    paths: NDArray
    labels: NDArray

    def rows(self, label: int) -> NDArray:
        """Every step of the digits of one class: (n * S, D)"""
        return self.paths[self.labels == label].reshape(-1, self.paths.shape[-1]).astype(np.float64)


class ReadOut(NamedTuple):
    """R^2 on digits that were not learnt from, its 95 % interval, and the strength that the validation part chose."""

    r2: float
    low: float
    high: float
    strength: float


def read_out(
    train: Part, validation: Part, test: Part, amounts: tuple[float, ...], components: int | None = None
) -> ReadOut:
    """How well the amount of a transformation is a *linear* function of the vector.

    A ridge regression for each class; one strength for all of them, the best on the digits of `validation`. With
    `components`, each class's vectors are first reduced to that many principal components of its training digits.
    """
    goal = np.asarray(amounts, dtype=np.float64)
    wrong: dict[str, list[NDArray]] = {"validation": [], "test": []}  # squared errors (strengths, digits)
    for label in np.unique(train.labels):
        x = train.rows(label)
        centre = x.mean(axis=0)
        weights = ridge(x - centre, np.tile(goal - goal.mean(), len(x) // len(goal)), components)  # (A, D)
        for name, part in (("validation", validation), ("test", test)):
            said = (part.rows(label) - centre) @ weights.T + goal.mean()  # (n * S, A)
            wrong[name].append(((said.reshape(-1, len(goal), len(STRENGTHS)) - goal[:, None]) ** 2).sum(axis=1).T)
    best = int(np.concatenate(wrong["validation"], axis=1).sum(axis=1).argmin())
    errors = np.concatenate(wrong["test"], axis=1)[best] / ((goal - goal.mean()) ** 2).sum()  # (digits,)
    reach = 1.96 * errors.std(ddof=1) / len(errors) ** 0.5 if len(errors) > 1 else 0.0
    r2 = float(1 - errors.mean())
    return ReadOut(r2, float(r2 - reach), float(r2 + reach), STRENGTHS[best])


def ridge(x: NDArray, y: NDArray, components: int | None = None) -> NDArray:
    """Weights for each of `STRENGTHS` from one eigendecomposition; x and y are centred.

    Shapes: (n, D), (n,) -> (A, D)
    """
    values, basis = np.linalg.eigh(x.T @ x)  # ascending
    kept = slice(-components if components is not None and components < len(values) else 0, None)
    values, basis = np.maximum(values[kept], 0.0), basis[:, kept]
    scale = max(float(values.mean()), 1e-300)
    shrunk = (basis.T @ (x.T @ y)) / (values + scale * np.array(STRENGTHS)[:, None])  # (A, D)
    return shrunk @ basis.T
