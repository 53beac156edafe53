"""Small NORB (LeCun, Huang, Bottou 2004): fifty toys from all sides, photographed by two cameras, 96 x 96 grey.

Five kinds of toys, ten objects of each: objects 4, 6, 7, 8, 9 are the training file, 0, 1, 2, 3, 5 the test file.
Images of one object can be nearly the same, so the validation split is one whole *object* of each kind, that with
the highest number in the training file (object 9, a fifth of the images).

Images are averaged over areas down to 48 x 48, where the capsule papers start (Sabour et al. 2017, Hinton et al. 2018).
Their crops to 32 x 32 are augmentation and not done here.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capsnet._names import check_name
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset
from capsnet.data.readers.download import Remote, find_or_fetch, named_folder
from capsnet.data.readers.idx import unpack
from capsnet.data.splits import SPLITS

HOME = "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/"
TRAIN, TEST = "smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing"
MD5 = {  # of the published .gz files
    f"{TRAIN}-dat.mat.gz": "66054832f9accfe74a0f4c36a75bc0a2",
    f"{TRAIN}-cat.mat.gz": "23c8b86101fbf0904a000b43d3ed2fd9",
    f"{TRAIN}-info.mat.gz": "51dee1210a742582ff607dfd94e332e3",
    f"{TEST}-dat.mat.gz": "e4ad715691ed5a3a5f138751a4ceb071",
    f"{TEST}-cat.mat.gz": "5aa791cd7e6016cf957ce9bdb93b8603",
    f"{TEST}-info.mat.gz": "a9454f3864d7fd4bb3ea7fc3eb84924e",
}
FILES = {name: Remote((f"{HOME}{name}",), f"md5:{md5}") for name, md5 in MD5.items()}
CLASS_NAMES = ("animal", "human", "plane", "truck", "car")
DTYPES = {0x51: "<f4", 0x53: "<f8", 0x54: "<i4", 0x55: "<u1", 0x56: "<i2"}  # the last byte of the magic number
SIDE = 96


@register(
    "small-norb",
    "Toys from all sides in stereo, 48x48 grey: 19,440 train, 4,860 validation, 24,300 test (downloaded, 263 MB)",
    SPLITS,
    source="download",
    objects=1,
    environment="CAPSNET_SMALL_NORB",
)
def small_norb(
    split: str = "train",
    path: str | Path | None = None,
    *,
    size: Annotated[int, Field(ge=1, le=SIDE)] = 48,
    views: Literal["both", "left", "right"] = "both",
) -> ArrayDataset:
    """Load one split from the folder ``path`` (or CAPSNET_SMALL_NORB), plain or .gz, or fetch it.

    ``size`` is the side that the images are averaged down to; ``views`` chooses the cameras: "both" gives two channels.
    """
    check_name("split", split, SPLITS)
    check_name("views", views, ("both", "left", "right"))
    if not 1 <= size <= SIDE:
        raise ValueError(f"size must lie in 1..{SIDE} (the images are {SIDE} x {SIDE}), got {size}")
    part = TEST if split == "test" else TRAIN
    names = [f"{part}-{kind}.mat.gz" for kind in ("dat", "cat", "info")]
    paths = find_or_fetch("small-norb", {n: FILES[n] for n in names}, named_folder(path, "CAPSNET_SMALL_NORB"))
    pixels, labels, info = read_norb(*(paths[name] for name in names))
    rows = _rows(split, info[:, 0], paths[names[2]])
    cameras = {"both": slice(0, 2), "left": slice(0, 1), "right": slice(1, 2)}[views]
    images = shrink(pixels, rows, cameras, size)
    return ArrayDataset(images, labels[rows], CLASS_NAMES, name=f"small-norb {split}")


def read_norb(dat: Path, cat: Path, info: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Read image pairs, classes, and (object, elevation, azimuth, lighting). Shapes: -> (N, 2, 96, 96), (N,), (N, 4)"""
    pixels, classes, details = (read_matrix(path) for path in (dat, cat, info))
    count = len(pixels)
    if pixels.dtype != np.uint8 or pixels.shape != (count, 2, SIDE, SIDE) or count == 0:
        raise ValueError(f"{dat}: expected uint8 (N, 2, {SIDE}, {SIDE}), found {pixels.dtype} of shape {pixels.shape}")
    for path, array, shape in ((cat, classes, (count,)), (info, details, (count, 4))):
        if array.shape != shape or array.dtype.kind != "i":
            raise ValueError(f"{path}: expected integers of shape {shape}, found {array.dtype} of shape {array.shape}")
    if classes.min() < 0 or classes.max() >= len(CLASS_NAMES):
        raise ValueError(f"{cat}: expected classes 0 to 4, found {classes.min()} to {classes.max()}")
    return pixels, classes.astype(np.int64), details.astype(np.int64)


