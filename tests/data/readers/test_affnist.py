"""affNIST's original files: all layouts are found, images are upright."""

import importlib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from capsnet.data import ArrayDataset
from capsnet.data.readers.affnist import find_affnist, read_affnist
from tests.data.http_files import Answer, dead_url, web_server

module = importlib.import_module("capsnet.data.readers.affnist")  # the package may have a function of that name


def write(
    path: Path, images: np.ndarray, labels: np.ndarray, *, column_major: bool = False, packed: bool = True
) -> Path:
    """Write a struct like the author's; 40 consecutive numbers are a row of the picture, or a column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = images.transpose(0, 2, 1) if column_major else images
    fields = {
        "affine_to_original": np.zeros((6, len(images))),
        "image": order.reshape(len(images), 1600).T,
        "label_one_of_n": np.eye(10, dtype=np.uint8)[labels].T,
        "label_int": labels[None].astype(np.uint8),
        "original_id": np.arange(len(images))[None] + 1.0,
    }
    savemat(path, {"affNISTdata": fields}, do_compression=packed)
    return path


@pytest.fixture(scope="module")
def padded(digits: ArrayDataset) -> tuple[np.ndarray, np.ndarray]:
    """Real digits, off centre in 40 x 40."""
    return np.pad(digits.images[:300, 0], ((0, 0), (2, 10), (9, 3))), digits.targets[:300]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("column_major", [False, True])
def test_digits_come_out_upright(
    tmp_path: Path, padded: tuple[np.ndarray, np.ndarray], column_major: bool, packed: bool
) -> None:
    images, labels = padded
    result = read_affnist([write(tmp_path / "1.mat", images, labels, column_major=column_major, packed=packed)])
    np.testing.assert_array_equal(result[0], images)
    np.testing.assert_array_equal(result[1], labels)
    assert (result[0].dtype, result[1].dtype) == (np.uint8, np.int64)


def test_few_ones_are_taken_as_rows(tmp_path: Path, padded: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = padded[0][:10], padded[1][:10]
    np.testing.assert_array_equal(read_affnist([write(tmp_path / "1.mat", images, labels)])[0], images)


def numbered(folder: Path, padded: tuple[np.ndarray, np.ndarray]) -> Path:
    """Twelve files of two images: number 10 must not come before number 2."""
    for i in range(12):
        write(folder / f"{i + 1}.mat", padded[0][2 * i : 2 * i + 2], padded[1][2 * i : 2 * i + 2])
    return folder


def zipped(target: Path, folder: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(f"{folder.name}/", "")
        for path in sorted(folder.iterdir()):
            archive.write(path, f"{folder.name}/{path.name}")
    return target


def test_all_layouts_are_found(tmp_path: Path, padded: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = padded[0][:24], padded[1][:24]
    batches = numbered(tmp_path / "a" / "test_batches", padded)
    numbered(tmp_path / "b" / "test", padded)
    for name in "cdef":
        (tmp_path / name).mkdir()
    archive = zipped(tmp_path / "c" / "test_batches.zip", batches)
    one = write(tmp_path / "d" / "test.mat", images, labels)
    with zipfile.ZipFile(tmp_path / "e" / "test.mat.zip", "w") as packed:
        packed.write(one, "test.mat")
    for folder in (*(tmp_path / name for name in "abcde"), batches, archive, one):
        result = read_affnist(find_affnist("test", folder))
        np.testing.assert_array_equal(result[0], images, err_msg=str(folder))
        np.testing.assert_array_equal(result[1], labels)
    assert len(find_affnist("test", batches)) == 12
    with pytest.raises(FileNotFoundError, match=r"f: expected training_batches with 1\.mat and so on, .* empty folder"):
        find_affnist("train", tmp_path / "f")
    with pytest.raises(FileNotFoundError, match="validation_batches"):
        find_affnist("validation", batches)  # the test files are not validation files
    with pytest.raises(ValueError, match="unknown split 'tests'"):
        find_affnist("tests", tmp_path)


def test_limit_reads_no_further(tmp_path: Path, padded: tuple[np.ndarray, np.ndarray]) -> None:
    folder = numbered(tmp_path / "test_batches", padded)
    (folder / "3.mat").write_bytes(b"never looked at")
    images, labels = read_affnist(find_affnist("test", tmp_path), limit=3)
    np.testing.assert_array_equal(images, padded[0][:3])
    np.testing.assert_array_equal(labels, padded[1][:3])
    with pytest.raises(ValueError, match=r"3\.mat: expected a level-5"):
        read_affnist(find_affnist("test", tmp_path), limit=5)


def test_download_is_checked_and_cached(
    tmp_path: Path, padded: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "HOME", dead_url())
    with pytest.raises(FileNotFoundError, match=r"put training_batches\.zip into .*cache/affnist, or .*affnist:FOLDER"):
        find_affnist("train")
    archive = zipped(tmp_path / "a.zip", numbered(tmp_path / "test_batches", padded))
    with web_server() as server:
        server.answers["test_batches.zip"] = Answer(archive.read_bytes())
        monkeypatch.setattr(module, "HOME", server.url)
        for _ in range(2):
            assert len(read_affnist(find_affnist("test"))[0]) == 24
        assert server.asked == ["test_batches.zip"]


def test_wrong_content_is_refused(tmp_path: Path, padded: tuple[np.ndarray, np.ndarray]) -> None:
    path = tmp_path / "1.mat"
    images, labels = padded[0][:4], padded[1][:4]

    def refused(message: str, **fields: np.ndarray) -> None:
        savemat(path, {"affNISTdata": fields})
        with pytest.raises(ValueError, match=rf"1\.mat: {message}"):
            read_affnist([path])

    flat = images.reshape(4, 1600).T
    refused("expected a struct affNISTdata with image and label_int", image=flat)
    refused(r"expected image as uint8 \(1600, N\), found float64", image=flat.astype(float), label_int=labels[None])
    refused(r"expected image as uint8 \(1600, N\), found uint8 of \(4, 1600\)", image=flat.T, label_int=labels[None])
    refused("expected label_int as 4 digits 0 to 9", image=flat, label_int=labels[None, :3])
    refused("expected label_int as 4 digits 0 to 9", image=flat, label_int=labels[None] + 10)
    savemat(path, {"other": flat})
    with pytest.raises(ValueError, match="found other"):
        read_affnist([path])
    with pytest.raises(ValueError, match="at least one affNIST file"):
        read_affnist([])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_affnist([tmp_path / "nowhere"])


def test_damaged_archive_is_refused(tmp_path: Path, padded: tuple[np.ndarray, np.ndarray]) -> None:
    archive = zipped(tmp_path / "a.zip", numbered(tmp_path / "test_batches", padded))
    content = archive.read_bytes()
    for end in range(0, len(content), 500):
        archive.write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"a\.zip: expected a complete zip archive"):
            read_affnist([archive])
    archive.write_bytes(content[:300] + b"????" + content[304:])
    with pytest.raises(ValueError, match=r"a\.zip"):
        read_affnist([archive])
    with zipfile.ZipFile(archive, "w") as other:
        other.writestr("readme.txt", "nothing")
    with pytest.raises(ValueError, match=r"expected \.mat files in the archive, found \['readme\.txt'\]"):
        read_affnist([archive])
