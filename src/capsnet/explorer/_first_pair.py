"""Which pair of digits a first visit shows: chosen by rule, so that it is one that the networks read."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet.data.base import Singles
from capsnet.explorer._answers import added
from capsnet.explorer._seen import place
from capsnet.explorer._service import ModelEntry
from capsnet.inference import PRESENT, evaluating
from capsnet.serving.images import Bytes, quantise

SEARCHED = 60  # pairs
AT_ONCE = 10


def first_pair(entry: ModelEntry, others: Iterable[ModelEntry]) -> int:
    """The number of the first pair that this network and all networks for pairs read, that is, whose two longest
    capsules are those of its digits and present. A network of single digits may read none:
    then the first that the others do."""
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
    made = [entry.gallery.single_digits(int(number)) for number in numbers]
    pictures = np.stack([_merged(each, entry.model.image_size) for each in made])
    with evaluating(entry.model):
        lengths, longest = entry.model(torch.from_numpy(pictures).float().div_(255).permute(0, 3, 1, 2)).lengths.topk(2)
    labels = np.stack([np.sort(each.classes) for each in made])
    right = (np.sort(longest.numpy()) == labels).all(axis=1)
    return numbers[right & (lengths.numpy() >= PRESENT).all(axis=1)]


def _merged(made: Singles, frame: tuple[int, int]) -> Bytes:
    moves = [(int(down), int(right)) for down, right in made.offsets]
    return added([place(digit, frame, move) for digit, move in zip(quantise(made.images), moves, strict=True)])
