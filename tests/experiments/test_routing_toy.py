"""The toy of routing: the scenes are what they claim to be, and the pictures show a routing's own numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from capsnet import routing
from capsnet.experiments import _routing_draw, _routing_movie, routing_toy
from capsnet.functional import squash


def test_entropy() -> None:
    couplings = np.array([[[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]])
    np.testing.assert_allclose(_routing_draw.entropy(couplings), [1.0, 0.5, 0.0])
    leaky = np.array([[0.25, 0.25]])  # the missing half is an orphan's: 1/4, 1/4, 1/2
    assert _routing_draw.entropy(leaky) == pytest.approx(1.5)


def test_agreeing_scene_is_a_bundle_among_scattered_votes() -> None:
    votes, groups = routing_toy.agreeing()[0].numpy(), np.array(routing_toy.GROUPS)
    assert votes.shape == (24, 3, 2)
    for j, (towards, _) in enumerate(routing_toy.BUNDLES):
        ours, rest = votes[groups == j, j], votes[groups != j, j]
        angle = np.rad2deg(np.arctan2(*ours.mean(axis=0)[::-1]))
        assert angle == pytest.approx(towards, abs=6)
        assert ours.std(axis=0).max() < 0.2 < rest.std(axis=0).min()


def test_scenes_do_what_the_page_says() -> None:
    """With bundles two parents grow and one shrinks; without, none gets anywhere in five iterations."""
    found = routing_toy.measured(routing_toy.route(routing_toy.agreeing()))
    lengths, bits = np.array(found["lengths"]), np.array(found["entropy_bits"])
    assert (np.diff(lengths[:, :2], axis=0) > 0).all()
    assert lengths[-1, :2].min() > 0.95
    assert lengths[0, 2] > 0.5
    assert lengths[-1, 2] < 0.1
    assert bits[0] == pytest.approx(np.log2(3))
    assert (np.diff(bits) < 0).all()
    assert min(routing_toy.kept(found["couplings"][-1], j) for j in (0, 1)) > 70
    nothing = routing_toy.measured(routing_toy.route(routing_toy.disagreeing()))
    assert np.max(nothing["lengths"]) < 0.2
    assert nothing["entropy_bits"][-1] > 1.57


def test_scattered_votes_go_everywhere() -> None:
    votes = routing_toy.scattered(200)
    assert votes.shape == (200, 24, 3, 2)
    lengths = votes.norm(dim=-1)
    assert 0.8 <= lengths.min() < lengths.max() <= 1.0
    assert votes.mean(dim=(0, 1)).abs().max() < 0.05  # 4,800 votes of length 0.9: one standard error is 0.01
    flat = votes.reshape(-1, 2)
    assert len(torch.unique(flat, dim=0)) == len(flat)


def test_measured_lengths_are_those_of_the_procedure() -> None:
    votes = routing_toy.agreeing()
    by_hand = squash((votes / 3).sum(dim=1)).norm(dim=-1)[0]  # (J,): at first each child gives every parent a third
    got = routing_toy.measured(routing_toy.route(votes, 1))["lengths"]
    np.testing.assert_allclose(got, [by_hand.tolist()])


def test_moments_pass_through_every_iteration() -> None:
    votes = routing_toy.agreeing()
    trace = routing_toy.route(votes, 3)
    tale = _routing_draw.story(votes, trace)
    frames = list(_routing_movie.moments(tale, tween=3))
    for r in range(3):
        held = [f for f in frames if f.iteration == r][-1]
        np.testing.assert_array_equal(held.couplings, trace.couplings[r, 0])
        np.testing.assert_array_equal(held.poses, trace.poses[r, 0])
    for frame in frames:  # gliding couplings still divide each child completely
        np.testing.assert_allclose(frame.couplings.sum(axis=1), 1)


def test_draws_any_routing(tmp_path: Path) -> None:
    votes = torch.stack([routing_toy.agreeing()[0, :6, :2], routing_toy.agreeing()[0, 6:12, :2]])  # (2, 6, 2, 2)
    trace = routing.get("dynamic", iterations=2, leaky=True)(votes, trace=True).trace
    assert trace is not None
    strip = _routing_draw.draw_strip(tmp_path / "s.png", votes, trace, "title", "note", example=1, iterations=[2])
    with Image.open(strip) as picture:
        assert picture.width < picture.height  # one column of two parents
    movie = _routing_movie.draw_animation(tmp_path / "m.gif", votes, trace, "title", "note", tween=1)
    with Image.open(movie) as picture:
        assert getattr(picture, "n_frames", 1) > 4
        assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)


def test_refuses_what_it_cannot_draw() -> None:
    votes = torch.zeros(1, 4, 2, 3)
    trace = routing.get("dynamic")(votes, trace=True).trace
    assert trace is not None
    with pytest.raises(ValueError, match=r"\(B, I, J, 2\), got \(1, 4, 2, 3\)"):
        _routing_draw.story(votes, trace)
    with pytest.raises(ValueError, match=r"couplings must be \(R, B, I, J\)"):
        _routing_draw.story(torch.zeros(1, 5, 2, 2), trace)
    with pytest.raises(ValueError, match="example must lie in 0"):
        _routing_draw.story(torch.zeros(1, 4, 2, 2), trace, example=1)
