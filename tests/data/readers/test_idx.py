"""The IDX reader: every type, every compression, and errors for every kind of damage."""

import gzip
import hashlib
import lzma
from pathlib import Path

import numpy as np
import pytest

from capsnet.data import Preprocess, idx_dataset, read_idx
from tests.data.idx_files import CODES, idx_bytes, write_idx

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("code", sorted(CODES))
def test_array_survives_the_round_trip(tmp_path: Path, code: str, suffix: str) -> None:
    array = (np.arange(24).reshape(2, 3, 4) - (0 if code == "u1" else 7)).astype(code)
    result = read_idx(write_idx(tmp_path / f"a{suffix}", array))
    np.testing.assert_array_equal(result, array)
    assert result.dtype == array.dtype


def test_packing_is_recognised_by_content(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(idx_bytes(IMAGES))  # not compressed, whatever its name says
    np.testing.assert_array_equal(read_idx(path), IMAGES)


def test_wrong_hash_is_refused(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "a.xz", IMAGES)
    good = hashlib.sha256(idx_bytes(IMAGES)).hexdigest()
    np.testing.assert_array_equal(read_idx(path, sha256=good), IMAGES)
    with pytest.raises(ValueError, match=f"a.xz: expected SHA-256 {'0' * 64}.*found {good}"):
        read_idx(path, sha256="0" * 64)


PLAIN = idx_bytes(IMAGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 4 bytes, found 0 bytes"),
        (b"\x89PNG\r\n", "magic number .* found 89 50 4e 47"),
        (b"\x00\x00\x07\x01" + PLAIN[4:], "found 00 00 07 01"),
        (b"\x00\x00\x08\x00", "found 00 00 08 00"),
        (PLAIN[:10], "header of 16 bytes for 3 dimensions, found 10 bytes"),
        (PLAIN[:-1], "expected 40 bytes for shape 2x3x4, found 39"),
        (PLAIN + b"x", "expected 40 bytes for shape 2x3x4, found 41"),
        (b"\x00\x00\x0e\xff" + b"\xff" * 1020, "found 00 00 0e ff"),
        (b"\x00\x00\x0e\x08" + b"\xff" * 1020, "expected .* bytes for shape"),
        (gzip.compress(PLAIN)[:-9], "complete gzip file, found"),
        (lzma.compress(PLAIN)[:-9], "complete xz file, found"),
        (lzma.compress(PLAIN)[:20] + b"????" + lzma.compress(PLAIN)[24:], "complete xz file"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "broken"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: expected an IDX file, found nothing"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="found a folder"):
        read_idx(tmp_path)


def test_idx_dataset_loads_any_folder_of_idx_files(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("t10k", 3)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", np.arange(count * 90).reshape(count, 9, 10).astype(np.uint8))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", (np.arange(count) % 4).astype(np.uint8))
    train, test = (idx_dataset("letters", split, tmp_path) for split in ("train", "test"))
    assert (len(train), len(test), train.image_size, train.class_names) == (10, 3, (9, 10), ("0", "1", "2", "3"))
    assert test.class_names == train.class_names  # the test file has one class less
    assert train.preprocess == Preprocess(style="plain", height=9, width=10)
    assert idx_dataset("letters", "test", tmp_path, class_names="abcd").class_names == ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="expected labels 0 to 1, found 3"):
        idx_dataset("letters", "train", tmp_path, class_names="ab")
    with pytest.raises(ValueError, match="letters needs the path of a folder with IDX files: write letters:PATH"):
        idx_dataset("letters", "train")
    with pytest.raises(ValueError, match="unknown split 'all'"):
        idx_dataset("letters", "all", tmp_path)
