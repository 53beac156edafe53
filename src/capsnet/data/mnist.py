"""MNIST, from the package itself or from a user's own folder of IDX files.

The packaged files are xz-compressed; unpacking them takes about a second, so the plain bytes are kept in the user's
cache folder. The cached copy is the IDX file itself, and it is believed only if it has MNIST's published SHA-256,
exactly like the packaged one: there is no second format and no second kind of trust.

Splits: the last sixth of the training file is the validation split (MNIST: 50,000 and 10,000), so that model selection
never sees the test split.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capsnet._files import expanded
from capsnet._names import check_name

from . import keyed
from ._cache import cache_dir, store
from ._registry import register
from .base import ArrayDataset
from .idx import decode_idx, read_idx, unpack
from .preprocess import preprocess_for

SPLITS = ("train", "validation", "train+validation", "test")
SHA256 = {  # of the uncompressed files
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@register(
    "mnist",
    "Handwritten digits, 28x28: 50,000 train, 10,000 validation, 10,000 test (in the box)",
    SPLITS,
    source="bundled",
    gallery="mnist",
    objects=1,
    environment="CAPSNET_DATA",
)
def mnist(
    split: str = "train",
    root: str | Path | None = None,
    *,
    per_class: Annotated[int, Field(ge=1)] | None = None,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> ArrayDataset:
    """Load one split of MNIST, or of any other IDX set (Fashion-MNIST, your own) from the folder `root`.

    Without `root` the environment variable CAPSNET_DATA names the folder; without that, the packaged files are used.
    A folder holds the four files under their usual names, plain, .gz or .xz; images are (N, H, W) of any size.

    `per_class` keeps that many images of each class to learn from, drawn by `seed`; other splits stay whole.
    """
    check_name("split", split, SPLITS)
    folder = root if root is not None else os.environ.get("CAPSNET_DATA") or None
    part = "t10k" if split == "test" else "train"
    if folder is None:
        images, labels = _packaged(f"{part}-images-idx3-ubyte"), _packaged(f"{part}-labels-idx1-ubyte")
        classes = 10
    else:
        folder = expanded(folder)
        images, labels = _from_folder(folder, part)
        # the training labels say how many classes there are, whatever happens to occur in the other file
        classes = 1 + int((labels if part == "train" else _from_folder(folder, "train")[1]).max())
        if part == "train" and len(images) < 6:
            raise ValueError(f"{folder}: {len(images)} training images are too few: the validation split is a sixth")
        if int(labels.max()) >= classes:
            raise ValueError(
                f"{folder}: the test labels have class {labels.max()}, the training labels only 0 to {classes - 1}"
            )
    cut = len(images) - len(images) // 6
    rows = {"train": slice(0, cut), "validation": slice(cut, None)}.get(split, slice(None))
    names = tuple(str(j) for j in range(classes))
    digit = preprocess_for(images.shape[1:], 1, style="digit")
    dataset = ArrayDataset(images[rows, None], labels[rows], names, name=f"mnist {split}", preprocess=digit)
    if per_class is None or not split.startswith("train"):
        return dataset
    return dataset.subset(_few(dataset.targets, per_class, seed, dataset.name), name=dataset.name)


def _few(labels: NDArray, per_class: int, seed: int, name: str) -> NDArray[np.int64]:
    """The first `per_class` of each class in a random order: with more of them, the fewer are among the more."""
    order = keyed.permutation(seed, 0, len(labels), "mnist.few")
    chosen = [order[labels[order] == label][:per_class] for label in range(int(labels.max()) + 1)]
    if (least := min(map(len, chosen))) < per_class:
        raise ValueError(f"{name} has only {least} images of some class, per_class asks for {per_class}")
    return np.sort(np.concatenate(chosen))


@lru_cache(maxsize=4)
def _packaged(name: str) -> NDArray:
    """Return one of the four arrays, from the cache if it is there and intact, else unpacked from the package."""
    cached = cache_dir() / "mnist" / name
    try:
        return read_idx(cached, sha256=SHA256[name])
    except (OSError, ValueError):  # not there, not readable, or damaged: make it again
        pass
    resource = files("capsnet.data").joinpath("mnist", f"{name}.xz")
    data = unpack(resource.read_bytes(), str(resource))
    array = decode_idx(data, str(resource), sha256=SHA256[name])
    store(cached, data)
    return array


def _from_folder(folder: Path, part: str) -> tuple[NDArray, NDArray]:
    """Read a user's images and labels and see that they belong together; nothing else about them is assumed."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected a folder with IDX files, found {_what(folder)}")
    image_file, label_file = (_find(folder, f"{part}-{kind}") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    images, labels = _read_once(image_file, _stamp(image_file)), _read_once(label_file, _stamp(label_file))
    if images.ndim != 3 or images.dtype != np.uint8 or len(images) == 0:
        raise ValueError(f"{image_file}: expected uint8 images (N, H, W), found {images.dtype} of shape {images.shape}")
    if labels.ndim != 1 or labels.dtype != np.uint8 or len(labels) != len(images):
        raise ValueError(
            f"{label_file}: expected {len(images):,} uint8 labels, found {labels.dtype} of shape {labels.shape}"
        )
    return images, labels


def _find(folder: Path, name: str) -> Path:
    """Find a file under its usual names: `train-images-idx3-ubyte` or `train-images.idx3-ubyte`, plain, .gz or .xz."""
    stems = (name, name.replace("-idx", ".idx"))
    for candidate in (folder / f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz", ".xz")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{folder}: expected the file {name} (plain, .gz or .xz), found {_what(folder)}")


def _what(path: Path) -> str:
    if not path.exists():
        return "nothing"
    if not path.is_dir():
        return "a file"
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return "an empty folder"
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _stamp(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_mtime_ns, info.st_size


@lru_cache(maxsize=8)
def _read_once(path: Path, stamp: tuple[int, int]) -> NDArray:
    """Read a file once per process; `stamp` makes a file that was rewritten a different one."""
    return read_idx(path)
