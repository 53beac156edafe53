"""Data: arrays in, batches out. Knows nothing of models.

`load("mnist", "train")` gives a `Dataset`, `batches(dataset, 128, shuffle=True, augment=Augment(shift=2))` an epoch.
"""

from ._listing import images_in
from ._pixels import NotAnImage, open_image
from ._registry import (
    DatasetInfo,
    canonical,
    describe,
    info,
    list_datasets,
    load,
    options_of,
    path_of,
    register,
    splits_of,
    with_options,
)
from .augment import Augment
from .base import ArrayDataset, Batch, BatchTransform, Dataset, Sources, Subset, batch_indices, batches, num_batches
from .cifar import cifar10
from .fashion import fashion_mnist
from .folder import FolderDataset, folder
from .idx import read_idx
from .mat5 import read_mat
from .mnist import mnist
from .multimnist import multimnist
from .norb import small_norb
from .preprocess import Preprocess, preprocess_for
from .sentences import Sentences, sentences
from .shapes import shapes
from .svhn import svhn
from .transformed import affnist, expanded_mnist
from .words import Words

__all__ = [
    "ArrayDataset",
    "Augment",
    "Batch",
    "BatchTransform",
    "Dataset",
    "DatasetInfo",
    "FolderDataset",
    "NotAnImage",
    "Preprocess",
    "Sentences",
    "Sources",
    "Subset",
    "Words",
    "affnist",
    "batch_indices",
    "batches",
    "canonical",
    "cifar10",
    "describe",
    "expanded_mnist",
    "fashion_mnist",
    "folder",
    "images_in",
    "info",
    "list_datasets",
    "load",
    "mnist",
    "multimnist",
    "num_batches",
    "open_image",
    "options_of",
    "path_of",
    "preprocess_for",
    "read_idx",
    "read_mat",
    "register",
    "sentences",
    "shapes",
    "small_norb",
    "splits_of",
    "svhn",
    "with_options",
]
