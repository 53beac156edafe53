"""Scenes of one part, one whole, one scrambled whole, or several wholes.

A scene is a pure function of (seed, stream, example index). Scrambling and crowding are searches: proposals are drawn,
each under its own key, until one meets the conditions in the docstring.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet.data import keyed
from capsnet.data.generated import _shapes_wholes as wholes
from capsnet.data.generated._shapes_draw import ELLIPSE, RECTANGLE, TRIANGLE, draw, extents
from capsnet.data.generated._shapes_wholes import FILLED, JITTER, KINDS, PARTS, PLACES, REACH, VALID, WHOLES, place

SINGLE_PARTS = ("rectangle", "triangle", "ellipse")
PAIR_ERROR = 0.2  # scrambled: least ``pair_error``, in sizes of the whole
FIT_ERROR = 0.15  # scrambled: least ``fit_error``, in sizes of the whole
INK_ERROR = 0.05  # scrambled: largest relative difference of the sum of the pixels from that of the right picture
SHARED = (0.03, 0.28)  # crowded: bounds of the fraction of each object's silhouette that others cover
TILT = 0.5  # radians: how far a whole leans to either side

_PROPOSALS = 16  # per round; most examples need one to three rounds
_ROUNDS = 5000  # never reached: the slowest of 24,000 examples needs about a hundred


class Scene(NamedTuple):
    """K objects of up to P parts in each of B pictures, in pixels; see ``Truth`` for the columns."""

    poses: NDArray  # (B, K, 4)
    classes: NDArray  # (B, K)
    parts: NDArray  # (B, K, P, 5)
    kinds: NDArray  # (B, K, P), -1 where a whole has fewer parts
    filled: NDArray  # (B, K, P)


def empty_scene(count: int, objects: int, parts: int) -> Scene:
    """Room for the scenes of ``count`` pictures."""
    shape = (count, objects, parts)
    return Scene(
        np.zeros((*shape[:2], 4)),
        np.zeros(shape[:2], np.int64),
        np.zeros((*shape, 5)),
        np.zeros(shape, np.int64),
        np.zeros(shape, bool),
    )


class Key(NamedTuple):
    """The address of random numbers: a split of a data set with a seed."""

    seed: int
    stream: str

    def uniform(self, index: NDArray, n: int, use: str) -> NDArray:
        """Shapes: (B,) -> (B, n) in [0, 1)"""
        return keyed.uniform(self.seed, 0, index, n, f"{self.stream}.{use}")


def stroke_width(size: int) -> float:
    return size / 28


def single_parts(key: Key, index: NDArray, size: int) -> Scene:
    """One rectangle, triangle or ellipse at any angle, outlined or filled.

    The aspect stays below an equilateral triangle's and a circle's, so that the angle is defined: it
    lies in [-pi, pi) for a triangle and in [-pi/2, pi/2) for the others, which half a turn leaves as they are.
    """
    unit = key.uniform(index, 7, "part")  # (B, 7)
    classes = (unit[:, 0] * len(SINGLE_PARTS)).astype(np.int64)
    kinds = np.array([RECTANGLE, TRIANGLE, ELLIPSE])[classes]
    turn = np.where(kinds == TRIANGLE, 2 * np.pi, np.pi) * (unit[:, 1] - 0.5)
    width, aspect = size * (0.35 + 0.25 * unit[:, 2]), 0.4 + 0.25 * unit[:, 3]
    parts = np.stack([np.zeros_like(turn), np.zeros_like(turn), turn, width, aspect], axis=-1)  # (B, 5)
    parts[:, :2] = _corner(*extents(kinds, parts), unit[:, 4:6], size)
    shaped = parts[:, None, None]
    filled = unit[:, 6] < 0.5
    return Scene(shaped[..., 0, :4], classes[:, None], shaped, kinds[:, None, None], filled[:, None, None])


def single_wholes(key: Key, index: NDArray, size: int) -> Scene:
    """One house, boat or face, upright or leaning, each part within a little jitter of its place."""
    unit = key.uniform(index, 5, "whole")  # (B, 5)
    classes = (unit[:, 0] * len(WHOLES)).astype(np.int64)[:, None]  # (B, 1)
    poses = np.zeros((len(index), 1, 4))
    poses[:, 0, 2] = TILT * (2 * unit[:, 1] - 1)
    poses[:, 0, 3] = size * (0.5 + 0.15 * unit[:, 2])
    local = _jittered(key, index, classes)
    low, high = _whole_extents(classes, place(poses, local))
    poses[..., :2] = _corner(low, high, unit[:, None, 3:5], size)
    return _scene(poses, classes, place(poses, local))


def scrambled_wholes(key: Key, index: NDArray, size: int) -> Scene:
    """The pictures of ``single_wholes``, with every part but the first moved and turned so that there is no whole.

    ``pair_error`` is at least ``PAIR_ERROR`` and ``fit_error`` at least ``FIT_ERROR``; all parts are on the canvas,
    about where the whole would be; and the amount of ink is that of the right picture within ``INK_ERROR``.
    """
    right = single_wholes(key, index, size)
    classes, poses, ink = right.classes, right.poses, _ink(right, size)  # (B, 1), (B, 1, 4), (B,)

    def propose(rows: NDArray, use: str) -> tuple[NDArray, NDArray]:
        unit = key.uniform(index[rows], _PROPOSALS * PARTS * 3, use).reshape(len(rows), _PROPOSALS, PARTS, 3)
        whole = poses[rows]  # (b, 1, 4): one for all proposals
        moved = np.repeat(right.parts[rows], _PROPOSALS, axis=1)  # (b, T, P, 5)
        label = np.broadcast_to(classes[rows], moved.shape[:2])
        moved[..., 1:, :2] = wholes.to_canvas(whole, REACH[label][..., None, :] * (2 * unit[..., 1:, :2] - 1))
        moved[..., 1:, 2] = 2 * np.pi * (unit[..., 1:, 2] - 0.5)
        low, high = extents(KINDS[label], moved)
        inside = np.all((low >= 0) & (high <= size - 1), axis=-1) | ~VALID[label]  # (b, T, P)
        passed = np.asarray(np.all(inside, axis=-1))  # (b, T)
        centres = wholes.to_frame(whole, moved[..., :2])
        passed[passed] = wholes.pair_error(label[passed], centres[passed]) >= PAIR_ERROR
        passed[passed] = wholes.fit_error(label[passed], centres[passed]) >= FIT_ERROR
        return moved, passed

    def accept(rows: NDArray, parts: NDArray) -> NDArray:
        scene = Scene(poses[rows], classes[rows], parts[:, None], right.kinds[rows], right.filled[rows])
        return abs(_ink(scene, size) / ink[rows] - 1) <= INK_ERROR

    return right._replace(parts=_search(len(index), propose, accept)[:, None])


def crowded_wholes(key: Key, index: NDArray, size: int, objects: int) -> Scene:
    """Several wholes of different classes, each of them touching another.

    Others cover a fraction within ``SHARED`` of each silhouette (its parts filled).
    """
    count = len(index)
    classes = np.argsort(key.uniform(index, len(WHOLES), "classes"), axis=1, kind="stable")[:, :objects]  # (B, K)
    unit = key.uniform(index, 2 * objects, "whole").reshape(count, objects, 2)
    poses = np.zeros((count, objects, 4))
    poses[..., 2] = TILT * (2 * unit[..., 0] - 1)
    poses[..., 3] = size * (0.4 + 0.09 * unit[..., 1])
    local = _jittered(key, index, classes)
    low, high = _whole_extents(classes, place(poses, local))  # (B, K, 2), of objects in the corner of the canvas

    def propose(rows: NDArray, use: str) -> tuple[NDArray, NDArray]:
        unit = key.uniform(index[rows], _PROPOSALS * objects * 2, use).reshape(len(rows), _PROPOSALS, objects, 2)
        corner = _corner(low[rows, None], high[rows, None], unit, size)  # (b, T, K, 2)
        return corner, _boxes_meet(corner + low[rows, None], corner + high[rows, None])

    def accept(rows: NDArray, corner: NDArray) -> NDArray:
        moved = poses[rows]
        moved[..., :2] = corner
        scene = _scene(moved, classes[rows], place(moved, local[rows]))
        passed = np.asarray(np.all(shared_silhouettes(scene, size, step=2) < SHARED[1] + 0.1, axis=1))  # a cheap guess
        covered = shared_silhouettes(Scene(*(column[passed] for column in scene)), size)
        passed[passed] = np.all((covered >= SHARED[0]) & (covered <= SHARED[1]), axis=1)
        return passed

    poses[..., :2] = _search(count, propose, accept)
    return _scene(poses, classes, place(poses, local))


def draw_parts(scene: Scene, size: int, *, silhouette: bool = False, step: float = 1.0) -> NDArray[np.float32]:
    """Each part alone, as in the picture or (silhouette) filled. Shapes: -> (B, K, P, H, W) in [0, 1]"""
    filled = np.ones_like(scene.filled) if silhouette else scene.filled
    drawn = draw(
        scene.kinds.reshape(-1), scene.parts.reshape(-1, 5), filled.reshape(-1), size, stroke_width(size), step
    )
    return drawn.reshape(*scene.kinds.shape, *drawn.shape[1:])


def shared_silhouettes(scene: Scene, size: int, step: float = 1.0) -> NDArray:
    """The fraction of each object's silhouette that others cover. Shapes: -> (B, K)"""
    solid = draw_parts(scene, size, silhouette=True, step=step).max(axis=2) > 0.5  # (B, K, H, W)
    crossed = solid & (solid.sum(axis=1, keepdims=True) > 1)
    return crossed.sum(axis=(2, 3)) / solid.sum(axis=(2, 3))


