"""Drawing shapes: area, centre, direction and extent of the ink are those of the pose."""

import numpy as np
import pytest
from numpy.typing import NDArray

from capsnet.data.generated._shapes_draw import ELLIPSE, HALF, PRIMITIVES, RECTANGLE, TRIANGLE, draw, extents


def moments(image: NDArray) -> tuple[float, NDArray, NDArray]:
    """Area, centre of gravity (x, y) and second central moments of a picture."""
    rows, columns = np.indices(image.shape)
    points = np.stack([columns.ravel(), rows.ravel()])  # (2, H * W)
    weight = image.ravel().astype(np.float64)
    centre = (points * weight).sum(axis=1) / weight.sum()
    off = points - centre[:, None]
    return weight.sum(), centre, (weight * off) @ off.T / weight.sum()


@pytest.mark.parametrize("kind", range(len(PRIMITIVES)))
@pytest.mark.parametrize("angle", [0.0, 0.4, -1.1, 2.5])
def test_drawn_moments_are_those_of_the_pose(kind: int, angle: float) -> None:
    width, aspect = 24.0, 0.55
    height = aspect * width
    image = draw(np.array([kind]), np.array([[26.3, 30.8, angle, width, aspect]]), np.array([True]), 60, 2.0)[0]
    area, centre, second = moments(image)
    # of the upright shape, per unit of width * height, width^2 and height^2
    filled_fraction = {RECTANGLE: 1.0, TRIANGLE: 0.5, ELLIPSE: np.pi / 4, HALF: np.pi / 4}[kind]
    across = {RECTANGLE: 1 / 12, TRIANGLE: 1 / 24, ELLIPSE: 1 / 16, HALF: 1 / 16}[kind]
    down = {RECTANGLE: 1 / 12, TRIANGLE: 1 / 18, ELLIPSE: 1 / 16, HALF: 1 / 4 - (4 / (3 * np.pi)) ** 2}[kind]
    assert area == pytest.approx(filled_fraction * width * height, rel=0.02)
    np.testing.assert_allclose(centre, [26.3, 30.8], atol=0.1)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    expected = turn @ np.diag([across * width**2, down * height**2]) @ turn.T
    np.testing.assert_allclose(second, expected, atol=0.03 * np.trace(expected))


def test_apex_is_up_and_angle_is_clockwise() -> None:
    """Second moments do not tell up from down; the apex is twice as far from the centre as the base."""
    poses = np.array([[30, 30, 0, 20, 1.2], [30, 30, np.pi / 2, 20, 1.2]])
    up, right = draw(np.array([TRIANGLE, TRIANGLE]), poses, np.array([True, True]), 60, 2.0) > 0.5
    assert (up[16].sum(), up[36].sum()) == (1, 19)
    np.testing.assert_array_equal(np.rot90(up, -1)[:, :-1], right[:, 1:])  # a quarter turn about (29.5, 29.5)
    assert np.flatnonzero(right[30])[[0, -1]].tolist() == [23, 45]


def test_outline_is_inside_and_as_wide_as_the_stroke() -> None:
    pose = np.array([[30.0, 30.0, 0.0, 41.0, 21 / 41]])
    solid, outline = (draw(np.array([RECTANGLE]), pose, np.array([flag]), 60, 2.0)[0] for flag in (True, False))
    assert (solid >= outline).all()
    assert (np.flatnonzero(outline[30]) == [10, 11, 49, 50]).all()
    assert outline.sum() == 41 * 21 - 37 * 17
    assert draw(np.array([-1]), pose, np.array([True]), 60, 2.0).sum() == 0


def test_extents_hold_the_ink() -> None:
    rng = np.random.default_rng(0)
    kinds = np.arange(4).repeat(20)
    poses = np.stack(
        [np.full(80, 30.0), np.full(80, 30.0), *rng.uniform([[-4], [8], [0.3]], [[4], [20], [1.5]], (3, 80))], 1
    )
    low, high = extents(kinds, poses)
    for image, first, last in zip(draw(kinds, poses, np.ones(80, bool), 60, 1.0), low, high, strict=True):
        rows, columns = np.nonzero(image > 0.5)
        assert (first <= [columns.min(), rows.min()]).all()
        assert (last >= [columns.max(), rows.max()]).all()
