"""``evaluate`` and the basics of ``predict``."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import capsnet
from capsnet.inference import OFFSETS, check_fit, evaluating, pick_device, preprocessing_of, sweep_dimensions
from capsnet.training import distributed


def test_evaluate_agrees_with_a_count_by_hand(tiny: capsnet.Model) -> None:
    images = np.random.default_rng(0).integers(0, 255, (11, 1, 20, 22), dtype=np.uint8)
    targets = np.arange(11) % 3
    dataset = capsnet.data.ArrayDataset(images, targets, ("a", "b", "c"))
    with torch.no_grad():
        tiny.get_parameter("classes.weight").mul_(50)  # poses long enough for the choice of capsule to show in pixels
    tiny.train()
    result = capsnet.evaluate(tiny, dataset, batch_size=4)
    assert tiny.training  # the mode is restored
    with torch.no_grad():
        output = tiny.eval()(torch.from_numpy(images).float() / 255)
    expected = (output.lengths.argmax(1).numpy() == targets).mean()
    assert result.accuracy.value == pytest.approx(expected)
    assert result.accuracy.n == 11
    np.testing.assert_allclose(result.lengths, output.lengths.numpy(), atol=1e-6)
    assert output.reconstruction is not None
    squared = (output.reconstruction - torch.from_numpy(images) / 255).square().flatten(1).sum(1).mean()
    assert result.metrics["reconstruction_error"] == pytest.approx(float(squared), rel=1e-5)


def test_evaluate_counts_exact_matches_of_several_labels(tiny: capsnet.Model) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 1, 20, 22), dtype=np.uint8)
    dataset = capsnet.data.ArrayDataset(images, np.tile([[1, 1, 0], [0, 1, 1]], (3, 1)), ("a", "b", "c"))
    result = capsnet.evaluate(tiny, dataset)
    pairs = [set(row) for row in np.argsort(-result.lengths, axis=1)[:, :2].tolist()]
    expected = np.mean([pair == labels for pair, labels in zip(pairs, [{0, 1}, {1, 2}] * 3, strict=True)])
    assert result.accuracy.value == pytest.approx(expected)


def test_check_fit_refuses_other_sizes(tiny: capsnet.Model) -> None:
    other = capsnet.data.ArrayDataset(
        np.zeros((2, 1, 28, 28), np.uint8), np.array([0, 1]), ("a", "b", "c"), name="them"
    )
    with pytest.raises(ValueError, match="takes 1x20x22 images and 3 classes, them has 1x28x28 images and 3 classes"):
        check_fit(tiny, other)


def test_predict_takes_files_pictures_and_arrays(tiny: capsnet.Model, tmp_path: Path) -> None:
    tiny.class_names = ("ant", "bee", "cat")
    array = np.random.default_rng(0).integers(0, 255, (40, 44), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "x.png")
    answers = capsnet.predict([tmp_path / "x.png", str(tmp_path / "x.png"), Image.fromarray(array), array], tiny)
    assert len(answers) == 4
    assert len({answer.label for answer in answers}) == 1
    first = answers[0]
    assert first.label in tiny.class_names
    assert first.length == max(first.lengths.values())
    assert list(first.lengths) == ["ant", "bee", "cat"]
    assert first.image.shape == (1, 20, 22)
    assert first.reconstruction is not None
    assert first.reconstruction.shape == (1, 20, 22)
    assert len(capsnet.predict(tmp_path / "x.png", tiny)) == 1


def test_predict_does_not_depend_on_the_batch(tiny: capsnet.Model) -> None:
    arrays = list(np.random.default_rng(0).integers(0, 255, (5, 20, 22), dtype=np.uint8))
    for one, many in zip(capsnet.predict(arrays, tiny, batch_size=1), capsnet.predict(arrays, tiny), strict=True):
        assert one.lengths == pytest.approx(many.lengths, abs=1e-5)


def test_preprocessing_refuses_channels_that_no_picture_has(tiny: capsnet.Model) -> None:
    tiny.in_channels = 5
    with pytest.raises(ValueError, match="no picture file can become an input of this model, 5 x 20 x 22"):
        preprocessing_of(tiny)


def test_sweep_moves_one_dimension_at_a_time(tiny: capsnet.Model) -> None:
    poses = torch.randn(3, 16)
    pictures = sweep_dimensions(tiny, poses, 1)
    assert pictures.shape == (16, 11, 1, 20, 22)
    middle = tiny.decode(poses[None], torch.tensor([1]))[0]
    for d in range(16):
        torch.testing.assert_close(pictures[d, 5], middle)  # OFFSETS[5] is 0
    moved = poses.clone()
    moved[1, 7] += OFFSETS[10]
    torch.testing.assert_close(pictures[7, 10], tiny.decode(moved[None], torch.tensor([1]))[0])
    assert OFFSETS == (-0.25, -0.2, -0.15, -0.1, -0.05, 0.0, 0.05, 0.1, 0.15, 0.2, 0.25)


def test_evaluating_restores_the_mode_even_after_an_error(tiny: capsnet.Model) -> None:
    tiny.train()
    with pytest.raises(ValueError, match="expected images"), evaluating(tiny):
        tiny(torch.rand(1, 1, 5, 5))
    assert tiny.training


def test_pick_device_names_available_ones() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="not available here"):
        pick_device("tpu")


def test_a_run_tests_with_the_interval_of_evaluate(tiny: capsnet.Model) -> None:
    """Versions of a picture are no pictures of their own: also in the results of a training."""

    class Versions(capsnet.data.ArrayDataset):
        def originals(self) -> NDArray[np.int64]:
            return np.arange(len(self)) % 6

    pictures = np.random.default_rng(0).integers(0, 256, (6, 20, 22), dtype=np.uint8)
    dataset = Versions(np.tile(pictures, (8, 1, 1))[:, None], np.arange(48) % 3, ("0", "1", "2"))
    expected, found = capsnet.evaluate(tiny, dataset).metrics["accuracy"], distributed.evaluate(tiny, dataset)
    assert found.metrics["accuracy"] == expected
    assert expected["low"] < capsnet.metrics.wilson_interval(48 * expected["value"], 48)[0]


def test_versions_of_a_picture_widen_the_interval(tiny: capsnet.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pictures, eight times each: all versions get the same answer, so they say no more than six."""
    pictures = np.random.default_rng(0).random((6, 1, 20, 22), dtype=np.float32)
    labels = np.array([0, 0, 1, 1, 2, 2])
    versions = capsnet.data.ArrayDataset(np.tile(pictures, (8, 1, 1, 1)), np.tile(labels, 8), "abc")
    monkeypatch.setattr(versions, "originals", lambda: np.arange(48) % 6)
    wide, few = (capsnet.evaluate(tiny, part).accuracy for part in (versions, versions.subset(range(6))))
    assert (wide.n, few.n) == (48, 6)
    assert wide[:3] == pytest.approx(few[:3])