def _search(
    count: int,
    propose: Callable[[NDArray, str], tuple[NDArray, NDArray]],
    accept: Callable[[NDArray, NDArray], NDArray],
) -> NDArray:
    """For each example the first proposal that passes the cheap test of ``propose`` and the costly one of ``accept``.

    ``propose(rows, use)`` gives (b, T, ...) proposals and (b, T) which pass; ``accept(rows, chosen)`` judges those.
    """
    accepted: NDArray | None = None
    todo = np.arange(count)
    for attempt in range(_ROUNDS):
        proposals, passed = propose(todo, f"search{attempt}")
        passed &= passed.cumsum(axis=1) <= 2  # judging more than the first two costs more than another round
        row, which = np.nonzero(passed)
        passed[row, which] = accept(todo[row], proposals[row, which])
        accepted = np.zeros((count, *proposals.shape[2:])) if accepted is None else accepted
        accepted[todo] = proposals[np.arange(len(todo)), passed.argmax(axis=1)]
        todo = todo[~passed.any(axis=1)]
        if not todo.size:
            return accepted
    raise RuntimeError(f"{todo.size} of {count} scenes were not accepted in {_ROUNDS} rounds: the bounds are too tight")


def _ink(scene: Scene, size: int) -> NDArray:
    """Sum of the pixels of each picture. Shapes: -> (B,)"""
    return draw_parts(scene, size).max(axis=(1, 2)).sum(axis=(1, 2))


