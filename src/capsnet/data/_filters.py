"""The two image filters that finding ink needs, in plain numpy: small pictures, so threads would only cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]  # (H, W)


def blur(plane: Plane, sigma: float) -> Plane:
    """Gaussian blur, edges repeated."""
    radius = max(1, round(3 * sigma))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    kernel = (kernel / kernel.sum()).astype(np.float32)
    for _ in range(2):  # down the columns, then, transposed, along the rows
        padded = np.pad(plane, ((radius, radius), (0, 0)), mode="edge")
        smooth = np.zeros_like(plane)
        for tap, weight in enumerate(kernel):
            smooth += weight * padded[tap : tap + len(plane)]
        plane = np.ascontiguousarray(smooth.T)
    return plane


def max_filter(plane: Plane, down: int, right: int) -> Plane:
    """The largest value within `down` rows and `right` columns; beyond the edge there is nothing.

    Windows are doubled until they are wide enough: the cost grows with the logarithm of the radius.
    """
    for radius in (down, right):
        width = 2 * radius + 1
        padded = np.pad(plane, ((radius, radius), (0, 0)), constant_values=-np.inf)
        reach = 1
        while 2 * reach <= width:
            padded = np.maximum(padded[:-reach], padded[reach:])
            reach *= 2
        if reach < width:
            padded = np.maximum(padded[: len(plane)], padded[width - reach :])
        plane = np.ascontiguousarray(padded.T)
    return plane
