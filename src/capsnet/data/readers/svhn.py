"""SVHN (Netzer et al. 2011): house numbers from street photographs, cropped to one digit, 32 x 32 in colour.

Splits: the last sixth of the training file is the validation split (12,209 of 73,257 digits), as for MNIST. The file
goes through the photographs in order, so at most one house number has digits on both sides of the cut.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capsnet._names import check_name
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset
from capsnet.data.readers.download import Remote, find_or_fetch, named_folder
from capsnet.data.readers.mat5 import read_mat
from capsnet.data.splits import SPLITS, rows_of

HOME = "http://ufldl.stanford.edu/housenumbers/"
FILES = {
    "train_32x32.mat": Remote((f"{HOME}train_32x32.mat",), "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
    "test_32x32.mat": Remote((f"{HOME}test_32x32.mat",), "md5:eb5a983be6a315427106f1b164d9cef3"),
}


@register(
    "svhn",
    "House numbers, 32x32 in colour: 61,048 train, 12,209 validation, 26,032 test (downloaded, 246 MB)",
    SPLITS,
    source="download",
    objects=1,
    environment="CAPSNET_SVHN",
)
def svhn(split: str = "train", path: str | Path | None = None) -> ArrayDataset:
    """Load one split from the folder ``path`` (or CAPSNET_SVHN) with the two .mat files, or fetch it."""
    check_name("split", split, SPLITS)
    name = "test_32x32.mat" if split == "test" else "train_32x32.mat"
    file = find_or_fetch("svhn", {name: FILES[name]}, named_folder(path, "CAPSNET_SVHN"))[name]
    images, labels = read_svhn(file)
    rows = rows_of(split, len(images), 6, file)
    return ArrayDataset(images[rows], labels[rows], tuple("0123456789"), name=f"svhn {split}")


def read_svhn(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read images and labels; MATLAB counts from one, so the file calls the digit 0 "10".

    Shapes: -> (N, 3, 32, 32), (N,)
    """
    variables = read_mat(path)
    pixels, digits = (_array(variables, name, path) for name in ("X", "y"))
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3] == 0:
        raise ValueError(
            f"{path}: expected X as uint8 of shape (32, 32, 3, N), found {pixels.dtype} of shape {pixels.shape}"
        )
    count = pixels.shape[3]
    labels = digits.ravel().astype(np.int64)
    if digits.shape not in ((count, 1), (1, count)) or (labels != digits.ravel()).any():
        raise ValueError(f"{path}: expected y as {count:,} whole numbers, found {digits.dtype} of {digits.shape}")
    if labels.min() < 1 or labels.max() > 10:
        raise ValueError(f"{path}: expected labels 1 to 10 (10 is the digit 0), found {labels.min()} to {labels.max()}")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))  # (N, 3, 32, 32)
    return images, labels % 10


def _array(variables: dict[str, Any], name: str, path: Path) -> NDArray[Any]:
    value = variables.get(name)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        raise ValueError(f"{path}: expected the arrays X and y, found {', '.join(variables)}")
    return value