def _jittered(key: Key, index: NDArray, classes: NDArray) -> NDArray:
    """Parts at their places, with jitter. Shapes: index (B,), classes (B, K) -> (B, K, P, 5)"""
    shape = (*classes.shape, PARTS, 5)
    unit = 2 * key.uniform(index, shape[1] * PARTS * 5, "jitter").reshape(shape) - 1
    local = PLACES[classes].copy()
    local[..., :3] += JITTER[:3] * unit[..., :3]
    local[..., 3:] *= 1 + JITTER[3:] * unit[..., 3:]
    return local * VALID[classes][..., None]


def _scene(poses: NDArray, classes: NDArray, parts: NDArray) -> Scene:
    return Scene(poses, classes, parts * VALID[classes][..., None], KINDS[classes], FILLED[classes])


def _whole_extents(classes: NDArray, parts: NDArray) -> tuple[NDArray, NDArray]:
    """The box along the axes around all parts of each whole. Shapes: (B, K), (B, K, P, 5) -> 2 x (B, K, 2)"""
    low, high = extents(KINDS[classes], parts)
    valid = VALID[classes][..., None]
    return np.where(valid, low, np.inf).min(axis=-2), np.where(valid, high, -np.inf).max(axis=-2)


def _corner(low: NDArray, high: NDArray, unit: NDArray, size: int) -> NDArray:
    """Where to put the origin of what extends from ``low`` to ``high`` about it, so that it is on the canvas."""
    return -low + unit * (size - 1 - (high - low))


def _boxes_meet(low: NDArray, high: NDArray) -> NDArray:
    """Whether every box overlaps another, but none by half or more. Shapes: 2 x (..., K, 2) -> (...)"""
    upper = np.minimum(high[..., :, None, :], high[..., None, :, :])
    lower = np.maximum(low[..., :, None, :], low[..., None, :, :])
    crossing = np.maximum(upper - lower, 0).prod(axis=-1)  # (..., K, K)
    overlap = crossing / (high - low).prod(axis=-1)[..., None]
    overlap = overlap * ~np.eye(low.shape[-2], dtype=bool)
    return (overlap.max(axis=-1) > 0.02).all(axis=-1) & (overlap.max(axis=(-1, -2)) < 0.5)
