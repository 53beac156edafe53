"""Which oscillators are in phase: spherical k-means (Dhillon, Modha 2001), with several starts.

label_i = the k with the largest x_i . m_k,    m_k = unit(sum of the x_i with label k)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from capsnet.oscillators.checks import check_components, check_count, check_finite, check_weights
from capsnet.oscillators.sphere import unit


class Clusters(NamedTuple):
    """``labels`` (N,), ``centres`` (K, n) of unit length, and ``score``: the mean inner product with the own centre."""

    labels: Tensor
    centres: Tensor
    score: float


def phase_clusters(
    x: Tensor, clusters: int, *, weights: Tensor | None = None, seed: int = 0, starts: int = 10, iterations: int = 50
) -> Clusters:
    """Group unit vectors by direction. The best of ``starts`` is returned; the same seed gives the same result.

    A start takes vectors that are far from those taken before (k-means++). Oscillators of weight 0 get a label and
    move no centre.

    Shapes: x (N, n), weights (N,) -> labels (N,).
    """
    for what, value in (("clusters", clusters), ("starts", starts), ("iterations", iterations)):
        check_count(what, value)
    if x.ndim != 2 or clusters > len(x):
        raise ValueError(f"expected (N, n) with at least {clusters} oscillators, got {tuple(x.shape)}")
    check_components(x.shape[1])
    x = unit(x.detach().to(torch.float64))
    counts = _check_weights(x, weights)
    generator = torch.Generator().manual_seed(seed)
    best: Clusters | None = None
    for _ in range(starts):
        centres = _spread_out(x, counts, clusters, generator)
        labels = torch.full((len(x),), -1)
        for _ in range(iterations):
            changed = (x @ centres.T).argmax(dim=1)
            if torch.equal(changed, labels):
                break
            labels = changed
            sums = torch.zeros_like(centres).index_add(0, labels, x * counts[:, None])
            empty = sums.square().sum(dim=1) == 0
            centres = torch.where(empty[:, None], centres, unit(sums))
        score = float(((x * centres[labels]).sum(dim=1) * counts).sum() / counts.sum())
        if best is None or score > best.score:
            best = Clusters(labels, centres, score)
    assert best is not None
    return best


def _spread_out(x: Tensor, counts: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Start centres: each next one drawn with a probability that grows with its distance from the nearest so far."""
    chance = counts
    chosen: list[Tensor] = []
    for _ in range(clusters):
        if chance.sum() <= 0:  # fewer directions than clusters
            chance = counts
        pick = int(torch.multinomial(chance, 1, generator=generator))
        chosen.append(x[pick])
        nearest = (x @ torch.stack(chosen).T).amax(dim=1)
        chance = counts * (1 - nearest).clamp_min(0)
    return torch.stack(chosen)


def _check_weights(x: Tensor, weights: Tensor | None) -> Tensor:
    """The weights, by default 1, if they and the oscillators can be used."""
    counts = torch.ones(len(x), dtype=torch.float64) if weights is None else weights.to(torch.float64)
    if counts.shape != (len(x),):
        raise ValueError(f"expected a weight for each of {len(x)} oscillators, got the shape {tuple(counts.shape)}")
    check_finite("oscillators", x)
    check_weights(counts)
    if counts.sum() <= 0:
        raise ValueError("all weights are zero: there is nothing to group")
    return counts
