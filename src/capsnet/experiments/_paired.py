"""Two networks on the same test pictures: accuracy, AUC, and intervals of their difference.

Intervals are from a bootstrap that draws *groups* of pictures (a patient, a micrograph; else each picture is its own
group), since pictures of a group are alike, and seeds, since another training gives another network. Both networks of a
pair get the same draws, so that what is difficult for both does not widen the interval of their difference.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
T = TypeVar("T")


class Answers(NamedTuple):
    """What a kind of network said about each test picture, after each of S trainings."""

    probabilities: NDArray  # (S, N, J)
    targets: NDArray  # (N,)
    folds: NDArray  # (S, N): which network of a seed; the AUC is that of each network, not of their union
    groups: NDArray  # (N,) from 0


class Draws(NamedTuple):
    """How often each picture was drawn, and which seeds."""

    weights: NDArray  # (B, N)
    seeds: NDArray  # (B, S)


def draw(groups: NDArray, seeds: int, count: int = DRAWS) -> Draws:
    """The draws of a bootstrap, always the same for the same groups."""
    rng = np.random.default_rng(0)
    total = int(groups.max()) + 1
    often = rng.multinomial(total, np.full(total, 1 / total), size=count)  # (B, G)
    return Draws(often[:, groups].astype(float), rng.integers(0, seeds, (count, seeds)))


def accuracy(answers: Answers, weights: NDArray) -> NDArray:
    """Of each seed, in percent. Shapes: weights (B, N) -> (B, S)"""
    right = answers.probabilities.argmax(axis=2) == answers.targets
    return 100 * (weights @ right.T) / weights.sum(axis=1, keepdims=True)


def auc(answers: Answers, weights: NDArray) -> NDArray:
    """Of each seed: the mean over folds and classes of the one-vs-rest AUC. Shapes: weights (B, N) -> (B, S)

    A class that a draw left out of a fold is not counted there.
    """
    seeds = []
    for probabilities, folds in zip(answers.probabilities, answers.folds, strict=True):
        areas = []
        for fold in np.unique(folds):
            inside = np.flatnonzero(folds == fold)
            for j in range(probabilities.shape[1]):
                mine = answers.targets[inside] == j
                areas.append(_areas(probabilities[inside, j], mine, weights[:, inside]))
        known = np.isfinite(areas)
        total = np.where(known, areas, 0.0).sum(axis=0)
        seeds.append(np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan))
    return np.stack(seeds, axis=1)


def _areas(scores: NDArray, positive: NDArray, weights: NDArray) -> NDArray:
    """Weighted AUCs, NaN without a positive or a negative. Shapes: (N,), (N,), (B, N) -> (B,)"""
    a, b = scores[positive], scores[~positive]
    won = (a[:, None] > b) + 0.5 * (a[:, None] == b)  # (P, N - P): ties count half
    for_a, for_b = weights[:, positive], weights[:, ~positive]
    pairs = for_a.sum(axis=1) * for_b.sum(axis=1)
    return np.where(pairs > 0, ((for_a @ won) * for_b).sum(axis=1) / np.where(pairs > 0, pairs, 1), np.nan)


def values(metric: Callable[[Answers, NDArray], NDArray], answers: Answers) -> list[float]:
    """A metric of each seed."""
    return metric(answers, np.ones((1, len(answers.targets))))[0].tolist()


def resampled(metric: Callable[[T, NDArray], NDArray], answers: T, draws: Draws) -> NDArray:
    """The mean over seeds of each draw. Shape: -> (B,)"""
    return np.take_along_axis(metric(answers, draws.weights), draws.seeds, axis=1).mean(axis=1)


def interval(samples: NDArray | Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of a bootstrap, rounded: an end that is zero must not be above it by the last bit."""
    low, high = np.nanpercentile(samples, (2.5, 97.5))
    return round(float(low), 9), round(float(high), 9)
