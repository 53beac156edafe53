"""``routing-toy``: the scenes are what they claim to be, and the pictures show a routing's own numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from capsnet import routing
from capsnet.experiments import _routing_draw, routing_toy
from capsnet.functional import squash


def test_agreeing_scene_is_a_bundle_among_scattered_votes() -> None:
    votes, groups = routing_toy.agreeing()[0].numpy(), np.array(routing_toy.GROUPS)
    assert votes.shape == (24, 3, 2)
    for j, (towards, _) in enumerate(routing_toy.BUNDLES):
        ours, rest = votes[groups == j, j], votes[groups != j, j]
        angle = np.rad2deg(np.arctan2(*ours.mean(axis=0)[::-1]))
        assert angle == pytest.approx(towards, abs=6)
        assert ours.std(axis=0).max() < 0.2 < rest.std(axis=0).min()


def test_scenes_behave_as_described() -> None:
    """With bundles two parents grow and one shrinks; without, none grows in five iterations."""
    found = routing_toy.measured(routing_toy.history(routing_toy.agreeing()))
    lengths, entropy = np.array(found["lengths"]), np.array(found["undecided"])
    assert (np.diff(lengths[:, :2], axis=0) > 0).all()
    assert lengths[-1, :2].min() > 0.95
    assert lengths[0, 2] > 0.5
    assert lengths[-1, 2] < 0.1
    assert entropy[0] == pytest.approx(1)
    assert (np.diff(entropy) < 0).all()
    assert min(routing_toy.own_share(found["couplings"][-1], j) for j in (0, 1)) > 70
    nothing = routing_toy.measured(routing_toy.history(routing_toy.disagreeing()))
    assert np.max(nothing["lengths"]) < 0.2
    assert nothing["undecided"][-1] > 0.99


def test_scattered_votes_cover_all_directions() -> None:
    votes = routing_toy.scattered(200)
    assert votes.shape == (200, 24, 3, 2)
    lengths = votes.norm(dim=-1)
    assert 0.8 <= lengths.min() < lengths.max() <= 1.0
    assert votes.mean(dim=(0, 1)).abs().max() < 0.05  # 4,800 votes of length 0.9: one standard error is 0.01
    flat = votes.reshape(-1, 2)
    assert len(torch.unique(flat, dim=0)) == len(flat)


def test_lengths_match_one_iteration_by_hand() -> None:
    votes = routing_toy.agreeing()
    by_hand = squash((votes / 3).sum(dim=1)).norm(dim=-1)[0]  # (J,): at first each child gives every parent a third
    got = routing_toy.measured(routing_toy.history(votes, 1))["lengths"]
    np.testing.assert_allclose(got, [by_hand.tolist()])


def test_frames_pass_through_every_iteration() -> None:
    history = routing_toy.history(routing_toy.agreeing(), 3)
    frames = list(_routing_draw.frames(history, tween=3))
    for r, moment in enumerate(history):
        last = [frame.moment for frame in frames if frame.iteration == r][-1]
        np.testing.assert_array_equal(last.couplings, moment.couplings)
        np.testing.assert_array_equal(last.poses, moment.poses)
    for frame in frames:  # couplings between two iterations still sum to 1
        np.testing.assert_allclose(frame.moment.couplings.sum(axis=1), 1)


@pytest.mark.parametrize("name", routing.list_forms())
def test_last_moment_has_couplings_of_one_total(name: str) -> None:
    moment = routing_toy.last_moment(name, routing_toy.agreeing())
    assert moment.label == name
    assert 0 <= moment.undecided <= 1
    if routing.get(name).normalised != "none":
        assert moment.couplings.sum() == pytest.approx(24, rel=1e-4)


def test_drawings_show_any_routing(tmp_path: Path) -> None:
    votes = torch.stack([routing_toy.agreeing()[0, :6, :2], routing_toy.agreeing()[0, 6:12, :2]])  # (2, 6, 2, 2)
    leaky = routing.get("dynamic", iterations=2, leaky=True)
    trace = leaky(votes, trace=True).trace
    assert trace is not None
    history = _routing_draw.moments(trace, leaky, example=1)
    scene = _routing_draw.Scene(votes[1].numpy(), "AB", [0, 0, 1, 1, 2, 2])
    with Image.open(_routing_draw.draw_strip(tmp_path / "s.png", scene, history[1:], "title", "note")) as picture:
        assert picture.width < picture.height  # one column of two parents
    movie = _routing_draw.draw_animation(
        tmp_path / "m.gif", scene, history, "title", "note", routing_toy.STEPS, tween=1
    )
    with Image.open(movie) as picture:
        assert getattr(picture, "n_frames", 1) > 4
        assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)


def test_moments_refuse_other_than_planar_poses() -> None:
    dynamic = routing.get("dynamic")
    trace = dynamic(torch.zeros(1, 4, 2, 3), trace=True).trace
    assert trace is not None
    with pytest.raises(ValueError, match=r"\(B, I, J, 2\), got \(1, 4, 2, 3\)"):
        _routing_draw.moments(trace, dynamic)
    trace = dynamic(torch.zeros(1, 4, 2, 2), trace=True).trace
    assert trace is not None
    with pytest.raises(ValueError, match="example must lie in 0"):
        _routing_draw.moments(trace, dynamic, example=1)