def read_matrix(path: Path) -> NDArray[Any]:
    """Read one "binary matrix" of NORB (not a MATLAB file, in spite of the name), plain or compressed.

    A magic number, the number of dimensions, the dimensions (three words at least, even where there are fewer), the
    values; everything little-endian.
    """
    data = unpack(path.read_bytes(), str(path))
    head = np.frombuffer(data[: min(len(data), 8) // 4 * 4], "<u4")
    magic = int(head[0]) if len(head) else 0
    dtype = DTYPES.get(magic & 0xFF)
    if magic >> 8 != 0x1E3D4C or dtype is None:
        raise ValueError(
            f"{path}: expected a NORB matrix with magic number 0x1E3D4C55 or its like, found 0x{magic:08X}"
        )
    dims = int(head[1]) if len(head) > 1 else 0
    start = 8 + 4 * max(dims, 3)
    if not 1 <= dims <= 8 or len(data) < start:
        raise ValueError(f"{path}: expected a header with 1 to 8 dimensions, found {dims} in {len(data)} bytes")
    shape = tuple(int(n) for n in np.frombuffer(data, "<u4", dims, 8))
    expected = start + math.prod(shape) * np.dtype(dtype).itemsize
    if len(data) != expected:
        raise ValueError(
            f"{path}: expected {expected:,} bytes for shape {'x'.join(map(str, shape))}, found {len(data):,}"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape)


def _rows(split: str, objects: NDArray[np.int64], source: Path) -> NDArray[np.intp]:
    """Which rows belong to the split; an object goes to one side as a whole."""
    if split in ("test", "train+validation"):
        return np.arange(len(objects))
    held_out = objects.max()
    if objects.min() == held_out:
        raise ValueError(f"{source}: expected several objects, to hold one out, found only object {held_out}")
    return np.flatnonzero((objects == held_out) == (split == "validation"))


def shrink(pixels: NDArray[np.uint8], rows: NDArray[np.intp], cameras: slice, size: int) -> NDArray[np.uint8]:
    """Average over areas: each new pixel is the mean of the square it covers, rounded. 96 to 48 are plain 2x2 means.

    Shapes: pixels (N, 2, H, W), rows (M,) -> (M, C, size, size)
    """
    side = pixels.shape[-1]
    if size == side:
        return pixels[rows, cameras]
    edges = np.linspace(0, side, size + 1)
    left = np.arange(side)
    overlap = np.minimum(edges[1:, None], left + 1) - np.maximum(edges[:-1, None], left)  # (size, W)
    weights = (overlap.clip(0) * (size / side)).astype(np.float32)
    chosen = pixels[:, cameras]
    result = np.empty((len(rows), chosen.shape[1], size, size), np.uint8)
    for start in range(0, len(rows), 512):  # in floats, the whole file would need gigabytes
        part = chosen[rows[start : start + 512]].astype(np.float32)
        result[start : start + 512] = np.rint(weights @ part @ weights.T)
    return result
