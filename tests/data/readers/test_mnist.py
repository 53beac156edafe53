"""MNIST: the right digits in the right splits, from package, cache or folder."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from capsnet import _files
from capsnet.data import ArrayDataset, mnist
from capsnet.data.readers.mnist import SHA256
from tests.data.idx_files import write_idx

module = sys.modules["capsnet.data.readers.mnist"]  # the package's attribute of that name is the function


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder and an empty in-process cache, restored afterwards."""
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "cache"))
    module._bundled_file.cache_clear()
    yield tmp_path / "cache"
    module._bundled_file.cache_clear()


def test_splits_have_their_sizes(digits: ArrayDataset) -> None:
    both = mnist("train+validation")
    train, validation = mnist("train"), mnist("validation")
    assert (len(train), len(validation), len(both), len(digits)) == (50_000, 10_000, 60_000, 10_000)
    assert train.targets[:5].tolist() == [5, 0, 4, 1, 9]
    assert digits.targets[:5].tolist() == [7, 2, 1, 0, 4]
    np.testing.assert_array_equal(np.concatenate([train.targets, validation.targets]), both.targets)
    np.testing.assert_array_equal(validation.images[-1], both.images[-1])
    assert both.images.mean() == pytest.approx(33.3184, abs=1e-3)  # 0.1307, the known mean of MNIST
    assert train.class_names == tuple("0123456789")
    assert (train.image_size, train.channels) == ((28, 28), 1)
    assert mnist("test").images.base is digits.images.base  # decoded once per process


def test_cache_is_written_and_used_only_if_intact(fresh: Path) -> None:
    first = mnist("test")
    cached = fresh / "mnist" / "t10k-images-idx3-ubyte"
    assert hashlib.sha256(cached.read_bytes()).hexdigest() == SHA256[cached.name]
    damaged = bytearray(cached.read_bytes())
    damaged[5000] ^= 1
    cached.write_bytes(damaged)
    module._bundled_file.cache_clear()
    np.testing.assert_array_equal(mnist("test").images, first.images)
    assert hashlib.sha256(cached.read_bytes()).hexdigest() == SHA256[cached.name]
    assert not [p for p in cached.parent.iterdir() if p.name.startswith(".")]  # no temporary file left


def test_cache_is_used(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist("test")
    module._bundled_file.cache_clear()
    monkeypatch.setattr(module, "unpack", lambda *_: pytest.fail("decompressed although cached"))
    assert len(mnist("test")) == 10_000


def test_unwritable_cache_is_no_error(fresh: Path) -> None:
    fresh.write_text("a file where the folder should be")
    assert len(mnist("test")) == 10_000


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files.os, "replace", full)
    assert not _files.store(tmp_path / "x", b"data")
    assert list(tmp_path.iterdir()) == []


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("CAPSNET_CACHE", "/c")
    assert _files.cache_dir() == Path("/c")
    monkeypatch.delenv("CAPSNET_CACHE")
    assert _files.cache_dir() == Path("/x/capsnet")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setattr(sys, "platform", "linux")
    assert _files.cache_dir() == Path("/home/somebody/.cache/capsnet")


def test_damaged_package_is_refused(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHA256, "t10k-labels-idx1-ubyte", "0" * 64)
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte.xz: expected SHA-256 0{64}"):
        mnist("test")


def make_folder(folder: Path, *, style: str = "-", suffix: str = "", count: int = 18) -> Path:
    folder.mkdir()
    for part, n in (("train", count), ("t10k", 4)):
        images = np.random.default_rng(n).integers(0, 256, (n, 6, 5), dtype=np.uint8)
        write_idx(folder / f"{part}-images{style}idx3-ubyte{suffix}", images)
        write_idx(folder / f"{part}-labels{style}idx1-ubyte{suffix}", (np.arange(n) % 12).astype(np.uint8))
    return folder


@pytest.mark.parametrize(("style", "suffix"), [("-", ""), (".", ""), ("-", ".gz"), (".", ".xz")])
def test_own_folder_is_read(tmp_path: Path, style: str, suffix: str) -> None:
    folder = make_folder(tmp_path / "own", style=style, suffix=suffix)
    train, validation = mnist("train", folder), mnist("validation", str(folder))
    assert (len(train), len(validation), len(mnist("test", folder))) == (15, 3, 4)
    assert validation.targets.tolist() == [3, 4, 5]
    assert train.image_size == (6, 5)
    assert train.num_classes == 12


def test_all_splits_of_a_folder_have_the_same_classes(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "own")
    assert {mnist(s, folder).num_classes for s in ("train", "validation", "train+validation")} == {12}


def test_environment_variable_is_used_and_rewritten_files_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "own")
    monkeypatch.setenv("CAPSNET_DATA", str(folder))
    assert len(mnist("test")) == 4
    write_idx(folder / "t10k-images-idx3-ubyte", np.zeros((2, 6, 5), np.uint8))
    write_idx(folder / "t10k-labels-idx1-ubyte", np.zeros(2, np.uint8))
    assert len(mnist("test")) == 2


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: expected a folder with IDX files, found nothing"):
        mnist("train", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"train-images-idx3-ubyte \(plain, .gz or .xz\), found an empty folder"
    ):
        mnist("train", tmp_path / "empty")
    folder = make_folder(tmp_path / "own")
    content = (folder / "train-images-idx3-ubyte").read_bytes()
    (folder / "train-images-idx3-ubyte").write_bytes(content[:100])
    with pytest.raises(ValueError, match="train-images-idx3-ubyte: expected 556 bytes for shape 18x6x5, found 100"):
        mnist("train", folder)
    (folder / "train-images-idx3-ubyte").write_bytes(content)
    write_idx(folder / "train-labels-idx1-ubyte", np.zeros(5, np.uint8))
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte: expected 18 uint8 labels, found uint8 of shape"):
        mnist("train", folder)
    write_idx(folder / "train-images-idx3-ubyte", np.zeros((18, 30), np.uint8))
    with pytest.raises(ValueError, match=r"expected uint8 images \(N, H, W\)"):
        mnist("train", folder)


def test_unknown_split_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"unknown split 'valid'. Did you mean 'validation'.* Known: train, validation,"
    ):
        mnist("valid")


def test_deleted_files_are_named(fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removed them because of their licence: docs/licensing.md says how."""
    monkeypatch.setattr(module, "files", lambda _: tmp_path)
    with pytest.raises(FileNotFoundError, match=r"this installation has no MNIST files .* CAPSNET_DATA=FOLDER"):
        mnist("test")
