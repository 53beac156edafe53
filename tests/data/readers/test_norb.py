"""Small NORB: the binary matrices, the two cameras, objects that never cross a split, averaging over areas."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from capsnet.data.readers.download import Remote
from capsnet.data.readers.norb import CLASS_NAMES, FILES, TEST, TRAIN, read_matrix, shrink, small_norb
from tests.data.http_files import dead_url

MAGIC = {"u1": 0x1E3D4C55, "i4": 0x1E3D4C54, "i2": 0x1E3D4C56, "f4": 0x1E3D4C51, "f8": 0x1E3D4C53}


def matrix_bytes(array: np.ndarray) -> bytes:
    sizes = [*array.shape, 1, 1][: max(array.ndim, 3)]
    magic = MAGIC[array.dtype.str[1:]]
    return struct.pack(f"<II{len(sizes)}I", magic, array.ndim, *sizes) + array.astype(array.dtype).tobytes()


def fill(folder: Path, part: str, objects: list[int], packed: bool = True) -> dict[str, np.ndarray]:
    count = 10 * len(objects)
    info = np.zeros((count, 4), np.int32)
    info[:, 0] = np.repeat(objects, 10)
    arrays = {
        "dat": np.random.default_rng(count).integers(0, 256, (count, 2, 96, 96), dtype=np.uint8),
        "cat": (np.arange(count) % 5).astype(np.int32),
        "info": info,
    }
    for kind, array in arrays.items():
        data = matrix_bytes(array)
        (folder / f"{part}-{kind}.mat{'.gz' if packed else ''}").write_bytes(gzip.compress(data, 1) if packed else data)
    return arrays


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path, TRAIN, [9, 4, 7])
    fill(tmp_path, TEST, [0, 1], packed=False)
    return tmp_path


@pytest.mark.parametrize("dtype", sorted(MAGIC))
@pytest.mark.parametrize("shape", [(5,), (5, 4), (2, 3, 4), (2, 2, 3, 3)])
def test_matrices_of_all_types_are_read(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    (tmp_path / "m.mat").write_bytes(matrix_bytes(array))
    np.testing.assert_array_equal(read_matrix(tmp_path / "m.mat"), array)


def test_objects_stay_together(folder: Path) -> None:
    arrays = fill(folder, TRAIN, [9, 4, 7])
    train, validation = (small_norb(s, folder, size=96) for s in ("train", "validation"))
    assert (len(train), len(validation), len(small_norb("train+validation", folder))) == (20, 10, 30)
    np.testing.assert_array_equal(validation.images, arrays["dat"][:10])  # object 9 comes first in this file
    np.testing.assert_array_equal(train.images, arrays["dat"][10:])
    np.testing.assert_array_equal(train.targets, arrays["cat"][10:])


def test_pictures_match_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = fill(folder, TEST, [0, 1], packed=False)
    monkeypatch.setenv("CAPSNET_SMALL_NORB", str(folder))
    test = small_norb("test")
    means = arrays["dat"].reshape(20, 2, 48, 2, 48, 2).mean(axis=(3, 5))
    np.testing.assert_array_equal(test.images, np.rint(means))
    assert (test.name, test.channels, test.image_size) == ("small-norb test", 2, (48, 48))
    assert test.preprocess is None  # no image file has two channels
    assert test.class_names == CLASS_NAMES == ("animal", "human", "plane", "truck", "car")
    np.testing.assert_array_equal(small_norb("test", views="left").images, test.images[:, :1])
    np.testing.assert_array_equal(small_norb("test", views="right").images, test.images[:, 1:])
    assert small_norb("test", size=36).image_size == (36, 36)


@pytest.mark.parametrize("size", [1, 7, 32, 95])
def test_averaging_keeps_the_mean_and_a_ramp(size: int) -> None:
    ramp = np.broadcast_to((2 * np.arange(96)).astype(np.uint8), (3, 2, 96, 96))
    shrunk = shrink(ramp, np.arange(3), slice(0, 2), size)
    assert shrunk.shape == (3, 2, size, size)
    centres = (np.arange(size) + 0.5) * 96 / size - 0.5  # the average of a ramp over an interval is its middle
    assert np.abs(shrunk - 2 * centres).max() <= 0.5 + 0.26  # rounding, and pixels that are cut
    flat = np.full((1, 2, 96, 96), 255, np.uint8)
    assert (shrink(flat, np.arange(1), slice(0, 1), size) == 255).all()


def test_options_are_checked(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"size must lie in 1\.\.96 .* got 97"):
        small_norb("test", folder, size=97)
    with pytest.raises(ValueError, match="unknown views 'middle'"):
        small_norb("test", folder, views="middle")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        small_norb("dev", folder)


GOOD = matrix_bytes(np.arange(6, dtype=np.int32).reshape(2, 3))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found 0x00000000"),
        (b"\x55\x4c\x3d", "found 0x00000000"),
        (GOOD[::-1], "expected a NORB matrix with magic number"),
        (b"\x52" + GOOD[1:], "found 0x1E3D4C52"),
        (GOOD[:8], "expected a header with 1 to 8 dimensions, found 2 in 8 bytes"),
        (GOOD[:4] + b"\xff\xff\xff\xff" + GOOD[8:], "found 4294967295"),
        (GOOD[:-1], "expected 44 bytes for shape 2x3, found 43"),
        (GOOD + b"x", "expected 44 bytes for shape 2x3, found 45"),
        (gzip.compress(GOOD)[:-9], "expected a complete gzip file"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "broken.mat"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_matrix(path)
    assert str(path) in str(caught.value)


def test_files_that_do_not_fit_together_are_refused(folder: Path) -> None:
    def put(kind: str, array: np.ndarray) -> None:
        (folder / f"{TEST}-{kind}.mat").write_bytes(matrix_bytes(array))

    put("cat", np.zeros(19, np.int32))
    with pytest.raises(ValueError, match=r"testing-cat\.mat: expected integers of shape \(20,\), found int32 of shape"):
        small_norb("test", folder)
    put("cat", np.full(20, 5, np.int32))
    with pytest.raises(ValueError, match=r"testing-cat\.mat: expected classes 0 to 4, found 5 to 5"):
        small_norb("test", folder)
    put("cat", np.zeros(20, np.int32))
    put("dat", np.zeros((20, 1, 96, 96), np.uint8))
    with pytest.raises(ValueError, match=r"testing-dat\.mat: expected uint8 \(N, 2, 96, 96\)"):
        small_norb("test", folder)
    (folder / f"{TEST}-info.mat").unlink()
    with pytest.raises(FileNotFoundError, match=rf"expected {TEST}-info\.mat\.gz, found"):
        small_norb("test", folder)
    fill(folder, TRAIN, [4])
    with pytest.raises(ValueError, match="expected several objects, to hold one out, found only object 4"):
        small_norb("validation", folder)


def test_missing_network_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path))
    monkeypatch.delenv("CAPSNET_SMALL_NORB", raising=False)
    for name, known in list(FILES.items()):
        monkeypatch.setitem(FILES, name, Remote((dead_url(),), known.hash))
    with pytest.raises(
        FileNotFoundError, match=rf"put {TRAIN}-dat.* and {TRAIN}-info.* into {tmp_path}/small-norb, or"
    ):
        small_norb("train")
