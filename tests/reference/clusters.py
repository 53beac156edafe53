"""Spherical k-means (Dhillon, Modha 2001) in plain loops over single oscillators, as lists of numbers."""

import math

Points = list[list[float]]


def dot(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def nearest(point: list[float], centres: Points) -> int:
    """The first centre with the largest inner product."""
    best = 0
    for k in range(1, len(centres)):
        if dot(point, centres[k]) > dot(point, centres[best]):
            best = k
    return best


def middle(x: Points, weights: list[float]) -> list[float] | None:
    """The direction of a weighted sum, None if there is none."""
    total = [sum(w * p[d] for p, w in zip(x, weights, strict=True)) for d in range(len(x[0]))]
    length = math.sqrt(dot(total, total))
    return [value / length for value in total] if length else None


def spherical_kmeans(
    x: Points, weights: list[float], centres: Points, iterations: int
) -> tuple[list[int], Points, float]:
    """Labels, centres and the weighted mean inner product with the own centre, from given centres on.

    A cluster without weight keeps its centre.
    """
    labels = [0] * len(x)
    for _ in range(iterations):
        labels = [nearest(point, centres) for point in x]
        own = [
            [w if label == k else 0.0 for w, label in zip(weights, labels, strict=True)] for k in range(len(centres))
        ]
        centres = [middle(x, own[k]) or centre for k, centre in enumerate(centres)]
    fit = [w * dot(point, centres[label]) for point, w, label in zip(x, weights, labels, strict=True)]
    return labels, centres, sum(fit) / sum(weights)
