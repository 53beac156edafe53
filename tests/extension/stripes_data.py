"""A data set from outside the package: horizontal and vertical stripes, generated from their index."""

import numpy as np

from capsnet import data
from capsnet.data import ArrayDataset

SPLITS = {"train": 64, "validation": 32, "test": 32}


@data.register(
    "stripes",
    "Stripes, 20x20 grey: two classes, generated",
    tuple(SPLITS),
    path="none",
    source="generated",
    gallery="stripes",
    objects=1,
)
def stripes(split: str = "train", *, noise: float = 0.1) -> ArrayDataset:
    """Class 0 is horizontal, class 1 vertical; each picture has noise of its own."""
    generator = np.random.default_rng([list(SPLITS).index(split), 7])
    targets = np.arange(SPLITS[split]) % 2
    rows = (np.arange(20) // 3 % 2).astype(np.float32)
    images = np.where(targets[:, None, None] == 1, rows[None, None, :], rows[None, :, None])
    images = (0.8 * images + noise * generator.random((len(targets), 20, 20))).clip(0, 1).astype(np.float32)
    return ArrayDataset(images[:, None], targets.astype(np.int64), ("horizontal", "vertical"), name=f"stripes {split}")
