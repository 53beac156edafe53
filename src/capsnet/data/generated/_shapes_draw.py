"""Drawing simple shapes in batches, by their signed distances.

Coordinates are pixels, x to the right and y down, with pixel centres at whole numbers. A pose is (x, y, angle, width,
aspect): the centre of gravity, radians clockwise as seen on screen, and height = aspect * width.
"""

import numpy as np
from numpy.typing import NDArray

PRIMITIVES = ("rectangle", "triangle", "ellipse", "half")
"""A triangle is isosceles with its apex up, a half the lower half of an ellipse, flat side up (both at angle 0)."""
RECTANGLE, TRIANGLE, ELLIPSE, HALF = range(4)

_CHUNK = 64  # shapes drawn at once: few enough that the work stays in the processor's cache
_BOX_MIDDLE = np.array([0.0, -1 / 6, 0.0, 0.5 - 4 / (3 * np.pi)])  # of the upright box, in heights below the centre


def draw(
    kinds: NDArray, poses: NDArray, filled: NDArray, size: int, stroke: float, step: float = 1.0
) -> NDArray[np.float32]:
    """Draw each shape alone on a canvas of ``size`` pixels; those not ``filled`` are outlined, inside the shape.

    So shapes that touch share no ink, and a picture's ink is the sum of its parts', however they are arranged. ``step``
    samples every so many pixels only. A kind of -1 draws nothing.

    Shapes: kinds (N,), poses (N, 5), filled (N,) -> (N, size / step, size / step) in [0, 1]
    """
    axis = np.arange((step - 1) / 2, size - 0.5, step, dtype=np.float32)
    canvas = np.zeros((len(kinds), len(axis), len(axis)), np.float32)  # (N, H, W)
    for kind in range(len(PRIMITIVES)):
        rows = np.flatnonzero(kinds == kind)
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            inside = _distance(kind, poses[chunk], axis)  # (n, H, W)
            # a stroke is what lies within half its width of its middle line; filled is a stroke wider than the canvas
            half = np.where(filled[chunk], 2.0 * size, stroke / 2).astype(np.float32)[:, None, None]
            inside += half
            np.abs(inside, out=inside)
            inside -= half
            inside *= -1 / step
            inside += 0.5
            canvas[chunk] = np.clip(inside, 0, 1, out=inside)
    return canvas


def extents(kinds: NDArray, poses: NDArray) -> tuple[NDArray, NDArray]:
    """Lower and upper corner of a box along the axes that surely holds each shape. Shapes: (..., 5) -> 2 x (..., 2)"""
    angle, width = poses[..., 2], poses[..., 3]
    height = width * poses[..., 4]
    cos, sin = np.cos(angle), np.sin(angle)
    down = _BOX_MIDDLE[kinds] * height
    middle = np.stack([poses[..., 0] - sin * down, poses[..., 1] + cos * down], axis=-1)
    reach = np.stack([abs(cos) * width + abs(sin) * height, abs(sin) * width + abs(cos) * height], axis=-1) / 2
    return middle - reach, middle + reach


def _distance(kind: int, poses: NDArray, axis: NDArray[np.float32]) -> NDArray[np.float32]:
    """Signed distance of every pixel to the outline, negative inside. Shapes: (n, 5) and (W,) -> (n, W, W)"""
    x, y, angle, width, aspect = (column[:, None] for column in poses.T)  # (n, 1)
    cos, sin = np.cos(angle), np.sin(angle)
    # the shape's own axes are a sum of a term per column and a term per row: one addition per pixel
    across = (cos * (axis - x)).astype(np.float32)[:, None, :] + (sin * (axis - y)).astype(np.float32)[:, :, None]
    down = (-sin * (axis - x)).astype(np.float32)[:, None, :] + (cos * (axis - y)).astype(np.float32)[:, :, None]
    a = (width / 2).astype(np.float32)[:, :, None]  # (n, 1, 1)
    h = (width * aspect).astype(np.float32)[:, :, None]
    if kind == RECTANGLE:
        return np.maximum(np.abs(across) - a, np.abs(down) - h / 2)
    if kind == TRIANGLE:
        slant = np.hypot(h, a)
        sides = np.abs(across) * (h / slant) - (down + h * np.float32(2 / 3)) * (a / slant)
        return np.maximum(sides, down - h / 3)
    if kind == ELLIPSE:
        return _ellipse(across, down, a, h / 2)
    down += h * np.float32(4 / (3 * np.pi))
    return np.maximum(_ellipse(across, down, a, h), -down)


def _ellipse(across: NDArray, down: NDArray, a: NDArray, b: NDArray) -> NDArray:
    """To first order, f / |grad f|: exact on the outline, which is where anti-aliasing looks."""
    u, v = (across / a) ** 2, (down / b) ** 2
    radius = np.sqrt(u + v)
    slope = np.sqrt(u / a**2 + v / b**2)
    near_centre = slope < 1e-6
    slope[near_centre] = 1
    distance = radius * (radius - 1) / slope
    distance[near_centre] = -np.broadcast_to(np.minimum(a, b), distance.shape)[near_centre]
    return distance
