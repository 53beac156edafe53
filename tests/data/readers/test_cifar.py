"""CIFAR-10 from folders and archives, in the authors' binary format."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from capsnet.data import Preprocess
from capsnet.data.readers.cifar import ARCHIVE, CLASS_NAMES, FILES, FOLDER, TEST, TRAIN, cifar10
from capsnet.data.readers.download import Remote
from tests.data.http_files import dead_url


def batch_bytes(first: int, count: int) -> bytes:
    """Records: a label, then 1024 red, 1024 green, 1024 blue; here the planes tell image, colour and row."""
    records = b""
    for i in range(first, first + count):
        planes = [bytes([(i * 7 + colour * 50 + row) % 256]) * 32 for colour in range(3) for row in range(32)]
        records += bytes([i % 10]) + b"".join(planes)
    return records


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    for number, name in enumerate((*TRAIN, *TEST)):
        (folder / name).write_bytes(batch_bytes(4 * number, 4))
    return tmp_path


def pack(parent: Path, target: Path, names: tuple[str, ...] = (*TRAIN, *TEST)) -> Path:
    with tarfile.open(target, "w:gz") as archive:
        for name in reversed(names):  # any order in the archive
            data = (parent / FOLDER / name).read_bytes()
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target


def test_pictures_and_splits_match_the_file(parent: Path) -> None:
    train, validation, both, test = (cifar10(s, parent) for s in ("train", "validation", "train+validation", "test"))
    assert (len(train), len(validation), len(both), len(test)) == (16, 4, 20, 4)
    assert both.targets.tolist() == [i % 10 for i in range(20)]
    assert validation.targets.tolist() == [6, 7, 8, 9]  # data_batch_5
    assert test.targets.tolist() == [0, 1, 2, 3]
    assert both.images.shape == (20, 3, 32, 32)
    colour, row = np.arange(3)[:, None, None], np.arange(32)[None, :, None]
    np.testing.assert_array_equal(both.images[2], np.broadcast_to(14 + 50 * colour + row, (3, 32, 32)))
    assert (test.name, test.class_names) == ("cifar10 test", CLASS_NAMES)
    assert test.preprocess == Preprocess(style="plain", height=32, width=32, channels=3)


def test_path_may_be_folder_parent_or_archive(parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = cifar10("train", parent)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    archive = pack(parent, elsewhere / ARCHIVE)
    for path in (parent / FOLDER, str(parent), archive, elsewhere):
        dataset = cifar10("train", path)
        np.testing.assert_array_equal(dataset.images, expected.images)
        np.testing.assert_array_equal(dataset.targets, expected.targets)
    assert [p.name for p in elsewhere.iterdir()] == [ARCHIVE]  # nothing is unpacked
    monkeypatch.setenv("CAPSNET_CIFAR10", str(archive))
    assert len(cifar10("test")) == 4


def test_wrong_content_is_refused(parent: Path, tmp_path: Path) -> None:
    file = parent / FOLDER / TEST[0]
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"test_batch\.bin: expected records of 3,073 bytes, found 12,291 bytes"):
        cifar10("test", parent)
    file.write_bytes(bytes([200]) + content[1:])
    with pytest.raises(ValueError, match=r"test_batch\.bin: expected labels 0 to 9, found 200"):
        cifar10("test", parent)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=rf"expected test_batch\.bin .*{ARCHIVE}, found {FOLDER}"):
        cifar10("test", parent)
    with pytest.raises(FileNotFoundError, match="found nothing"):
        cifar10("test", tmp_path / "nowhere")
    incomplete = pack(parent, tmp_path / "part.tar.gz", TRAIN[:2])
    with pytest.raises(ValueError, match=r"expected data_batch_3\.bin, data_batch_4\.bin, data_batch_5\.bin in the"):
        cifar10("train", incomplete)


def test_damaged_archive_is_refused(parent: Path, tmp_path: Path) -> None:
    archive = pack(parent, tmp_path / ARCHIVE)
    content = archive.read_bytes()
    for end in [*range(0, len(content), 50), len(content) - 9]:
        archive.write_bytes(content[:end])
        with pytest.raises(ValueError, match=ARCHIVE):
            cifar10("train", archive)
    archive.write_bytes(b"\x80\x04pickle")
    with pytest.raises(ValueError, match="expected the complete archive"):
        cifar10("train", archive)


def test_missing_network_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path))
    monkeypatch.delenv("CAPSNET_CIFAR10", raising=False)
    monkeypatch.setitem(FILES, ARCHIVE, Remote((dead_url(), dead_url()), FILES[ARCHIVE].hash))
    with pytest.raises(FileNotFoundError, match=rf"put {ARCHIVE} into {tmp_path}/cifar10, or .* cifar10:FOLDER"):
        cifar10("test")
