"""Stratified splits and folds, keyed by file name and not by position.

Every example draws a random number from its name. Within a class the examples are sorted by it and cut into
consecutive runs, so sizes are exact and a new example moves at most one other across each cut. Copies of a file and
images of a group stay together, and groups are counted instead of images.

With several labels per example the classes take turns, the rarest first, each within its own quota: iterative
stratification (Sechidis, Tsoumakas, Vlahavas 2011) with whole quotas. Examples without a label come last. If a class is
then missing from a part, the numbers are drawn again, up to 20 times.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capsnet.data import keyed

_ATTEMPTS = 20

Quotas = Callable[[int, int], NDArray[np.int64]]  # (class number or -1, count) -> size of each part; they sum to count


@dataclass(frozen=True)
class Examples:
    """What a split needs to know about N examples; ``source`` is what errors call them."""

    source: str
    names: tuple[str, ...]
    member: NDArray[np.bool_]  # (N, J): which classes each belongs to
    groups: NDArray[np.int64]  # (N,), numbered from 0 without gaps: examples with the same number stay together
    class_names: tuple[str, ...]

    def take(self, index: NDArray[np.int64]) -> "Examples":
        groups = np.unique(self.groups[index], return_inverse=True)[1]
        names = tuple(self.names[i] for i in index)
        return Examples(self.source, names, self.member[index], groups, self.class_names)


def draw_parts(examples: Examples, fractions: tuple[float, ...], *, seed: int, stream: str) -> NDArray[np.int64]:
    """Cut into len(fractions) + 1 parts, the last of which takes the rest; every part has every class.

    Shapes: -> (N,) numbers of parts
    """
    parts = len(fractions) + 1
    purpose = {3: "one each for train, validation and test"}.get(parts, "one for each part of the split")
    _check_counts(examples, parts, purpose)

    def quotas(j: int, count: int) -> NDArray[np.int64]:
        least, sizes = int(j >= 0), []
        for later, fraction in zip(range(parts - 1, 0, -1), fractions, strict=True):
            room = max(0, count - sum(sizes) - later * least)
            sizes.append(min(max(least, round(count * fraction)), room))
        return np.array([*sizes, count - sum(sizes)], dtype=np.int64)

    return _distribute(examples, quotas, seed, stream)


def draw_folds(examples: Examples, folds: int, *, seed: int, stream: str) -> NDArray[np.int64]:
    """Cut into ``folds`` parts of equal size, class by class. Shapes: -> (N,) numbers of folds"""
    needed = max(folds, 4 if folds == 2 else 3)  # without a fold enough must be left for train and validation
    _check_counts(examples, needed, f"for {folds} folds and a validation split")
    turn = keyed.integers(seed, 0, _hashes((*examples.class_names, "")), 1, stream, 0, folds)[:, 0]

    def quotas(j: int, count: int) -> NDArray[np.int64]:
        sizes = np.diff(np.arange(folds + 1) * count // folds)
        return np.roll(sizes, turn[j])  # else the remainders of all classes would be in the same folds

    return _distribute(examples, quotas, seed, stream)


def _distribute(examples: Examples, quotas: Quotas, seed: int, stream: str) -> NDArray[np.int64]:
    """Give every group a part, class by class; see the top of this file."""
    member, keys = _by_group(examples)  # (G, J), (G,)
    missing = 0
    for attempt in range(_ATTEMPTS):
        order = np.argsort(keyed.bits(seed, attempt, keys, 1, stream)[:, 0], kind="stable")
        part = np.full(len(member), -1, dtype=np.int64)
        for j in np.argsort(member.sum(axis=0), kind="stable"):
            _place(part, order, member[:, j], quotas(int(j), int(member[:, j].sum())))
        unlabelled = np.logical_not(member.any(axis=1))
        _place(part, order, unlabelled, quotas(-1, int(unlabelled.sum())))
        count = len(quotas(-1, 0))
        present = np.stack([member[part == p].any(axis=0) for p in range(count)])  # (P, J)
        if present.all():
            return part[examples.groups]
        missing = int((~present).any(axis=0).argmax())
    raise ValueError(
        f"{examples.source}: class {examples.class_names[missing]!r} has {member[:, missing].sum()} different images, "
        "but the labels they share with other classes keep them out of some split: add images or name the splits"
    )


def _place(
    part: NDArray[np.int64], order: NDArray[np.int64], member: NDArray[np.bool_], quota: NDArray[np.int64]
) -> None:
    """Assign a part to those of ``member`` that have none, in ``order``, until each part has its quota."""
    room = np.clip(quota - np.bincount(part[member & (part >= 0)], minlength=len(quota)), 0, None)
    free = order[member[order] & (part[order] < 0)]
    part[free] = np.repeat(np.arange(len(quota)), room)[: len(free)]


def _by_group(examples: Examples) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """The classes of each group, and its key: that of its first name."""
    member = np.zeros((int(examples.groups.max()) + 1, examples.member.shape[1]), dtype=bool)
    np.logical_or.at(member, examples.groups, examples.member)
    by_name = np.array(sorted(range(len(examples.names)), key=examples.names.__getitem__), dtype=np.int64)
    _, first = np.unique(examples.groups[by_name], return_index=True)
    return member, _hashes(tuple(examples.names[i] for i in by_name[first]))


def _hashes(names: tuple[str, ...]) -> NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(os.fsencode(name), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _check_counts(examples: Examples, needed: int, purpose: str) -> None:
    counts = _by_group(examples)[0].sum(axis=0)
    few = [f"{examples.class_names[j]!r} has {counts[j]}" for j in np.flatnonzero(counts < needed)]
    if few:
        more = f" and {len(few) - 5} more classes have too few" if len(few) > 5 else ""
        once = " (copies and images of one group count once)" if len(examples.names) > examples.groups.max() + 1 else ""
        raise ValueError(
            f"{examples.source}: every class needs at least {needed} different images ({purpose}), but class "
            f"{', '.join(few[:5])}{more}{once}: add images, or merge or remove the class"
        )
