"""Wholes and their parts: where each part of a house, a boat and a face belongs, and how wrong an arrangement is.

House and boat are made of the same rectangles and triangles: only the arrangement tells them apart. The frame of a
whole has its origin in the middle, x right and y down, and its size as the unit of length.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet.data.generated._shapes_draw import ELLIPSE, HALF, RECTANGLE, TRIANGLE


class Part(NamedTuple):
    """One part in the frame of its whole. A scrambled picture leaves the first part in its place."""

    name: str
    kind: int
    filled: bool
    x: float
    y: float
    angle: float
    width: float
    aspect: float


_LEG = 0.22  # height of the hull; bow and stern are right-angled, so that legs of this length continue it
_CORNER = 0.26 + _LEG / 3

ARRANGEMENTS: dict[str, tuple[Part, ...]] = {
    "house": (
        Part("walls", RECTANGLE, False, 0.0, 0.23, 0.0, 0.78, 0.46 / 0.78),
        Part("roof", TRIANGLE, False, 0.0, -0.155, 0.0, 1.0, 0.46),
        Part("door", RECTANGLE, True, -0.15, 0.27, 0.0, 0.17, 0.26 / 0.17),
        Part("window", RECTANGLE, True, 0.16, 0.2, 0.0, 0.17, 0.85),
    ),
    "boat": (
        Part("hull", RECTANGLE, True, 0.0, 0.37, 0.0, 0.52, _LEG / 0.52),
        Part("bow", TRIANGLE, True, _CORNER, 0.26 + _LEG / 3, -np.pi / 4, _LEG * 2**0.5, 0.5),
        Part("stern", TRIANGLE, True, -_CORNER, 0.26 + _LEG / 3, np.pi / 4, _LEG * 2**0.5, 0.5),
        Part("mast", RECTANGLE, True, -0.06, -0.12, 0.0, 0.07, 0.76 / 0.07),
        Part("sail", TRIANGLE, False, 0.21, -0.06, 0.0, 0.44, 0.6 / 0.44),
    ),
    "face": (
        Part("head", ELLIPSE, False, 0.0, 0.0, 0.0, 0.84, 1.0 / 0.84),
        Part("left eye", ELLIPSE, True, -0.17, -0.14, 0.0, 0.14, 1.3),
        Part("right eye", ELLIPSE, True, 0.17, -0.14, 0.0, 0.14, 1.3),
        Part("nose", TRIANGLE, True, 0.0, 0.05, 0.0, 0.14, 1.4),
        Part("mouth", HALF, True, 0.0, 0.27, 0.0, 0.4, 0.4),
    ),
}
WHOLES = tuple(ARRANGEMENTS)
_ALIKE = {"boat": (1, 2), "face": (1, 2)}  # parts that may change places without changing the whole
PARTS = max(len(parts) for parts in ARRANGEMENTS.values())  # P; shorter wholes are padded
REACH = np.array([[0.5, 0.5], [0.5, 0.5], [0.3, 0.37]])  # (J, 2): scrambled parts stay this near to the middle
JITTER = np.array([0.015, 0.015, 0.05, 0.05, 0.05])  # of x, y (sizes), angle (radians), width and aspect (fractions)


def _table(pick: str, empty: float) -> NDArray:
    rows = [[getattr(p, pick) for p in parts] + [empty] * (PARTS - len(parts)) for parts in ARRANGEMENTS.values()]
    return np.array(rows)


VALID = _table("kind", -1) >= 0  # (J, P)
KINDS = _table("kind", -1)  # (J, P)
FILLED = _table("filled", False).astype(bool)  # (J, P)
PLACES = np.stack([_table(pick, 0.0) for pick in ("x", "y", "angle", "width", "aspect")], axis=-1)  # (J, P, 5)
READINGS = np.tile(np.arange(PARTS), (len(WHOLES), 2, 1))  # (J, R, P): orders of the parts that mean the same whole
for _name, _pair in _ALIKE.items():
    READINGS[WHOLES.index(_name), 1, list(_pair)] = _pair[::-1]


def place(wholes: NDArray, local: NDArray) -> NDArray:
    """Carry part poses from the frame of their whole onto the canvas: the part-to-whole transformation.

    Shapes: wholes (..., 4) x, y, angle, size; local (..., P, 5) -> (..., P, 5)
    """
    angle, size = wholes[..., 2, None], wholes[..., 3, None]  # (..., 1)
    shape = [angle + local[..., 2], size * local[..., 3], local[..., 4]]
    return np.concatenate([to_canvas(wholes, local[..., :2]), np.stack(shape, axis=-1)], axis=-1)


def to_canvas(wholes: NDArray, centres: NDArray) -> NDArray:
    """Points from the frame of the whole to pixels. Shapes: (..., 4), (..., P, 2) -> (..., P, 2)"""
    x, y, angle, size = (wholes[..., None, i] for i in range(4))  # (..., 1)
    cos, sin = np.cos(angle), np.sin(angle)
    right, down = size * centres[..., 0], size * centres[..., 1]
    return np.stack([x + cos * right - sin * down, y + sin * right + cos * down], axis=-1)


def to_frame(wholes: NDArray, centres: NDArray) -> NDArray:
    """Points from pixels to the frame of the whole. Shapes: (..., 4), (..., P, 2) -> (..., P, 2)"""
    x, y, angle, size = (wholes[..., None, i] for i in range(4))
    cos, sin = np.cos(angle), np.sin(angle)
    right, down = (centres[..., 0] - x) / size, (centres[..., 1] - y) / size
    return np.stack([cos * right + sin * down, cos * down - sin * right], axis=-1)


def pair_error(classes: NDArray, centres: NDArray) -> NDArray:
    """The error of the best-placed pair of parts, in sizes of the whole.

    The error of a pair is the difference between the vector from one part to the other and that in the arrangement.
    Parts that look alike may change places.

    Shapes: classes (...), centres (..., P, 2) in the frame of the whole -> (...)
    """
    off = _as_complex(centres)[..., None, :] - _right(classes)  # (..., R, P): how far each part is from its place
    gaps = abs(off[..., :, None] - off[..., None, :])  # (..., R, P, P)
    valid = VALID[classes]
    counts = valid[..., :, None] & valid[..., None, :] & ~np.eye(PARTS, dtype=bool)
    return np.where(counts[..., None, :, :], gaps, np.inf).min(axis=(-1, -2, -3))


def fit_error(classes: NDArray, centres: NDArray) -> NDArray:
    """Root mean square distance of the parts from the right arrangement, moved and turned to fit best, in sizes.

    An upside-down house has error 0 here, but not in ``pair_error``. In complex numbers the best turn has a closed
    form.

    Shapes: classes (...), centres (..., P, 2) in the frame of the whole -> (...)
    """
    weight = VALID[classes] / VALID[classes].sum(axis=-1, keepdims=True)  # (..., P)
    parts = _as_complex(centres)
    parts = (parts - (weight * parts).sum(axis=-1, keepdims=True))[..., None, :]  # (..., 1, P)
    right = _right(classes)  # (..., R, P)
    weight = weight[..., None, :]
    right = right - (weight * right).sum(axis=-1, keepdims=True)
    spread = (weight * (abs(parts) ** 2 + abs(right) ** 2)).sum(axis=-1)
    shared = abs((weight * parts * right.conj()).sum(axis=-1))
    return np.sqrt(np.maximum(spread - 2 * shared, 0)).min(axis=-1)


def _as_complex(points: NDArray) -> NDArray:
    return points[..., 0] + 1j * points[..., 1]


def _right(classes: NDArray) -> NDArray:
    """Where the parts should be, in each reading, as complex numbers. Shapes: (...) -> (..., R, P)"""
    return np.take_along_axis(_as_complex(PLACES)[:, None, :], READINGS, axis=-1)[classes]
