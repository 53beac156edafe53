"""Fashion-MNIST from a folder, from a system package, from the network."""

import gzip
import hashlib
import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from capsnet.data import Preprocess
from capsnet.data.readers.download import Remote
from capsnet.data.readers.fashion import CLASS_NAMES, FILES, PLACES, SHA256, fashion_mnist
from tests.data.http_files import Answer, WebServer, dead_url, web_server
from tests.data.idx_files import idx_bytes, write_idx

module = importlib.import_module("capsnet.data.readers.fashion")


def contents(part: str) -> dict[str, np.ndarray]:
    count = 24 if part == "train" else 10
    images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    return {f"{part}-images-idx3-ubyte": images, f"{part}-labels-idx1-ubyte": (np.arange(count) % 10).astype(np.uint8)}


CONTENTS = contents("train") | contents("t10k")


@pytest.fixture
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the data and without a network; the tiny files are declared to be the published ones."""
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CAPSNET_FASHION_MNIST", raising=False)
    monkeypatch.setattr(module, "PLACES", (tmp_path / "system",))
    for name, array in CONTENTS.items():
        monkeypatch.setitem(SHA256, name, hashlib.sha256(idx_bytes(array)).hexdigest())
        packed = gzip.compress(idx_bytes(array), mtime=0)
        url = f"{dead_url()}{name}.gz"
        monkeypatch.setitem(FILES, f"{name}.gz", Remote((url,), f"md5:{hashlib.md5(packed).hexdigest()}"))
    return tmp_path


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as running:
        yield running


def fill(folder: Path, suffix: str = ".gz") -> Path:
    folder.mkdir(parents=True)
    for name, array in CONTENTS.items():
        write_idx(folder / f"{name}{suffix}", array)
    return folder


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_own_folder_is_read(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(tmp_path / "own", suffix)
    train, validation, test = (fashion_mnist(split, folder) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (20, 4, 10)
    np.testing.assert_array_equal(test.images[:, 0], CONTENTS["t10k-images-idx3-ubyte"])
    assert validation.targets.tolist() == [0, 1, 2, 3]
    assert test.class_names == CLASS_NAMES
    assert (CLASS_NAMES[0], CLASS_NAMES[9]) == ("T-shirt/top", "Ankle boot")
    assert (test.name, test.channels) == ("fashion-mnist test", 1)
    assert test.preprocess == Preprocess(style="plain", height=28, width=28)
    monkeypatch.setenv("CAPSNET_FASHION_MNIST", str(folder))
    assert len(fashion_mnist("train+validation")) == 24


def test_system_package_is_checked_by_content(no_files: Path) -> None:
    system = fill(no_files / "system")  # compressed at another time: the .gz files have other hashes
    assert fashion_mnist("train").name == "fashion-mnist train"
    damaged = CONTENTS["train-images-idx3-ubyte"].copy()
    damaged[0, 0, 0] ^= 1
    write_idx(system / "train-images-idx3-ubyte.gz", damaged)
    with pytest.raises(ValueError, match=r"system/train-images-idx3-ubyte\.gz: expected SHA-256"):
        fashion_mnist("train")


def test_download_is_checked_and_cached(no_files: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in CONTENTS.items():
        server.answers[f"{name}.gz"] = Answer(gzip.compress(idx_bytes(array), mtime=0))
        known = FILES[f"{name}.gz"]
        monkeypatch.setitem(FILES, f"{name}.gz", Remote((*known.urls, f"{server.url}{name}.gz"), known.hash))
    for _ in range(2):
        np.testing.assert_array_equal(fashion_mnist("test").targets, np.arange(10))
    assert server.asked == ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]  # once, and only what is needed


def test_missing_network_is_reported(no_files: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"put t10k-images-idx3-ubyte\.gz and t10k-labels-idx1-ubyte\.gz into .*cache/fashion-mnist, or .* "
        r"fashion-mnist:FOLDER",
    ):
        fashion_mnist("test")


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: expected a folder with IDX files"):
        fashion_mnist("train", tmp_path / "nowhere")
    folder = fill(tmp_path / "own")
    content = (folder / "t10k-images-idx3-ubyte.gz").read_bytes()
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(content[:-20])
    with pytest.raises(ValueError, match="expected a complete gzip file"):
        fashion_mnist("test", folder)
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(content)
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.full(10, 26, np.uint8))
    with pytest.raises(ValueError, match="own: expected labels 0 to 9, found 26"):
        fashion_mnist("test", folder)
    with pytest.raises(ValueError, match="unknown split 'tests'"):
        fashion_mnist("tests", folder)


@pytest.mark.skipif(not PLACES[0].is_dir(), reason="needs Debian's package dataset-fashion-mnist")
def test_debian_files_are_read_where_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPSNET_FASHION_MNIST", raising=False)
    train, test = fashion_mnist("train"), fashion_mnist("test")
    assert (len(train), len(test)) == (50_000, 10_000)
    assert [CLASS_NAMES[label] for label in test.targets[:3]] == ["Ankle boot", "Pullover", "Trouser"]
