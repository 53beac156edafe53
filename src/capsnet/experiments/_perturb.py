"""The measurements of ``perturb``: what each dimension of a class capsule does to the decoded digit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsnet import data
from capsnet.data import Dataset
from capsnet.experiments._strokes import PROPERTIES, measure
from capsnet.experiments.lab import device_of
from capsnet.inference import OFFSETS, evaluating, sweep_dimensions
from capsnet.models import Model

STEADY = 0.8  # |r| from which a dimension may be said to move a property
STANDS_OUT = 1.5  # effect, in root mean squares over the class's dimensions, from which it is named after it


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
        return [PROPERTIES[p].name for p in order if self.named[dim, p]]

    def best(self, p: int) -> int:
        """The dimension for a property: the strongest of the steady ones, or if none is steady the steadiest."""
        r = np.abs(self.r[:, p])
        return int(np.argmax(np.where(r >= STEADY, np.abs(self.strength[:, p]), -1) if r.max() >= STEADY else r))


def effects(values: np.ndarray, people: np.ndarray, offsets: Sequence[float] = OFFSETS) -> Effects:
    """From measured sweeps to effects. Each digit is compared with itself only, all digits share one straight line.

    How large an effect has to be is taken from people's own digits, not from what the decoder draws.

    Shapes: values (N, D, S, P) for N digits, D dimensions, S offsets; people (M, P)
    """
    moved = np.asarray(offsets) - np.mean(offsets)  # (S,)
    still = values[:, 0, int(np.argmin(np.abs(offsets)))]  # (N, P): the same in every row
    change = values - values.mean(axis=2, keepdims=True)
    joint = np.einsum("s,ndsp->dp", moved, change)
    total, totals = len(values) * (moved**2).sum(), (change**2).sum(axis=(0, 2))  # a number, (D, P)
    r = joint / np.sqrt(np.maximum(total * totals, 1e-18))
    return Effects(r, joint / total * (max(offsets) - min(offsets)), still.mean(axis=0), people.std(axis=0, ddof=1))


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
