"""The measurements of ``perturb``: strokes, and what each dimension of a class capsule does to them.

Everything is weighted by the ink: there is no threshold, so a decoder's soft greys count by their value, and a small
change of the picture is a small change of the number. A uniform change of brightness changes ``area`` alone.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from capsnet import data
from capsnet.data import Dataset, stroke_width
from capsnet.experiments.lab import device_of
from capsnet.inference import OFFSETS, evaluating, sweep_dimensions
from capsnet.models import Model

NAMES = ("thickness", "area", "slant", "width", "height", "x position", "y position")
PROPERTIES = dict(zip(NAMES, ("px", "px²", "°", *["px"] * 4), strict=True))
"""Names and units. A positive slant leans to the right; the y position counts downwards, as rows do."""
TAIL = 0.05  # of the ink on either side that an extent leaves out
STEADY = 0.8  # |r| from which a dimension may be said to move a property
STANDS_OUT = 1.5  # effect, in root mean squares over the class's dimensions, from which it is named after it


def measure(pictures: Tensor) -> Tensor:
    """The properties of each picture, in the order of PROPERTIES. Shapes: (..., H, W), ink in [0, 1] -> (..., P)

    A picture without any ink has zero of everything.
    """
    if pictures.ndim < 2 or not pictures.is_floating_point():
        raise ValueError(f"pictures must be floats (..., H, W), got {pictures.dtype} of shape {tuple(pictures.shape)}")
    ink = pictures.double()
    H, W = ink.shape[-2:]
    area = ink.sum(dim=(-2, -1))
    some = area.clamp_min(1e-9)
    columns, rows = ink.sum(dim=-2), ink.sum(dim=-1)  # (..., W), (..., H)
    across = torch.arange(W, dtype=ink.dtype, device=ink.device) - (W - 1) / 2  # from the picture's middle
    down = torch.arange(H, dtype=ink.dtype, device=ink.device) - (H - 1) / 2
    x, y = (columns * across).sum(-1) / some, (rows * down).sum(-1) / some
    dx, dy = across - x[..., None], down - y[..., None]  # (..., W), (..., H)
    skew = torch.einsum("...hw,...h,...w->...", ink, dy, dx)
    tall = (rows * dy.square()).sum(-1)
    slant = torch.rad2deg(torch.atan2(-skew, tall))  # rows count downwards, so leaning right is a negative skew
    return torch.stack([stroke_width(ink), area, slant, extent(columns), extent(rows), x, y], dim=-1)


def extent(profile: Tensor) -> Tensor:
    """How long a profile of ink is, in pixels: a uniform one of n pixels has n. (..., N) -> (...)

    From the quantile TAIL to 1 - TAIL, interpolated within pixels and scaled up for what was left out.
    """
    N = profile.shape[-1]
    total = profile.sum(-1, keepdim=True).clamp_min(1e-9)
    reached = pad((profile / total).cumsum(-1), (1, 0))  # (..., N + 1): the share left of each pixel border

    def quantile(share: float) -> Tensor:
        after = (reached < share).sum(-1, keepdim=True).clamp(1, N)  # the border by which it is reached
        low, high = reached.gather(-1, after - 1), reached.gather(-1, after)
        return (after - 1 + (share - low) / (high - low).clamp_min(1e-9)).squeeze(-1)

    length = (quantile(1 - TAIL) - quantile(TAIL)) / (1 - 2 * TAIL)
    return torch.where(profile.sum(-1) > 1e-9, length, torch.zeros_like(length))


class Effects(NamedTuple):
    """One class: what its D dimensions do to the P properties."""

    r: np.ndarray  # (D, P): correlation of the offset with the property, within digits
    effect: np.ndarray  # (D, P): change of the property over the whole sweep, in its unit
    typical: np.ndarray  # (P,): mean of the property among the decoded digits, unmoved
    spread: np.ndarray  # (P,): its standard deviation among people's digits of this class

    @property
    def strength(self) -> np.ndarray:
        """The effect in root mean squares over the dimensions: degrees and pixels become comparable. (D, P)"""
        return self.effect / np.maximum(np.sqrt((self.effect**2).mean(axis=0)), 1e-9)

    @property
    def moves(self) -> np.ndarray:
        """Where a dimension moves a property steadily, and as far as digits of the class differ. (D, P), boolean"""
        return (np.abs(self.r) >= STEADY) & (np.abs(self.effect) >= self.spread)

    @property
    def named(self) -> np.ndarray:
        """Where a dimension is named after a property. (D, P), boolean"""
        return self.moves & (np.abs(self.strength) >= STANDS_OUT)

    def names(self, dim: int) -> list[str]:
        """The properties that a dimension is named after, strongest first."""
        order = np.argsort(-np.abs(self.strength[dim]))
        return [NAMES[p] for p in order if self.named[dim, p]]

    def best(self, p: int) -> int:
        """The dimension for a property: the strongest of the steady ones, or if none is steady the steadiest."""
        r = np.abs(self.r[:, p])
        return int(np.argmax(np.where(r >= STEADY, np.abs(self.strength[:, p]), -1) if r.max() >= STEADY else r))


def effects(values: np.ndarray, people: np.ndarray) -> Effects:
    """From measured sweeps to effects. Each digit is compared with itself only, all digits share one straight line.

    How large an effect has to be is taken from people's own digits, not from what the decoder draws.

    Shapes: values (N, D, S, P) for N digits, D dimensions, S offsets; people (M, P)
    """
    moved = np.asarray(OFFSETS) - np.mean(OFFSETS)  # (S,)
    still = values[:, 0, int(np.argmin(np.abs(OFFSETS)))]  # (N, P): the same in every row
    change = values - values.mean(axis=2, keepdims=True)
    joint = np.einsum("s,ndsp->dp", moved, change)
    total, totals = len(values) * (moved**2).sum(), (change**2).sum(axis=(0, 2))  # a number, (D, P)
    r = joint / np.sqrt(np.maximum(total * totals, 1e-18))
    return Effects(r, joint / total * (max(OFFSETS) - min(OFFSETS)), still.mean(axis=0), people.std(axis=0, ddof=1))


class Digits(NamedTuple):
    """The chosen digits of each class, how many of them are classified correctly, and all digits' properties."""

    poses: list[Tensor]  # per class (N, J, D)
    correct: int
    people: list[np.ndarray]  # per class (M, P)


