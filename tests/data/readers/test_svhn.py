"""SVHN: upright pictures, 10 is 0, the right splits, and errors for other files."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from capsnet.data import Preprocess
from capsnet.data.readers.download import Remote
from capsnet.data.readers.svhn import FILES, svhn
from tests.data.http_files import dead_url


def write(path: Path, count: int, **changes: np.ndarray) -> np.ndarray:
    """Write a file as the authors did: X is height x width x colour x N; return the images as (N, 3, 32, 32)."""
    images = np.random.default_rng(count).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]
    savemat(path, {"X": images.transpose(2, 3, 1, 0), "y": labels} | changes, do_compression=True)
    return images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train_32x32.mat", 20)
    write(tmp_path / "test_32x32.mat", 12)
    return tmp_path


def test_pictures_and_labels_match_the_file(folder: Path) -> None:
    images = write(folder / "test_32x32.mat", 12)
    test = svhn("test", folder)
    np.testing.assert_array_equal(test.images, images)
    assert test.targets.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert (test.name, test.channels, test.image_size) == ("svhn test", 3, (32, 32))
    assert test.preprocess == Preprocess(style="plain", height=32, width=32, channels=3)
    assert test.class_names == tuple("0123456789")
    assert test.batch([0]).images.shape == (1, 3, 32, 32)


def test_splits_have_their_sizes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_SVHN", str(folder))
    train, validation, both = svhn("train"), svhn("validation"), svhn("train+validation")
    assert (len(train), len(validation), len(both)) == (17, 3, 20)
    np.testing.assert_array_equal(np.concatenate([train.images, validation.images]), both.images)
    assert validation.targets.tolist() == [8, 9, 0]
    with pytest.raises(ValueError, match="unknown split 'extra'"):
        svhn("extra")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 6), np.float64)}, r"expected X as uint8 .* found float64"),
        (
            {"X": np.zeros((6, 32, 32, 3), np.uint8)},
            r"of shape \(32, 32, 3, N\), found uint8 of shape \(6, 32, 32, 3\)",
        ),
        ({"y": np.ones((5, 1), np.uint8)}, r"expected y as 6 whole numbers, found uint8 of \(5, 1\)"),
        ({"y": np.full((6, 1), 1.5)}, "expected y as 6 whole numbers"),
        ({"y": np.arange(6, dtype=np.uint8)[:, None]}, "expected labels 1 to 10 .* found 0 to 5"),
        ({"y": np.array(["text"])}, "expected the arrays X and y"),
    ],
)
def test_wrong_content_is_refused(folder: Path, changes: dict[str, np.ndarray], message: str) -> None:
    write(folder / "test_32x32.mat", 6, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        svhn("test", folder)
    assert "test_32x32.mat" in str(caught.value)


def test_damage_is_refused(folder: Path) -> None:
    file = folder / "test_32x32.mat"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"test_32x32\.mat: expected"):
        svhn("test", folder)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"expected test_32x32\.mat, found train_32x32\.mat"):
        svhn("test", folder)
    write(folder / "train_32x32.mat", 5)
    with pytest.raises(ValueError, match="5 training images are too few"):
        svhn("train", folder)


def test_missing_network_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path))
    monkeypatch.delenv("CAPSNET_SVHN", raising=False)
    monkeypatch.setitem(FILES, "train_32x32.mat", Remote((dead_url(),), FILES["train_32x32.mat"].hash))
    with pytest.raises(FileNotFoundError, match=rf"put train_32x32\.mat into {tmp_path}/svhn, or .* svhn:FOLDER"):
        svhn("train")
    write(tmp_path / "train_32x32.mat", 12)  # a file in the cache that is not the published one
    (tmp_path / "svhn").mkdir(exist_ok=True)
    (tmp_path / "train_32x32.mat").rename(tmp_path / "svhn" / "train_32x32.mat")
    with pytest.raises(FileNotFoundError, match="with the wrong hash"):
        svhn("train")
