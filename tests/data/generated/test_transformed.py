"""Expanded MNIST and affNIST: translated only, or under affine maps, always on the canvas."""

from pathlib import Path

import numpy as np
import pytest
import torch

from capsnet.data import Augment, Preprocess, affnist, batches, expanded_mnist, load, mnist
from capsnet.data.generated import transformed
from capsnet.data.generated.transformed import AFFINE, CANVAS, INK, Transformed
from capsnet.data.warping import draw_maps, warp_images


def tight(image: torch.Tensor) -> torch.Tensor:
    """A picture without its empty border."""
    rows, columns = (image > 0).any(dim=1).nonzero(), (image > 0).any(dim=0).nonzero()
    return image[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]


def test_preprocess_keeps_the_digit_size_and_targets_are_stored() -> None:
    """MNIST's digits fill 20 pixels, so a picture of one must not be scaled to 20/28 of 40."""
    shifted = expanded_mnist("test")
    prepare = shifted.preprocess
    assert isinstance(prepare, Preprocess)
    first = mnist("test").images[0, 0]
    assert torch.equal(prepare(first)[:, 6:34, 6:34], Preprocess()(first))
    turned = affnist("test", source="generated", versions=2)
    some = [0, 9_999, 10_000, 19_999]
    assert turned.targets[some].tolist() == turned.batch(some).targets.tolist()  # type: ignore[attr-defined]


def test_expanded_digits_are_the_digits_themselves_shifted() -> None:
    digits, shifted = mnist("test"), expanded_mnist("test")
    assert shifted.image_size == (40, 40)
    assert len(shifted) == 10_000
    assert shifted.origin == "generated"
    assert shifted.preprocess == Preprocess(style="digit", height=40, width=40, border=6)
    index = np.arange(50)
    original, moved = digits.batch(index), shifted.batch(index)
    assert torch.equal(original.targets, moved.targets)
    for before, after in zip(original.images[:, 0], moved.images[:, 0], strict=True):
        assert torch.equal(tight(before), tight(after))  # no pixel was interpolated


def corners(images: torch.Tensor) -> np.ndarray:
    ink = images[:, 0].numpy() > 0
    return np.stack([ink.any(axis=2).argmax(axis=1), ink.any(axis=1).argmax(axis=1)], axis=1)


def test_shifts_are_whole_even_and_within_the_bound() -> None:
    digits, shifted = mnist("test"), expanded_mnist("test", shift=6)
    index = np.arange(3000)
    moved = corners(shifted.batch(index).images) - corners(digits.batch(index).images) - 6
    assert moved.min() == -6
    assert moved.max() == 6
    counts = np.stack([np.bincount(moved[:, axis] + 6, minlength=13) for axis in (0, 1)])
    assert np.abs(counts - 3000 / 13).max() < 5 * np.sqrt(3000 / 13)
    assert abs(np.corrcoef(moved.T)[0, 1]) < 0.08


def test_training_moves_digits_in_each_epoch_and_testing_does_not() -> None:
    training, test = expanded_mnist("train"), expanded_mnist("test")
    assert not torch.equal(training.batch([0, 1], epoch=0).images, training.batch([0, 1], epoch=1).images)
    assert torch.equal(training.batch([0, 1], epoch=3).images, training.batch([0, 1], epoch=3).images)
    assert torch.equal(test.batch([0, 1], epoch=0).images, test.batch([0, 1], epoch=1).images)
    assert not torch.equal(test.batch([5]).images, expanded_mnist("test", seed=1).batch([5]).images)


@pytest.mark.parametrize("make", [expanded_mnist, affnist])
def test_example_depends_only_on_its_index(make) -> None:
    dataset = make("validation")
    together = dataset.batch([7, 3, 9]).images
    for place, index in enumerate([7, 3, 9]):
        assert torch.equal(dataset.batch([index]).images[0], together[place])
    assert torch.equal(dataset.batch([7, 3]).indices, torch.tensor([7, 3]))


def test_splits_use_their_own_digits() -> None:
    for split in ("train", "validation", "test", "train+validation"):
        assert np.array_equal(expanded_mnist(split).digits.targets, mnist(split).targets)
    generated = affnist("test", source="generated")
    assert isinstance(generated, Transformed)
    assert np.array_equal(generated.digits.targets, mnist("test").targets)


def test_affnist_keeps_digits_on_the_canvas() -> None:
    dataset = affnist("test", source="generated", versions=2)
    assert isinstance(dataset, Transformed)
    assert len(dataset) == 20_000
    assert dataset.origin == "generated"
    assert "generated" in dataset.name
    index = np.arange(400)
    bent = dataset.batch(index).images
    maps = draw_maps(AFFINE, 0, 0, index)
    padded = torch.nn.functional.pad(mnist("test").batch(index).images, (6, 6, 6, 6))
    centred = warp_images(padded, maps, torch.zeros(400, 2, dtype=torch.int64))
    for before, after in zip(centred[:, 0], bent[:, 0], strict=True):
        assert (after > INK).sum() == (before > INK).sum()  # moved as a whole: no ink fell off the canvas
        assert torch.allclose(tight(before * (before > INK)), tight(after * (after > INK)))