def choose(model: Model, digits: Dataset, each: int) -> Digits:
    """The first ``each`` digits of every class that are classified correctly; if there are too few, others too."""
    outputs, targets, properties = [], [], []
    with evaluating(model):
        for batch in data.batches(digits, 250):
            outputs.append(model(batch.images.to(device_of(model))).poses)
            targets.append(batch.targets)
            properties.append(measure(batch.images[:, 0]))
    poses, truth, people = torch.cat(outputs), torch.cat(targets), torch.cat(properties).numpy()
    right = poses.norm(dim=-1).argmax(dim=1).cpu() == truth
    chosen, correct = [], 0
    for label in range(digits.num_classes):
        members = torch.nonzero(truth == label)[:, 0]
        members = members[torch.argsort(~right[members], stable=True)][:each]
        correct += int(right[members].sum())
        chosen.append(poses[members.to(poses.device)])
    return Digits(chosen, correct, [people[truth.numpy() == label] for label in range(digits.num_classes)])


def sweep(model: Model, poses: Tensor, label: int) -> np.ndarray:
    """Every dimension of every digit swept, decoded and measured. Shapes: (N, J, D) -> (N, D, S, P)"""
    return np.stack([measure(sweep_dimensions(model, pose, label)[:, :, 0]).cpu().numpy() for pose in poses])


def class_effects(model: Model, chosen: Digits) -> list[Effects]:
    """The effects of each class."""
    both = enumerate(zip(chosen.poses, chosen.people, strict=True))
    return [effects(sweep(model, poses, label), people) for label, (poses, people) in both]


def name_dimensions(model: Model, digits: Dataset, each: int) -> list[list[str | None]]:
    """The strongest name of each dimension of each class, None where it has none: [J][D]."""
    measured = class_effects(model, choose(model, digits, each))
    return [[next(iter(one.names(dim)), None) for dim in range(len(one.r))] for one in measured]
