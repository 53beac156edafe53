"""``equivariance``: movements, changes, read-outs and coupling shares, on cases where the answer is known."""

import numpy as np
import pytest
import torch

from capsnet.data import Shapes
from capsnet.experiments import equivariance
from capsnet.experiments._equivariance import (
    MOVEMENTS,
    STRENGTHS,
    changes,
    largest,
    move,
    read_out,
    ridge,
    route_crowd,
    squares,
    vectors,
)
from capsnet.models import CapsNet, create_model

AMOUNTS = (-2.0, -1.0, 0.0, 1.0, 2.0)


def test_movement_by_zero_keeps_the_picture() -> None:
    images = torch.rand(2, 1, 28, 28)
    for name, how in MOVEMENTS.items():
        assert how.amounts[len(how.amounts) // 2] == 0
        np.testing.assert_allclose(np.add(how.amounts, how.amounts[::-1]), 0, atol=1e-12)
        assert move(images, name, 0) is images
        assert not torch.equal(move(images, name, how.amounts[-1]), images)


def test_move_goes_in_the_stated_direction() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 6] = 1  # right of the middle
    assert move(image, "shift right", 1)[0, 0, 4, 7] == pytest.approx(1, abs=1e-5)
    assert move(image, "shift down", -2)[0, 0, 2, 6] == pytest.approx(1, abs=1e-5)
    assert move(image, "rotate", 90)[0, 0, 6, 4] == pytest.approx(1, abs=1e-4)  # clockwise: right goes down
    square = torch.zeros(1, 1, 40, 40)
    square[..., 10:30, 10:30] = 1
    for amount in (-20, 20):
        area = 400 * (1 + amount / 100) ** 2
        assert float(move(square, "scale", amount).sum()) == pytest.approx(area, rel=0.02)


