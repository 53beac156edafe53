"""Data: arrays in, batches out. Knows nothing of models.

`load("mnist", "train")` gives a `Dataset`, `batches(dataset, 128, shuffle=True, augment=Augment(shift=2))` an epoch.
"""

from ._registry import canonical, describe, list_datasets, load, register, splits_of
from .augment import Augment
from .base import ArrayDataset, Batch, BatchTransform, Dataset, batch_indices, batches, num_batches
from .idx import read_idx
from .mnist import mnist
from .preprocess import Preprocess

__all__ = [
    "ArrayDataset",
    "Augment",
    "Batch",
    "BatchTransform",
    "Dataset",
    "Preprocess",
    "batch_indices",
    "batches",
    "canonical",
    "describe",
    "list_datasets",
    "load",
    "mnist",
    "num_batches",
    "read_idx",
    "register",
    "splits_of",
]
