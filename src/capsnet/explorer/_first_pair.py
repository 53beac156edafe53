"""Which pair of objects a first visit shows: chosen by rule, so that it is one that the networks read."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet import data
from capsnet.data.base import Singles
from capsnet.explorer._answers import added
from capsnet.explorer._seen import place
from capsnet.explorer._service import ModelEntry
from capsnet.inference import PRESENT, evaluating
from capsnet.metrics import adjusted_rand_index
from capsnet.oscillators import phase_clusters
from capsnet.serving.images import Bytes, quantise

SEARCHED = 60  # pairs
AT_ONCE = 10


def first_pair(entry: ModelEntry, others: Iterable[ModelEntry]) -> int:
    """The number of the first pair that this network and all networks for pairs read, that is, whose two longest
    capsules are those of its objects and present, or whose objects the phases tell apart, in a network that has some. A
    network of single objects may read none: then the first that the others do."""
    if entry.first_pair is None:
        entry.first_pair = _search(entry, [other for other in others if _alike(other, entry)])
    return entry.first_pair


def _alike(other: ModelEntry, entry: ModelEntry) -> bool:
    return other.multi and other is not entry and other.model.class_names == entry.model.class_names


def _search(entry: ModelEntry, others: list[ModelEntry]) -> int:
    """By all, else by the networks for pairs, else by this one, else the first of all."""
    for readers in ([*others, entry], others, [entry]):
        for start in range(0, SEARCHED if readers else 0, AT_ONCE):
            numbers = np.arange(start, start + AT_ONCE)
            for each in readers:
                numbers = _read(each, numbers)
            if len(numbers):
                return int(numbers[0])
    return 0


def _read(entry: ModelEntry, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the pairs that a network reads."""
    if not len(numbers):
        return numbers
    made = [entry.gallery.two(int(number)) for number in numbers]
    alone = np.stack([_placed(each, entry.model.image_size) for each in made])  # (B, 2, H, W, C)
    merged = np.stack([added(list(each)) for each in alone])
    with evaluating(entry.model):
        output = entry.model(_tensor(merged))
    if output.phases is not None:
        return numbers[_told_apart(output.phases, data.owners(_tensor(alone)))]
    lengths, longest = output.lengths.topk(2)
    labels = np.stack([np.sort(each.classes) for each in made])
    right = (np.sort(longest.numpy()) == labels).all(axis=1)
    return numbers[right & (lengths.numpy() >= PRESENT).all(axis=1)]


def _told_apart(phases: Tensor, owners: Tensor) -> NDArray[np.bool_]:
    """Whether two groups of phases are the two objects. Shapes: (B, C, n, H, W), (B, H, W) -> (B,)"""
    result = []
    for directions, owner in zip(phases.flatten(1, 2).movedim(1, -1), owners, strict=True):
        own = owner > 0  # pixels of one object
        groups = phase_clusters(directions[own], clusters=2).labels
        result.append(adjusted_rand_index(owner[own], groups) == 1)
    return np.array(result)


def _placed(made: Singles, frame: tuple[int, int]) -> Bytes:
    """Each object alone in the network's frame, (2, H, W, C)."""
    moves = [(int(down), int(right)) for down, right in made.offsets]
    return np.stack([place(one, frame, move) for one, move in zip(quantise(made.images), moves, strict=True)])


def _tensor(pictures: Bytes) -> Tensor:
    """(..., H, W, C) bytes as (..., C, H, W) in [0, 1]."""
    return torch.from_numpy(pictures).float().div_(255).movedim(-1, -3)
