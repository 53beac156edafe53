"""Profiles: ranges and means of poses against plain numpy, and the hard examples."""

from pathlib import Path

import numpy as np
import pytest
import torch

import capsnet
from capsnet.data import ArrayDataset
from capsnet.experiments import perturb
from capsnet.inference import profiles


@pytest.fixture(scope="module")
def few() -> ArrayDataset:
    digits = capsnet.data.load("mnist", "test")
    assert isinstance(digits, ArrayDataset)
    return digits.subset(np.arange(2500, 2700))  # with a hard one among them


def test_profile_agrees_with_numpy(few: ArrayDataset) -> None:
    model = capsnet.load("capsnet-small-mnist")
    profile = profiles.measure(model, few, keep=5, batch_size=64)
    assert profile is not None
    assert profile.ranges is not None
    assert profile.means is not None
    with torch.inference_mode():
        output = model(few.batch(np.arange(len(few))).images)
    assert output.poses is not None
    lengths, poses = output.lengths.numpy(), output.poses.numpy()
    for j in range(10):
        class_poses = poses[(few.targets == j) & (lengths.argmax(1) == j), j]
        assert np.array(profile.ranges[j]) == pytest.approx(np.percentile(class_poses, [2, 98], axis=0).T, abs=1e-4)
        assert np.array(profile.means[j]) == pytest.approx(class_poses.mean(axis=0), abs=1e-4)
    assert profile.names == [[None] * 16] * 10
    true = lengths[np.arange(200), few.targets]
    rest = lengths.copy()
    rest[np.arange(200), few.targets] = -1
    right = lengths.argmax(1) == few.targets
    order = np.argsort(true - rest.max(1))
    assert [item.index for item in profile.hard] == order[right[order]][:5].tolist()
    assert all(item.seen_as == item.label for item in profile.hard)
    order = np.argsort(-lengths.max(1))
    assert [item.index for item in profile.wrong] == order[~right[order]][:5].tolist()
    five = next(item for item in profile.wrong if item.index == 97)  # test digit 2597 looks like a three
    assert (five.label, five.seen_as) == (5, 3)
    assert five.length == pytest.approx(lengths[97, 3], abs=1e-4)


def test_profile_of_models_without_poses_and_of_pairs(few: ArrayDataset, tiny: capsnet.Model) -> None:
    profile = profiles.measure(capsnet.create_model("cnn-small"), few, limit=50)
    assert profile is not None
    assert (profile.ranges, profile.means, profile.names) == (None, None, None)
    assert len(profile.hard) + len(profile.wrong) == 50
    small = {"conv_channels": 4, "primary_types": 2, "decoder_widths": (8, 9)}
    pairs = profiles.measure(
        capsnet.create_model("capsnet", image_size=(36, 36), **small), capsnet.data.multimnist("test", pairs=40)
    )
    assert pairs is not None
    assert np.array(pairs.ranges).shape == (10, 16, 2)
    assert pairs.hard == pairs.wrong == []
    assert profiles.measure(capsnet.create_model("cnn-small"), few, stop=lambda: True) is None
    with pytest.raises(ValueError, match="the model takes"):
        profiles.measure(tiny, few)


def test_profile_refuses_nan(few: ArrayDataset) -> None:
    for name in ("capsnet-small", "cnn-small"):
        model = capsnet.create_model(name)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float("nan"))
        with pytest.raises(ValueError, match="are not finite"):
            profiles.measure(model, few, limit=10)


def test_bundled_profiles_fit_their_models() -> None:
    for name in capsnet.list_weights():
        profile = profiles.read(name)
        if profile is not None and profile.ranges is not None:
            assert np.array(profile.ranges).shape[0] == capsnet.load(name).num_classes
    assert profiles.read("capsnet-small-mnist") is not None
    assert profiles.read("../capsnet-small-mnist") is None


def test_profile_survives_the_round_trip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = profiles.Profile(ranges=[[(-0.5, 0.5)]], means=[[0.0]], names=[["tilt"]], hard=[], wrong=[])
    monkeypatch.setattr(profiles, "resolve", lambda name: tmp_path / f"{name}.safetensors")
    monkeypatch.setattr(profiles, "list_weights", lambda: ["mine", "other"])
    profiles.write("mine", profile)
    assert profiles.read("mine") == profile
    assert profiles.read("other") is None


def test_bundled_dimension_names_follow_the_rule() -> None:
    """On fewer digits than those of the bundled profiles most names are the same."""
    profile = profiles.read("capsnet-small-mnist")
    assert profile is not None
    assert profile.names is not None
    digits = capsnet.data.load("mnist", "validation").subset(range(4000))
    again = perturb.name_dimensions(capsnet.load("capsnet-small-mnist"), digits, 20)
    pairs = [(a, b) for row, other in zip(profile.names, again, strict=True) for a, b in zip(row, other, strict=True)]
    assert sum(a is not None for a, _ in pairs) > 40
    assert sum(a == b for a, b in pairs) > 0.75 * len(pairs)
