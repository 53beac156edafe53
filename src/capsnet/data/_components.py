"""Which connected components of a mask are the digit."""

from typing import cast

import numpy as np
from numpy.typing import NDArray


def choose(
    mask: NDArray[np.bool_], ink: NDArray[np.float32], *, whole: bool = False
) -> tuple[float, NDArray[np.bool_]]:
    """Keep the digit: the heaviest part near the middle, and the parts beside it that are large enough to be strokes.

    Parts are 8-connected. A part on the border (a table edge, a shadow, a fold) scores less, and 0 if most of its
    outline is border. In a picture that the digit fills, ``whole``, only the latter holds. Returns the score of the
    best part (0: there is none) and the mask of the digit.

    Shapes: (H, W), (H, W) -> (), (H, W)
    """
    from scipy.ndimage import find_objects, label

    height, width = mask.shape
    labels, count = cast("tuple[NDArray[np.int32], int]", label(mask, structure=np.ones((3, 3))))
    y, x = np.nonzero(mask)
    part, weight = labels[y, x], ink[y, x].astype(np.float64)
    near = np.exp(-0.5 * (((y + 0.5) / height - 0.5) ** 2 + ((x + 0.5) / width - 0.5) ** 2) / 0.3**2)
    on_border = (y == 0) | (x == 0) | (y == height - 1) | (x == width - 1)
    mass, central, edge = (np.bincount(part, value, count + 1)[1:] for value in (weight, weight * near, on_border))
    boxes = np.array([[rows.start, columns.start, rows.stop, columns.stop] for rows, columns in find_objects(labels)])
    top, left, bottom, right = boxes.T
    outline = 2 * (bottom - top + right - left)
    penalty = np.where(edge > 0.2 * min(mask.shape), 0.05, np.where(edge > 0, 0.6, 1.0))
    scores = central * np.where(edge > (0.45 if whole else 0.4) * outline, 0.0, 1.0 if whole else penalty)
    main = int(np.argmax(scores))
    reach = 0.25 * max(bottom[main] - top[main], right[main] - left[main])
    gap = np.maximum(
        np.maximum(top - bottom[main], top[main] - bottom), np.maximum(left - right[main], left[main] - right)
    )
    keep = (gap <= reach) & (mass >= 0.04 * mass[main]) & (scores > 0 if whole else edge == 0)
    keep[main] = True
    return float(scores[main]), np.concatenate([[False], keep])[labels]
