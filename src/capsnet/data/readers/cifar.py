"""CIFAR-10 (Krizhevsky 2009): ten kinds of things in colour, 32 x 32, from the *binary* version of the data set.

Not from the Python version: loading its pickles would run code. The archive is not unpacked on the disk. The last fifth
of the training images is the validation split, which is exactly data_batch_5 (10,000 images).
"""

import io
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capsnet._names import check_name
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset
from capsnet.data.readers.download import Remote, contents_of, find_or_fetch, named_folder
from capsnet.data.readers.idx import unpack
from capsnet.data.splits import SPLITS, rows_of

ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
FILES = {
    ARCHIVE: Remote(
        (f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}", f"https://cave.cs.toronto.edu/kriz/{ARCHIVE}"),
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
    )
}
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * 32 * 32  # a label, then a plane of red, of green and of blue, row by row


@register(
    "cifar10",
    "Ten kinds of things, 32x32 in colour: 40,000 train, 10,000 validation, 10,000 test (downloaded, 170 MB)",
    SPLITS,
    source="download",
    objects=1,
    environment="CAPSNET_CIFAR10",
)
def cifar10(split: str = "train", path: str | Path | None = None) -> ArrayDataset:
    """Load one split from ``path`` (or CAPSNET_CIFAR10), or fetch the archive.

    ``path`` is the folder cifar-10-batches-bin, the folder that holds it or the archive, or the archive itself.
    """
    check_name("split", split, SPLITS)
    names = TEST if split == "test" else TRAIN
    source = _source(named_folder(path, "CAPSNET_CIFAR10"), names)
    batches = [decode_batch(data, f"{source}: {name}") for name, data in _contents(source, names)]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    rows = rows_of(split, len(images), 5, source)
    return ArrayDataset(images[rows], labels[rows], CLASS_NAMES, name=f"cifar10 {split}")


def decode_batch(data: bytes, source: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Interpret the bytes of one batch file. Shapes: -> (N, 3, 32, 32), (N,)"""
    if not data or len(data) % RECORD:
        raise ValueError(f"{source}: expected records of {RECORD:,} bytes, found {len(data):,} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)  # (N, 3073)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise ValueError(f"{source}: expected labels 0 to 9, found {labels.max()}: this is not a CIFAR-10 batch")
    return records[:, 1:].reshape(-1, 3, 32, 32), labels


def _source(folder: Path | None, names: tuple[str, ...]) -> Path:
    """The folder with the batch files, or else the archive."""
    if folder is None:
        return find_or_fetch("cifar10", FILES, None)[ARCHIVE]
    if folder.is_file():
        return folder
    for candidate in (folder, folder / FOLDER):
        if all((candidate / name).is_file() for name in names):
            return candidate
    if (folder / ARCHIVE).is_file():
        return folder / ARCHIVE
    raise FileNotFoundError(
        f"{folder}: expected {', '.join(names)} (there or in {FOLDER}) or {ARCHIVE}, found {contents_of(folder)}"
    )


def _contents(source: Path, names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    if source.is_dir():
        return [(name, (source / name).read_bytes()) for name in names]
    contents: dict[str, bytes] = {}
    plain = unpack(source.read_bytes(), str(source))  # all at once, which checks gzip's checksum
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and (file := archive.extractfile(member)) is not None:
                    contents[name] = file.read()
    except tarfile.TarError as error:
        raise ValueError(f"{source}: expected the complete archive {ARCHIVE}, found damage ({error})") from error
    if missing := [name for name in names if name not in contents]:
        raise ValueError(
            f"{source}: expected {', '.join(missing)} in the archive, found {', '.join(contents) or 'none'}"
        )
    return [(name, contents[name]) for name in names]
