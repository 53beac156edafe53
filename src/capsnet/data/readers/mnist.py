"""MNIST, bundled or from a folder of IDX files.

Unpacking the bundled xz files takes about a second, so the plain bytes are stored in the user's cache folder. A file in
the cache is used only if it has MNIST's published SHA-256.
"""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capsnet._files import cache_dir, store
from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset
from capsnet.data.readers.idx import decode_idx, idx_dataset, read_idx, unpack
from capsnet.data.splits import SPLITS

SHA256 = {  # of the uncompressed files
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@register(
    "mnist",
    "Handwritten digits, 28x28: 50,000 train, 10,000 validation, 10,000 test (bundled)",
    SPLITS,
    source="bundled",
    gallery="mnist",
    objects=1,
    environment="CAPSNET_DATA",
)
def mnist(
    split: str = "train",
    path: str | Path | None = None,
    *,
    per_class: Annotated[int, Field(ge=1)] | None = None,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> ArrayDataset:
    """Load one split of MNIST, or of any other IDX data set from the folder ``path`` (or CAPSNET_DATA).

    ``per_class`` keeps that many images of each class for training, drawn by ``seed``; other splits stay whole.
    """
    dataset = idx_dataset("mnist", split, path, environment="CAPSNET_DATA", style="digit", published=_bundled)
    if per_class is None or not split.startswith("train"):
        return dataset
    return dataset.subset(_few(dataset.targets, per_class, seed, dataset.name), name=dataset.name)


def _few(labels: NDArray, per_class: int, seed: int, name: str) -> NDArray[np.int64]:
    """The first ``per_class`` of each class in a random order: a larger number includes the images of a smaller one."""
    order = keyed.permutation(seed, 0, len(labels), "mnist.few")
    chosen = [order[labels[order] == label][:per_class] for label in range(int(labels.max()) + 1)]
    if (least := min(map(len, chosen))) < per_class:
        raise ValueError(f"{name} has only {least} images of some class, per_class asks for {per_class}")
    return np.sort(np.concatenate(chosen))


def _bundled(part: str) -> tuple[NDArray, NDArray]:
    return _bundled_file(f"{part}-images-idx3-ubyte"), _bundled_file(f"{part}-labels-idx1-ubyte")


@lru_cache(maxsize=4)
def _bundled_file(name: str) -> NDArray:
    """One of the four arrays, from the cache if it is intact, else unpacked from the package."""
    cached = cache_dir() / "mnist" / name
    try:
        return read_idx(cached, sha256=SHA256[name])
    except (OSError, ValueError):  # missing, not readable, or damaged: make it again
        pass
    resource = files("capsnet.data").joinpath("mnist", f"{name}.xz")
    if not resource.is_file():  # deleted, because of their licence: see docs/licensing.md
        raise FileNotFoundError(
            f"this installation has no MNIST files ({resource} is missing): name a folder of yours, "
            "mnist:FOLDER or CAPSNET_DATA=FOLDER, or install capsnet again"
        )
    data = unpack(resource.read_bytes(), str(resource))
    array = decode_idx(data, str(resource), sha256=SHA256[name])
    store(cached, data)
    return array
