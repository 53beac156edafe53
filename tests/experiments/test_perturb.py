"""``perturb``: stroke properties of drawn shapes, and effects of made-up sweeps."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, max_pool2d

from capsnet import data
from capsnet.experiments import _perturb, perturb
from capsnet.experiments._perturb import PROPERTIES, measure
from capsnet.models import create_model

SIZE, FINE = 40, 8  # pixels, and how often each is divided for drawing


def drawn(inside: str, **numbers: float) -> dict[str, float]:
    """A shape given as a condition on x (right) and y (down) from the middle, drawn with soft edges, and measured."""
    axis = (torch.arange(SIZE * FINE, dtype=torch.float64) + 0.5) / FINE - SIZE / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    shape = eval(inside, {"x": x, "y": y, **numbers}).double()
    return named(shape.reshape(SIZE, FINE, SIZE, FINE).mean(dim=(1, 3)))


def named(picture: Tensor) -> dict[str, float]:
    return dict(zip(PROPERTIES, measure(picture).tolist(), strict=True))


@pytest.mark.parametrize("t", [2.0, 3.0, 4.5])
def test_thickness_matches_a_ring(t: float) -> None:
    ring = drawn("((x**2 + y**2).sqrt() - 10).abs() < t / 2", t=t)
    assert ring["thickness"] == pytest.approx(t, rel=0.06)
    assert ring["area"] == pytest.approx(2 * math.pi * 10 * t, rel=0.01)
    assert ring["slant"] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("angle", [0, 20, 45, 70])
def test_thickness_does_not_depend_on_direction(angle: float) -> None:
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    line = drawn("((c * x + s * y).abs() < 1.5) & ((c * y - s * x).abs() < 15)", c=c, s=s)
    assert line["thickness"] == pytest.approx(3 / (1 + 3 / 30), rel=0.05)


@pytest.mark.parametrize("angle", [-30, 0, 15, 40])
def test_slant_matches_a_sheared_bar(angle: float) -> None:
    lean = math.tan(math.radians(angle))
    bar = drawn("((x + lean * y).abs() < 2) & (y.abs() < 12)", lean=lean)  # y counts down: its top is at the right
    assert bar["slant"] == pytest.approx(angle, abs=0.5)


def test_extent_and_position_match_a_box() -> None:
    box = drawn("(x > -4) & (x < 9) & (y > -11.5) & (y < 7)")
    assert box["width"] == pytest.approx(13, abs=0.05)
    assert box["height"] == pytest.approx(18.5, abs=0.1)
    assert (box["x position"], box["y position"]) == (pytest.approx(2.5, abs=0.01), pytest.approx(-2.25, abs=0.01))
    assert box["area"] == pytest.approx(13 * 18.5)


def test_brightness_changes_area_alone() -> None:
    digit = real_digits()[0]
    full, half = measure(digit), measure(digit / 2)
    torch.testing.assert_close(half[[0, 2, 3, 4, 5, 6]], full[[0, 2, 3, 4, 5, 6]])
    assert half[1] == pytest.approx(full[1].item() / 2)


def test_measure_takes_any_leading_shape_and_no_ink() -> None:
    assert measure(torch.zeros(2, 3, 9, 7)).abs().max() == 0
    pictures = real_digits()[:6, 4:, 2:].unflatten(0, (2, 3))
    torch.testing.assert_close(measure(pictures)[1, 2], measure(pictures[1, 2]))
    with pytest.raises(ValueError, match=r"floats \(..., H, W\), got torch.uint8"):
        measure(torch.zeros(2, 2, dtype=torch.uint8))


def test_slant_follows_a_shear_of_digits() -> None:
    digits = real_digits()
    lean = math.tan(math.radians(12))
    sheared = warp(digits, [[1, lean, 0], [0, 1, 0]])
    before, after = measure(digits)[:, 2], measure(sheared)[:, 2]
    expected = torch.rad2deg(torch.atan(torch.tan(torch.deg2rad(before)) + lean))
    torch.testing.assert_close(after, expected, atol=0.8, rtol=0)


def test_position_and_width_follow_a_move_of_digits() -> None:
    digits = real_digits()
    before = measure(digits)
    moved = measure(warp(digits, [[1, 0, -2 * 3 / SIZE], [0, 1, 2 * 2 / SIZE]]))  # 3 pixels right, 2 up
    torch.testing.assert_close(moved[:, 5] - before[:, 5], torch.full((40,), 3.0).double(), atol=0.02, rtol=0)
    torch.testing.assert_close(moved[:, 6] - before[:, 6], torch.full((40,), -2.0).double(), atol=0.02, rtol=0)
    wide = measure(warp(digits, [[1 / 1.25, 0, 0], [0, 1, 0]]))
    torch.testing.assert_close(wide[:, 3] / before[:, 3], torch.full((40,), 1.25).double(), atol=0.08, rtol=0)
    torch.testing.assert_close(wide[:, 4] / before[:, 4], torch.ones(40).double(), atol=0.03, rtol=0)


def test_thickness_follows_a_dilation_of_digits() -> None:
    digits = real_digits()
    thicker = max_pool2d(digits[:, None], 3, stride=1, padding=1)[:, 0]
    gain = measure(thicker)[:, 0] - measure(digits)[:, 0]
    assert gain.min() > 1.5  # less where strokes meet
    assert 2 < gain.mean() < 2 * math.sqrt(2)  # a pixel on either side, or its diagonal


def real_digits() -> Tensor:
    """Forty handwritten digits in the middle of a larger page: (40, SIZE, SIZE)."""
    images = data.load("mnist", "validation").batch(np.arange(40)).images[:, 0]
    return torch.nn.functional.pad(images, (6, 6, 6, 6))


def warp(pictures: Tensor, matrix: list[list[float]]) -> Tensor:
    """Each picture seen through an affine map from where it goes to where it comes from, the middle staying."""
    theta = torch.tensor(matrix).expand(len(pictures), 2, 3)
    grid = affine_grid(theta, [len(pictures), 1, SIZE, SIZE], align_corners=False)
    return grid_sample(pictures[:, None], grid, align_corners=False)[:, 0]


OFFSETS = np.array(_perturb.OFFSETS)
PEOPLE = np.array([[-5.0, -1.0, -30.0], [0.0, 0.0, 0.0], [5.0, 1.0, 30.0]])  # standard deviations of 5, 1 and 30


def made_up() -> np.ndarray:
    """Four digits, two dimensions, three properties, with known effects: (4, 2, 11, 3)."""
    values = np.zeros((4, 2, 11, 3))
    values += np.array([10.0, 20.0, 40.0, 70.0])[:, None, None, None]  # digits differ far more than a sweep moves them
    values[:, 0, :, 0] += 6 * OFFSETS  # 3 over the sweep, for every digit
    values[:, 0, :, 1] += np.array([1, -1, 1, -1])[:, None] * OFFSETS  # every other digit the other way
    values[:, 1, :, 2] += -80 * OFFSETS * np.array([1, 1, 1, 3])[:, None]  # one way, but not equally far
    return values


def test_effects_compare_each_digit_with_itself() -> None:
    found = _perturb.effects(made_up(), PEOPLE)
    np.testing.assert_allclose(found.r[0], [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(found.effect[0], [3, 0, 0], atol=1e-9)
    assert found.r[1, 2] == pytest.approx(-6 / math.sqrt(4 * 12))  # sum of slopes over the roots of their squares
    assert found.effect[1, 2] == pytest.approx(-80 * 0.5 * 1.5)
    np.testing.assert_allclose(found.typical, 35)
    np.testing.assert_allclose(found.spread, [5, 1, 30])


def test_names_need_steady_large_and_outstanding_effects() -> None:
    found = _perturb.effects(made_up(), PEOPLE)
    assert not found.moves[0, 0]  # perfectly steady, but less than people's digits differ
    assert found.moves.tolist() == [[False] * 3, [False, False, True]]
    assert not found.named.any()  # of two dimensions one cannot have 1.5 times their root mean square
    many = found._replace(r=np.ones((16, 3)), effect=np.ones((16, 3)), spread=np.full(3, 0.5))
    assert many.moves.all()
    assert not many.named.any()  # all do the same
    plain, many = many, many._replace(effect=many.effect.copy())
    many.effect[5, 1] = -3
    assert np.argwhere(many.named).tolist() == [[5, 1]]
    assert many.names(5) == ["area"]
    assert many.best(1) == 5
    assert perturb.purest([plain, many], 1) == (1, 5)


def test_best_prefers_steady_dimensions() -> None:
    r = np.array([[0.9], [0.3], [-0.95]])
    found = _perturb.Effects(r, np.array([[1.0], [9.0], [-2.0]]), np.zeros(1), np.ones(1))
    assert found.best(0) == 2
    assert found._replace(r=r / 2).best(0) == 2  # none is steady: the steadiest


def test_sweep_measures_every_dimension() -> None:
    torch.manual_seed(0)
    options = {"conv_channels": 8, "primary_types": 2, "decoder_widths": [16, 16], "iterations": 1}
    model = create_model("capsnet", image_size=(28, 28), in_channels=1, num_classes=10, **options)
    digits = data.load("mnist", "validation").subset(range(80))
    chosen = _perturb.choose(model, digits, 3)
    assert [len(poses) for poses in chosen.poses] == [3] * 10
    answers = [int((poses.norm(dim=-1).argmax(1) == label).sum()) for label, poses in enumerate(chosen.poses)]
    assert sum(answers) == chosen.correct
    assert sum(map(len, chosen.people)) == 80
    assert max(answers) == 3  # an untrained network gives one answer: for one class it is right, and these come first
    values = _perturb.sweep(model, chosen.poses[4], 4)
    assert values.shape == (3, 16, 11, len(PROPERTIES))
    still = values[:, :, 5]
    np.testing.assert_allclose(still, np.broadcast_to(still[:, :1], still.shape), rtol=1e-5)
    names = perturb.name_dimensions(model, digits, 2)
    assert [len(row) for row in names] == [16] * 10