def test_changes_match_a_known_path() -> None:
    path = np.array([[[2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [-2.0, 0.0], [2.0, 2e-7]]])  # (1, 5, 2)
    length, angle = changes(path, 0)
    np.testing.assert_allclose(length, [[0, 0.5, 1 - 2**-0.5, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(angle, [[0, 90, 45, 180, np.rad2deg(1e-7)]], rtol=1e-6, atol=1e-12)


def digits(seed: int, count: int, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Paths on which the amount is a linear function of the first dimensions; each digit starts somewhere else."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    start = generator.normal(size=(count, 1, 4)) * [0, 0, 1, 1]
    goal = np.array(AMOUNTS)[None, :, None]
    return start + goal * slope[labels][:, None], labels


def read(parts: list[tuple[np.ndarray, np.ndarray]], components: int | None = None) -> dict[str, float]:
    return read_out(parts, AMOUNTS, components)


def test_read_out_recovers_linear_paths_and_no_noise() -> None:
    slope = np.array([[1.0, 0, 0.5, 0], [0, -2.0, 0, 0.5]])  # another direction in each class
    trio = [digits(seed, 40, slope) for seed in range(3)]
    assert read(trio)["r2"] == pytest.approx(1, abs=1e-4)
    nothing = read([digits(seed, 40, 0 * slope) for seed in range(3)])
    assert nothing["r2"] == pytest.approx(0, abs=0.05)
    assert nothing["low"] <= nothing["r2"] <= nothing["high"]


def test_read_out_is_scored_on_unseen_digits() -> None:
    """Vectors as long as there are training rows can be fitted exactly; that must not count."""
    generator = np.random.default_rng(0)
    trio = [(generator.normal(size=(6, 5, 40)), np.zeros(6, dtype=int)) for _ in range(3)]
    assert read(trio)["r2"] < 0.3


def test_read_out_keeps_the_largest_components() -> None:
    paths = digits(0, 40, np.array([[1.0, 0, 0, 0]] * 2))[0] * [0.01, 1, 1, 1]  # what counts hardly varies
    trio = [(paths, np.zeros(40, dtype=int))] * 3
    assert read(trio, 2)["r2"] < 0.1
    assert read(trio, 4)["r2"] > 0.9


def test_ridge_matches_the_closed_form() -> None:
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(30, 3)), generator.normal(size=30)
    weights = ridge(x, y)
    unit = np.trace(x.T @ x) / 3
    for strength, row in zip(STRENGTHS, weights, strict=True):
        np.testing.assert_allclose(row, np.linalg.solve(x.T @ x + strength * unit * np.eye(3), x.T @ y), atol=1e-10)


def test_vectors_are_true_pose_or_last_hidden_layer() -> None:
    images, labels = torch.rand(3, 1, 28, 28), torch.tensor([4, 0, 9])
    caps = create_model("capsnet", conv_channels=4, primary_types=2, decoder=False).eval()
    poses = caps(images).poses
    torch.testing.assert_close(vectors(caps, images, labels), poses[torch.arange(3), labels].detach())
    cnn = create_model("cnn-small", channels=[4], kernel_sizes=[5], widths=[7]).eval()
    last = [module for module in cnn.modules() if isinstance(module, torch.nn.Linear)][-1]
    hidden = vectors(cnn, images, labels)
    assert hidden.shape == (3, 7)
    torch.testing.assert_close(last(hidden), cnn(images).logits)


def test_presence_is_a_number_apart_with_unit_squash() -> None:
    options = {"image_size": (40, 40), "num_classes": 3, "conv_channels": 4, "primary_types": 2, "decoder": False}
    model = create_model("capsnet", squash="unit", **options)
    assert isinstance(model, CapsNet)
    presence = route_crowd(model, Shapes("test", kind="crowded", objects=2), np.arange(2)).presence
    assert presence.shape == (2, 288)
    assert (presence < 1).all()
    assert presence.std() > 0.001


def test_route_gives_couplings_of_every_child() -> None:
    model = create_model("capsnet", image_size=(40, 40), num_classes=3, conv_channels=4, primary_types=2, decoder=False)
    assert isinstance(model, CapsNet)
    shapes = Shapes("test", kind="crowded", objects=2)
    crowd = route_crowd(model, shapes, np.arange(3))
    assert crowd.couplings.shape == (3, 3, 288, 3)
    np.testing.assert_allclose(crowd.couplings[0], 1 / 3, rtol=1e-5)  # before any agreement: an even split
    np.testing.assert_allclose(crowd.couplings.sum(axis=-1), 1, rtol=1e-5)
    assert set(np.unique(crowd.owner)) == {-1, 0, 1}
    batch, stride = shapes.batch(np.arange(3)), crowd.stride
    assert batch.sources is not None
    np.testing.assert_array_equal(crowd.classes, batch.sources.classes)
    ink = batch.sources.images[:, :, 0].numpy() >= 0.5
    for b, i in np.argwhere(crowd.owner >= 0)[::50]:  # ink of that object alone in the square around the middle
        y, x = (slice(max(0, c - stride // 2), c - stride // 2 + stride) for c in crowd.centres[:, i])
        assert [ink[b, k, y, x].any() for k in range(2)] == [k == crowd.owner[b, i] for k in range(2)]


def test_squares_are_as_wide_as_the_stride() -> None:
    values = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(squares(values, 1, np.array([1, 3, 5]), 2, 8), [[1, 1, 2, 2, 3, 3, 0, 0]])
    wide = squares(values, 1, np.array([0, 4, 8]), 4, 10)  # the first and the last are cut at the edges
    np.testing.assert_array_equal(wide, [[1, 1, 2, 2, 2, 2, 3, 3, 3, 3]])
    assert squares(values.T, 0, np.array([0, 4, 8]), 4, 10).shape == (10, 1)


def test_largest_change_has_an_interval_over_the_digits() -> None:
    steps = {name: len(how.amounts) for name, how in MOVEMENTS.items()}
    path = {name: np.ones((2, count, 1)) for name, count in steps.items()}
    for one in path.values():
        one[1, [0, -1]] = 2  # the second digit's length doubles at both ends
    found = largest(path)
    assert found["length"]["mean"] == pytest.approx(0.5)
    assert found["length"]["interval"] == pytest.approx(0.98)  # 1.96 times 0.5, the standard error of 0 and 1
    assert found["angle"] == {"mean": 0, "interval": 0}
    raw = {"CapsNet": {"measured": [{"largest": found, "digits": 2}]}}
    shown = equivariance.moved(raw, "CapsNet", "length")
    assert (shown.mean, shown.n) == (pytest.approx(50), 2)
    assert shown.interval == pytest.approx((-48, 148))


def test_receptive_field_is_the_networks_own() -> None:
    options = {"image_size": (40, 40), "num_classes": 3, "decoder": False}
    small = create_model("capsnet", conv_channels=4, primary_types=2, **options)
    grid = create_model("residual-capsnet", primary="grid", channels=[4, 4, 8], **options)
    assert "of its 17x17 receptive field" in equivariance.lying(small)
    assert "of its 57x57 receptive field" in equivariance.lying(grid)
    assert route_crowd(grid, Shapes("test", kind="crowded", objects=2), np.arange(2)).stride == 8
