"""The IDX format of MNIST and its successors: a four-byte magic number, the dimensions, then the values, big-endian.

Every length is checked before anything is interpreted. ``idx_dataset`` loads any data set in four such files.
"""

import gzip
import hashlib
import lzma
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from capsnet._names import check_name
from capsnet.data.base import ArrayDataset
from capsnet.data.preprocess import preprocess_for
from capsnet.data.readers.download import Remote, contents_of, find_or_fetch, named_folder
from capsnet.data.splits import SPLITS, rows_of

DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def idx_dataset(
    name: str,
    split: str,
    path: str | Path | None = None,
    *,
    environment: str | None = None,
    class_names: Sequence[str] | None = None,
    style: Literal["digit", "plain"] = "plain",
    published: Callable[[str], tuple[NDArray, NDArray]] | None = None,
) -> ArrayDataset:
    """Load one split of a data set in four IDX files, named as MNIST's: train-images-idx3-ubyte and so on.

    A folder holds them plain, .gz or .xz; images are (N, H, W) of any size. The last sixth of the training file is the
    validation split.

    Args:
        path: the folder with the files; else the environment variable ``environment`` may name it.
        class_names: None numbers the classes by the training labels.
        style: how other pictures become inputs, see ``Preprocess``.
        published: gives the images (N, H, W) and labels (N,) of the part "train" or "t10k" if no folder is named, such
            as ``fetch_idx``.
    """
    check_name("split", split, SPLITS)
    read, source = published, named_folder(path, environment) or name
    if isinstance(source, Path):
        read = partial(_from_folder, source)
    if read is None:
        raise ValueError(f"{name} needs the path of a folder with IDX files: write {name}:PATH")
    images, labels = read("t10k" if split == "test" else "train")
    rows = rows_of(split, len(images), 6, source)
    if class_names is None:  # the number of classes is that of the training file, in all splits
        training = read("train")[1] if split == "test" else labels
        class_names = [str(j) for j in range(1 + int(training.max()))]
    if int(labels.max()) >= len(class_names):
        raise ValueError(f"{source}: expected labels 0 to {len(class_names) - 1}, found {labels.max()}")
    prepare = preprocess_for(images.shape[1:], 1, style)
    return ArrayDataset(images[rows, None], labels[rows], class_names, name=f"{name} {split}", preprocess=prepare)


def fetch_idx(
    name: str,
    part: str,
    files: Mapping[str, Remote],
    *,
    sha256: Mapping[str, str] | None = None,
    places: Sequence[Path] = (),
) -> tuple[NDArray, NDArray]:
    """Find or download the images and labels of a part, "train" or "t10k".

    ``files`` are the published .gz files by name; ``sha256`` the hashes of their uncompressed contents, if known;
    ``places`` are searched first.
    """
    stems = [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]
    paths = find_or_fetch(name, {f"{stem}.gz": files[f"{stem}.gz"] for stem in stems}, None, places)
    images, labels = (read_idx(paths[f"{stem}.gz"], sha256=(sha256 or {}).get(stem)) for stem in stems)
    return images, labels


def _from_folder(folder: Path, part: str) -> tuple[NDArray, NDArray]:
    """Read images and labels and check that they fit together."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected a folder with IDX files, found {contents_of(folder)}")
    image_file, label_file = (_find(folder, f"{part}-{kind}") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    images, labels = (
        _read_once(file, file.stat().st_mtime_ns, file.stat().st_size) for file in (image_file, label_file)
    )
    if images.ndim != 3 or images.dtype != np.uint8 or len(images) == 0:
        raise ValueError(f"{image_file}: expected uint8 images (N, H, W), found {images.dtype} of shape {images.shape}")
    if labels.ndim != 1 or labels.dtype != np.uint8 or len(labels) != len(images):
        raise ValueError(
            f"{label_file}: expected {len(images):,} uint8 labels, found {labels.dtype} of shape {labels.shape}"
        )
    return images, labels


def _find(folder: Path, name: str) -> Path:
    """Find a file, plain, .gz or .xz, as train-images-idx3-ubyte or as train-images.idx3-ubyte."""
    stems = (name, name.replace("-idx", ".idx"))
    for candidate in (folder / f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz", ".xz")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{folder}: expected the file {name} (plain, .gz or .xz), found {contents_of(folder)}")


@lru_cache(maxsize=8)
def _read_once(path: Path, modified: int, size: int) -> NDArray:
    """Read a file once per process, and again if it was rewritten."""
    return read_idx(path)


def read_idx(path: str | Path, *, sha256: str | None = None) -> NDArray:
    """Read an IDX file, plain or compressed with gzip or xz (recognised by content, not by name).

    ``sha256`` is the expected hash of the uncompressed bytes. The array is read-only: it is a view of what was read.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected an IDX file, found {'a folder' if path.is_dir() else 'nothing'}")
    return decode_idx(unpack(path.read_bytes(), str(path)), str(path), sha256=sha256)


def unpack(data: bytes, source: str) -> bytes:
    """Decompress gzip or xz; anything else is taken to be plain."""
    if data.startswith(b"\x1f\x8b"):
        kind, decompress = "gzip", gzip.decompress
    elif data.startswith(b"\xfd7zXZ\x00"):
        kind, decompress = "xz", lzma.decompress
    else:
        return data
    try:
        return decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{source}: expected a complete {kind} file, found {len(data):,} bytes that do not decompress ({error})"
        ) from error


def decode_idx(data: bytes, source: str, *, sha256: str | None = None) -> NDArray:
    """Interpret uncompressed IDX bytes; ``source`` is the name that errors mention."""
    if len(data) < 4:
        raise ValueError(f"{source}: expected an IDX header of at least 4 bytes, found {len(data)} bytes")
    zeros, code, dims = data[:2], data[2], data[3]
    if zeros != b"\x00\x00" or code not in DTYPES or not 1 <= dims <= 8:
        raise ValueError(
            f"{source}: expected an IDX magic number (00 00, a type code such as 08, the number of dimensions), "
            f"found {data[:4].hex(' ')}"
        )
    start = 4 + 4 * dims
    if len(data) < start:
        raise ValueError(f"{source}: expected a header of {start} bytes for {dims} dimensions, found {len(data)} bytes")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dims, 4))
    dtype = np.dtype(DTYPES[code])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise ValueError(
            f"{source}: expected {expected:,} bytes for shape {'x'.join(map(str, shape))}, found {len(data):,}"
        )
    if sha256 is not None and (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise ValueError(f"{source}: expected SHA-256 {sha256} (uncompressed), found {digest}")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return array if dtype.itemsize == 1 else array.astype(dtype.newbyteorder("="))
