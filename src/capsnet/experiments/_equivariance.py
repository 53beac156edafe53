"""The measurements of ``equivariance``: digits moved in steps, and the couplings in pictures of several objects."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet.data import Shapes
from capsnet.data.generated.corrupted import thicken
from capsnet.data.warping import warp_images
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import COLOURS
from capsnet.drawing.style import INK, MUTED
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.inference.coupling import averaged, coupling_share, half_width, objects, traced
from capsnet.models import Model, child_centres, child_owners

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


def vectors(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """The true class's pose, or for a CNN the input of its last layer. Shapes: (B, ...) -> (B, D)"""
    network: Any = model
    with evaluating(model):
        parts = [
            network.head[:-1](model.forward_features(chunk)) if model.pose_dim is None else model(chunk).poses
            for chunk in images.to(device_of(model)).split(BATCH)
        ]
    result = torch.cat(parts).float().cpu()
    return result if model.pose_dim is None else result[torch.arange(len(labels)), labels]


def trajectories(model: Model, images: Tensor, labels: Tensor) -> dict[str, NDArray]:
    """The vector of each digit at each step of each movement: {name: (N, S, D)}."""
    return {
        name: torch.stack([vectors(model, move(images, name, a), labels) for a in how.amounts], 1).numpy()
        for name, how in MOVEMENTS.items()
    }


def changes(path: NDArray, start: int) -> tuple[NDArray, NDArray]:
    """How much length and direction differ from the start of a path: relative to the length, and in degrees.

    Shapes: (N, S, D) -> two of (N, S)
    """
    lengths = np.linalg.norm(path := path.astype(np.float64), axis=-1)  # (N, S)
    unit, first = path / np.maximum(lengths, 1e-12)[..., None], lengths[:, start, None]
    # half the angle by its sine and cosine: the arc cosine loses small angles to rounding
    sine, cosine = (np.linalg.norm(unit + sign * unit[:, start, None], axis=-1) for sign in (-1, 1))
    return abs(lengths - first) / np.maximum(first, 1e-12), np.rad2deg(2 * np.arctan2(sine, cosine))


def largest(paths: dict[str, NDArray]) -> dict[str, dict[str, float]]:
    """The change of length and direction at the two largest steps of all movements: mean over the digits and half the
    width of its 95 % interval. Shapes: paths as of ``trajectories``"""
    found = [changes(path, MOVEMENTS[name].amounts.index(0)) for name, path in paths.items()]
    result = {}
    for what, values in zip(("length", "angle"), zip(*found, strict=True), strict=True):
        digits = np.mean([one[:, [0, -1]].mean(axis=1) for one in values], axis=0)  # (N,)
        result[what] = {"mean": float(digits.mean()), "interval": float(half_width(digits))}
    return result


