"""The original affNIST files (Tieleman 2013): MNIST digits under random affine maps, 40 x 40, 32 versions of each.

A file holds the struct ``affNISTdata``: its field ``image`` is 1600 x N, a column per image, ``label_int`` is 1 x N. A
split is 32 numbered files in a zip archive, which is not unpacked, or one large file.

The order of the 1600 numbers of an image is not documented. MATLAB suggests columns, but programs that read the files
take 40 consecutive numbers as a row. The images decide: a "1" is much taller than wide, even turned by 20 degrees.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capsnet._names import check_name
from capsnet.data.readers.download import Remote, contents_of, find_or_fetch
from capsnet.data.readers.mat5 import decode_mat, read_mat

HOME = "https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/"
STEMS = {"train": "training", "validation": "validation", "train+validation": "training_and_validation", "test": "test"}
SIDE = 40
ENOUGH = 20  # ones that are needed to detect the order of the pixels


def find_affnist(split: str, folder: Path | None = None) -> list[Path]:
    """The files of a split, in the order of their numbers, for ``read_affnist``.

    In a ``folder`` they are the numbered files in test_batches (or test), or test.mat, or the archives test_batches.zip
    or test.mat.zip, and likewise training_, validation_ and training_and_validation_; the folder may also be
    test_batches itself, or one file. Without a folder the archive of numbered files is fetched into the cache.
    """
    stem = STEMS[check_name("split", split, tuple(STEMS))]
    archive = f"{stem}_batches.zip"
    if folder is None:
        # No hash was ever published for these files; a zip archive has a checksum of each member.
        return list(find_or_fetch("affnist", {archive: Remote((f"{HOME}{archive}",), None)}, None).values())
    if folder.is_file():
        return [folder]
    places = [
        folder / f"{stem}_batches",
        folder / stem,
        *([folder] if folder.name in (f"{stem}_batches", stem) else []),
    ]
    for place in places:
        if files := _numbered(place):
            return files
    for name in (f"{stem}.mat", archive, f"{stem}.mat.zip"):
        if (folder / name).is_file():
            return [folder / name]
    raise FileNotFoundError(
        f"{folder}: expected {stem}_batches with 1.mat and so on, {stem}.mat, {archive} or {stem}.mat.zip, "
        f"found {contents_of(folder)}"
    )


def read_affnist(paths: Sequence[Path], *, limit: int | None = None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read .mat files, or .zip archives of them, one after another; no further than needed for ``limit`` images.

    Shapes: -> (N, 40, 40), (N,)
    """
    parts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]] = []
    count = 0
    for variables, source in _opened(paths):
        parts.append(_decode(variables, source))
        count += len(parts[-1][0])
        if limit is not None and count >= limit:
            break
    if not parts:
        raise ValueError("expected at least one affNIST file to read, got none")
    images = np.concatenate([images for images, _ in parts])[:limit]
    labels = np.concatenate([labels for _, labels in parts])[:limit]
    return images, labels


def _numbered(folder: Path) -> list[Path]:
    files = [path for path in folder.glob("*.mat") if path.stem.isdecimal()] if folder.is_dir() else []
    return sorted(files, key=lambda path: int(path.stem))


def _opened(paths: Sequence[Path]) -> Iterator[tuple[dict, str]]:
    for path in paths:
        if path.suffix != ".zip" and not zipfile.is_zipfile(path):
            yield read_mat(path), str(path)
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if re.search(r"(^|/)\w+\.mat$", name)]
                if not names:
                    raise ValueError(f"{path}: expected .mat files in the archive, found {archive.namelist()[:5]}")
                for name in sorted(names, key=_number):
                    yield decode_mat(archive.read(name), f"{path}: {name}"), f"{path}: {name}"
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{path}: expected a complete zip archive, found damage ({error})") from error


def _number(name: str) -> tuple[int, str]:
    digits = re.search(r"(\d+)\.mat$", name)
    return (int(digits.group(1)) if digits else 0, name)


def _decode(variables: dict, source: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    data = variables.get("affNISTdata")
    if not isinstance(data, dict) or not {"image", "label_int"} <= data.keys():
        raise ValueError(
            f"{source}: expected a struct affNISTdata with image and label_int, found {', '.join(variables)}"
        )
    image, label = np.asarray(data["image"]), np.asarray(data["label_int"])
    if image.dtype != np.uint8 or image.ndim != 2 or len(image) != SIDE * SIDE or image.shape[1] == 0:
        raise ValueError(f"{source}: expected image as uint8 ({SIDE * SIDE}, N), found {image.dtype} of {image.shape}")
    if label.size != image.shape[1] or label.dtype.kind not in "iuf" or not np.isin(label, range(10)).all():
        raise ValueError(
            f"{source}: expected label_int as {image.shape[1]:,} digits 0 to 9, found {label.dtype} of {label.shape}"
        )
    labels = label.ravel().astype(np.int64)
    return _upright(image.T.reshape(-1, SIDE, SIDE), labels), labels


def _upright(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Transpose a file's images if its ones lie on their side; with too few ones the usual order is assumed."""
    ones = images[labels == 1][:1000].astype(np.float64)  # (N, H, W)
    if len(ones) < ENOUGH or not ones.any():
        return images
    along_y, along_x = (_spread(ones.sum(axis=axis)) for axis in (2, 1))
    return np.ascontiguousarray(images.transpose(0, 2, 1)) if along_x > 1.5 * along_y else images


def _spread(profiles: NDArray[np.float64]) -> float:
    """The variance of the ink's position along one axis, averaged over the images. Shapes: profiles (N, L) -> scalar"""
    weights = profiles / profiles.sum(axis=1, keepdims=True).clip(1e-9)
    position = np.arange(profiles.shape[1])
    mean = weights @ position  # (N,)
    return float((weights @ position**2 - mean**2).mean())