def test_affnist_maps_stay_within_the_published_bounds() -> None:
    """Rotation within 20 degrees, each axis scaled by 0.8 to 1.2, shear within 0.2: recovered from the maps alone."""
    maps = draw_maps(AFFINE, 0, 0, np.arange(20_000)).double().numpy()
    angle = np.degrees(np.arctan2(maps[:, 1, 0], maps[:, 0, 0]))  # the first column is the turned, scaled x axis
    wide = np.hypot(maps[:, 0, 0], maps[:, 1, 0])
    tall = np.linalg.det(maps) / wide
    turn = np.stack([maps[:, 0, 0] / wide, maps[:, 1, 0] / wide], axis=1)
    slant = (maps[:, :, 1] * turn).sum(axis=1) / wide
    for values, low, high in ((angle, -20, 20), (wide, 0.8, 1.2), (tall, 0.8, 1.2), (slant, -0.2, 0.2)):
        room = 0.001 * (high - low)
        assert low - room < values.min() < low + 10 * room
        assert high - 10 * room < values.max() < high + room
        assert abs(values.mean() - (low + high) / 2) < 0.02 * (high - low)


def test_affnist_places_digits_anywhere_they_fit() -> None:
    dataset = affnist("test", source="generated")
    ink = dataset.batch(np.arange(3000)).images[:, 0].numpy() > INK
    rows, columns = np.asarray(ink.any(axis=2)), np.asarray(ink.any(axis=1))
    assert rows[:, 0].any()
    assert rows[:, -1].any()
    assert columns[:, 0].any()
    assert columns[:, -1].any()
    first, last = rows.argmax(axis=1), CANVAS - 1 - rows[:, ::-1].argmax(axis=1)
    position = first / np.maximum(first + CANVAS - 1 - last, 1)  # 0: at the top edge, 1: at the bottom
    assert 0.46 < position.mean() < 0.54


def test_versions_of_a_digit_differ_but_not_its_label() -> None:
    dataset = affnist("test", source="generated", versions=3)
    batch = dataset.batch([4, 10_004, 20_004])
    assert len(set(batch.targets.tolist())) == 1
    assert not torch.equal(batch.images[0], batch.images[1])
    assert not torch.equal(batch.images[1], batch.images[2])


def test_augmentation_is_applied_too() -> None:
    dataset = expanded_mnist("train")
    plain, moved = (dataset.batch([1, 2], augment=a).images for a in (None, Augment(shift=2)))
    assert not torch.equal(plain, moved)


def test_options_are_set_by_name_and_checked() -> None:
    assert len(load("affnist:source=generated,versions=4", "test")) == 40_000
    with pytest.raises(ValueError, match="shifted by 0 to 6 pixels, got 7"):
        load("expanded-mnist:shift=7", "test")
    with pytest.raises(ValueError, match="option versions of affnist must be at most 32, got '33'"):
        load("affnist:versions=33", "test")
    with pytest.raises(ValueError, match=r"unknown option of expanded-mnist 'shfit'. Did you mean 'shift'"):
        load("expanded-mnist:shift=6,shfit=7", "test")
    with pytest.raises(ValueError, match="unknown split of affnist 'train'"):
        load("affnist", "train")


def test_original_files_are_preferred(tmp_path, monkeypatch) -> None:
    from scipy.io import savemat

    images = np.random.default_rng(0).integers(0, 256, (1600, 5), dtype=np.uint8)
    data = {"affNISTdata": {"image": images, "label_int": np.arange(5, dtype=np.uint8)[None]}}
    (tmp_path / "test_batches").mkdir()
    savemat(tmp_path / "test_batches" / "1.mat", data, do_compression=True)
    by_path = load(f"affnist:{tmp_path}", "test")
    assert by_path.origin == "original"
    assert len(by_path) == 5
    assert "original" in by_path.name
    monkeypatch.setenv("CAPSNET_AFFNIST", str(tmp_path))
    assert load("affnist", "test").origin == "original"
    assert load("affnist:source=generated", "test").origin == "generated"
    monkeypatch.delenv("CAPSNET_AFFNIST")
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "empty"))
    assert load("affnist", "test").origin == "generated"  # no files, and no download by default
    with pytest.raises(FileNotFoundError, match=r"1\.mat"):
        affnist("test", tmp_path / "empty")


def test_every_epoch_shows_every_digit_once() -> None:
    indices = [i for batch in batches(expanded_mnist("validation"), 1000, shuffle=True) for i in batch.indices.tolist()]
    assert sorted(indices) == list(range(10_000))


def test_affnist_is_not_downloaded_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hash of the original files was published: without ``unverified`` nothing is fetched."""
    monkeypatch.setattr(transformed, "cache_dir", lambda: tmp_path)
    monkeypatch.delenv("CAPSNET_AFFNIST", raising=False)
    asked: list[Path | None] = []
    monkeypatch.setattr(transformed, "find_affnist", lambda split, folder=None: _not_there(asked, folder))
    with pytest.raises(FileNotFoundError, match=r"hashes were never published: .*unverified=true"):
        load("affnist:source=original", "test")
    assert asked == [tmp_path / "affnist"]
    with pytest.raises(FileNotFoundError, match="asked for None"):
        load("affnist:source=original,unverified=true", "test")


def _not_there(asked: list[Path | None], folder: Path | None) -> list[Path]:
    asked.append(folder)
    raise FileNotFoundError(f"asked for {folder}")