def read_out(
    parts: Sequence[tuple[NDArray, NDArray]], amounts: Sequence[float], components: int | None = None
) -> dict[str, float]:
    """How well the amount of a movement is a *linear* function of the vector: R^2 on test digits and its 95 % interval.

    A ridge regression for each class; one ``strength`` for all of them, the best on validation digits. With
    ``components``, each class's vectors are first reduced to that many principal components of its training digits.
    Shapes: the parts (training, validation, test) are each paths (N, S, D) and classes (N,)
    """

    def rows(part: tuple[NDArray, NDArray], label: int) -> NDArray:  # every step of the digits of a class: (n * S, D)
        return part[0][part[1] == label].reshape(-1, part[0].shape[-1]).astype(np.float64)

    goal = np.asarray(amounts, dtype=np.float64)
    wrong: list[list[NDArray]] = [[], []]  # of validation and test: squared errors (strengths, digits) of each class
    for label in np.unique(parts[0][1]):
        x = rows(parts[0], label)
        centre = x.mean(axis=0)
        weights = ridge(x - centre, np.tile(goal - goal.mean(), len(x) // len(goal)), components)  # (A, D)
        for errors, part in zip(wrong, parts[1:], strict=True):
            guess = (rows(part, label) - centre) @ weights.T + goal.mean()  # (n * S, A)
            errors.append(((guess.reshape(-1, len(goal), len(STRENGTHS)) - goal[:, None]) ** 2).sum(axis=1).T)
    best = int(np.concatenate(wrong[0], axis=1).sum(axis=1).argmin())
    relative = np.concatenate(wrong[1], axis=1)[best] / ((goal - goal.mean()) ** 2).sum()  # (digits,)
    r2, reach = float(1 - relative.mean()), float(half_width(relative))
    return {"r2": r2, "low": r2 - reach, "high": r2 + reach, "strength": STRENGTHS[best]}


def ridge(x: NDArray, y: NDArray, components: int | None = None) -> NDArray:
    """Weights for each of ``STRENGTHS`` from one eigendecomposition; x and y are centred.

    Shapes: (n, D), (n,) -> (A, D)
    """
    values, basis = np.linalg.eigh(x.T @ x)  # ascending
    first = -(components or len(values))
    values, basis = np.maximum(values[first:], 0.0), basis[:, first:]
    scale = max(float(values.mean()), 1e-300)
    return (basis.T @ (x.T @ y)) / (values + scale * np.array(STRENGTHS)[:, None]) @ basis.T


class Crowd(NamedTuple):
    """What a CapsNet did with pictures of several objects, child by child (I = H' * W' * types)."""

    images: NDArray  # (B, C, H, W)
    couplings: NDArray  # (R, B, I, J)
    presence: NDArray  # (B, I): the children's lengths, or their presence where it is a number apart
    owner: NDArray  # (B, I): the object on which a child lies, see ``models.child_owners``; -1 for none
    classes: NDArray  # (B, K): the objects' classes
    lengths: NDArray  # (B, J)
    centres: NDArray  # (2, I): row and column of the middle of the children's receptive fields
    stride: int  # pixels from one child to the next


def route_crowd(model: Model, shapes: Shapes, index: NDArray) -> Crowd:
    """Forward some pictures with a trace."""
    batch, centres, field = shapes.batch(index), child_centres(model), model.receptive_field
    assert field is not None
    seen, (alone, classes) = traced(model, batch.images), objects(batch)
    owner = child_owners(torch.from_numpy(alone), centres, field.stride)
    pictures = batch.images.numpy(), seen.couplings, seen.presence, owner.numpy(), classes, seen.lengths
    return Crowd(*pictures, centres.numpy(), field.stride)


def shares(model: Model, shapes: Shapes, index: NDArray) -> dict[str, Any]:
    """What children on an object are coupled to, per iteration, with the half-widths of the intervals."""
    crowd = route_crowd(model, shapes, index)
    share = coupling_share(crowd.couplings, crowd.presence, crowd.owner, crowd.classes)
    result: dict[str, Any] = {"chance": 1 / crowd.couplings.shape[-1], "pictures": len(crowd.images)}
    for name, values in share.items():
        result[name], result[f"{name} interval"] = averaged(values)
    ahead = (share["own"] - share["others"])[:, np.isfinite(share["own"]).all(axis=0)]  # (R, objects)
    return result | {"own above other": np.where(abs(ahead) < 1e-6, 0.5, ahead > 0).mean(axis=1).tolist()}


def squares(values: NDArray, axis: int, centres: NDArray, stride: int, size: int) -> NDArray:
    """Values of children as those of ``size`` pixels along an axis: each on ``stride`` pixels around its centre, 0 on
    the others. Shapes: (..., len(centres), ...) -> (..., size, ...)"""
    child = (np.arange(size) + stride // 2 - centres[0]) // stride
    inside = (child >= 0) & (child < len(centres))
    spread = np.take(values, child.clip(0, len(centres) - 1), axis)
    return spread * np.expand_dims(inside, [k for k in range(values.ndim) if k != axis])


def coupling_pictures(path: Path, crowd: Crowd, names: Sequence[str]) -> Path:
    """A row per class, a column per picture: what its children see, coloured by their coupling, over the picture."""
    from matplotlib.colors import to_rgb

    (B, _, H, W), J = crowd.images.shape, crowd.couplings.shape[-1]
    y, x = (np.unique(axis) for axis in crowd.centres)  # of the children's grid, in pixels
    presence = crowd.presence.reshape(B, len(y), len(x), -1)  # (B, H', W', types)
    mass = (crowd.couplings[-1].reshape(*presence.shape, J) * presence[..., None]).sum(axis=3)  # (B, H', W', J)
    present = presence.sum(axis=3, keepdims=True)
    above = np.clip(mass / np.maximum(present, 1e-12) - 1 / J, 0, None)
    relative = above / max(float(above.max()), 1e-12) * present / present.max(axis=(1, 2), keepdims=True)
    strength = squares(squares(relative, 1, y, crowd.stride, H), 2, x, crowd.stride, W)  # (B, H, W, J)
    rows = [Row([Cell(image) for image in crowd.images], "picture")]
    for j, name in enumerate(names):
        cells = []
        for n, image in enumerate(crowd.images):
            mark, length, here = strength[n, ..., j], f"{crowd.lengths[n, j]:.2f}", j in crowd.classes[n]
            tinted = (1 - 0.28 * image) * (1 - mark) + np.array(to_rgb(COLOURS[j]))[:, None, None] * mark
            words = Words(length, INK, bold=True) if here else Words(f"absent, {length}", MUTED)
            cells.append(Cell(tinted, [words], COLOURS[j] if here else None))
        rows.append(Row(cells, f"to the\n{name}"))
    note = f"coupling above an even split, last iteration (full colour: {100 * above.max():.0f} points above it), "
    note += "times the presence of the children; number: the capsule's length"
    return picture_rows(path, rows, "Which parts go to which whole", note, size=240, gap=12)
