"""Connected components of a mask, and which of them are the digit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def label(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], int]:
    """Number the 8-connected components of a mask 1..K; 0 is background.

    Every pixel starts as its own root; each round the roots of neighbouring pixels are joined at the smaller one and
    all paths are halved until nothing moves. A handful of vectorised rounds, whatever the shape.

    Shapes: (H, W) -> (H, W), K
    """
    number = np.full(mask.shape, -1, dtype=np.int64)
    number[mask] = np.arange(int(mask.sum()))
    pairs = []
    for first, second in (
        (number[:, :-1], number[:, 1:]),
        (number[:-1], number[1:]),
        (number[:-1, :-1], number[1:, 1:]),
        (number[:-1, 1:], number[1:, :-1]),
    ):
        both = (first >= 0) & (second >= 0)
        pairs.append(np.stack([first[both], second[both]]))
    left, right = np.concatenate(pairs, axis=1)
    root = np.arange(int(mask.sum()))
    while True:
        a, b = root[left], root[right]
        if (a == b).all():
            break
        np.minimum.at(root, np.maximum(a, b), np.minimum(a, b))
        while (root[root] != root).any():
            root = root[root]
    found, compact = np.unique(root, return_inverse=True)
    labels = np.zeros(mask.shape, dtype=np.int64)
    labels[mask] = compact + 1
    return labels, len(found)


@dataclass(frozen=True)
class Parts:
    """Measurements of K components, one entry each."""

    mass: NDArray[np.float64]  # (K,) ink
    central: NDArray[np.float64]  # (K,) ink, weighted by closeness to the middle of the picture
    box: NDArray[np.int64]  # (K, 4) top, left, bottom, right (exclusive)
    edge: NDArray[np.int64]  # (K,) pixels on the picture's border


def measure(labels: NDArray[np.int64], count: int, ink: NDArray[np.float32]) -> Parts:
    height, width = labels.shape
    y, x = np.nonzero(labels)
    part, weight = labels[y, x] - 1, ink[y, x].astype(np.float64)
    near = np.exp(-0.5 * (((y + 0.5) / height - 0.5) ** 2 + ((x + 0.5) / width - 0.5) ** 2) / 0.3**2)
    box = np.tile(np.array([height, width, 0, 0]), (count, 1))
    np.minimum.at(box[:, 0], part, y)
    np.minimum.at(box[:, 1], part, x)
    np.maximum.at(box[:, 2], part, y + 1)
    np.maximum.at(box[:, 3], part, x + 1)
    border = (y == 0) | (x == 0) | (y == height - 1) | (x == width - 1)
    return Parts(
        np.bincount(part, weight, count).astype(np.float64),
        np.bincount(part, weight * near, count).astype(np.float64),
        box,
        np.bincount(part[border], minlength=count),
    )


def choose(labels: NDArray[np.int64], count: int, ink: NDArray[np.float32]) -> tuple[float, NDArray[np.bool_]]:
    """Keep the digit: the heaviest part near the middle, and the parts beside it that are large enough to be strokes.

    A part that runs along the border (a table edge, a shadow, a fold) is hardly a stroke, and none at all if most of
    its outline is border. Returns the score of the best part (0: there is none) and the mask of the digit.
    """
    parts = measure(labels, count, ink)
    top, left, bottom, right = parts.box.T
    outline = 2 * (bottom - top + right - left)
    doubt = np.where(parts.edge > 0.2 * min(labels.shape), 0.05, np.where(parts.edge > 0, 0.6, 1.0))
    scores = parts.central * np.where(parts.edge > 0.4 * outline, 0.0, doubt)
    main = int(np.argmax(scores))
    reach = 0.25 * max(bottom[main] - top[main], right[main] - left[main])
    gap = np.maximum(
        np.maximum(top - bottom[main], top[main] - bottom), np.maximum(left - right[main], left[main] - right)
    )
    keep = (gap <= reach) & (parts.mass >= 0.04 * parts.mass[main]) & (parts.edge == 0)
    keep[main] = True
    return float(scores[main]), np.concatenate([[False], keep])[labels]
