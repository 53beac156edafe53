"""Data sets as batches of tensors.

``load("mnist", "train")`` gives a ``Dataset``, ``batches(dataset, 128, shuffle=True)`` the batches of an epoch.
"""

from typing import TYPE_CHECKING

from capsnet._lazy import lazy
from capsnet.data.augment import Augment

if TYPE_CHECKING:
    from capsnet.data._adapt import adapt
    from capsnet.data._frame import stroke_width
    from capsnet.data._given import Given, given, given_folds, split_off
    from capsnet.data._pixels import MOST_BYTES, NotAnImage, open_image
    from capsnet.data._registry import (
        DatasetInfo,
        canonical,
        describe,
        info,
        is_given,
        list_datasets,
        load,
        options_of,
        path_of,
        register,
        with_options,
    )
    from capsnet.data.base import (
        ArrayDataset,
        Batch,
        BatchTransform,
        Dataset,
        Singles,
        Sources,
        Subset,
        batch_indices,
        batches,
        num_batches,
    )
    from capsnet.data.folders._listing import images_in
    from capsnet.data.folders.loader import FolderDataset, folder, image_files
    from capsnet.data.generated.corrupted import Corrupted, corrupted_mnist
    from capsnet.data.generated.multimnist import Pairs, multimnist
    from capsnet.data.generated.outlines import Outlines, outlines, owners
    from capsnet.data.generated.sentences import Sentences, sentences
    from capsnet.data.generated.shapes import Shapes, shapes
    from capsnet.data.generated.transformed import Transformed, affnist, expanded_mnist
    from capsnet.data.preprocess import Preprocess, preprocess_for
    from capsnet.data.readers.cifar import cifar10
    from capsnet.data.readers.download import Remote, find_or_fetch
    from capsnet.data.readers.fashion import fashion_mnist
    from capsnet.data.readers.idx import fetch_idx, idx_dataset, read_idx
    from capsnet.data.readers.mat5 import read_mat
    from capsnet.data.readers.mnist import mnist
    from capsnet.data.readers.norb import small_norb
    from capsnet.data.readers.svhn import svhn
    from capsnet.data.splits import SPLITS
    from capsnet.data.words import Words
else:  # at run time they are imported when the first one is used
    __getattr__, __dir__ = lazy(
        __name__,
        "_adapt _frame _given _pixels _registry base folders._listing folders.loader generated.corrupted "
        "generated.multimnist generated.outlines generated.sentences generated.shapes generated.transformed "
        "preprocess readers.cifar readers.download readers.fashion readers.idx readers.mat5 readers.mnist "
        "readers.norb readers.svhn splits words",
    )

__all__ = [
    "MOST_BYTES",
    "SPLITS",
    "ArrayDataset",
    "Augment",
    "Batch",
    "BatchTransform",
    "Corrupted",
    "Dataset",
    "DatasetInfo",
    "FolderDataset",
    "Given",
    "NotAnImage",
    "Outlines",
    "Pairs",
    "Preprocess",
    "Remote",
    "Sentences",
    "Shapes",
    "Singles",
    "Sources",
    "Subset",
    "Transformed",
    "Words",
    "adapt",
    "affnist",
    "batch_indices",
    "batches",
    "canonical",
    "cifar10",
    "corrupted_mnist",
    "describe",
    "expanded_mnist",
    "fashion_mnist",
    "fetch_idx",
    "find_or_fetch",
    "folder",
    "given",
    "given_folds",
    "idx_dataset",
    "image_files",
    "images_in",
    "info",
    "is_given",
    "list_datasets",
    "load",
    "mnist",
    "multimnist",
    "num_batches",
    "open_image",
    "options_of",
    "outlines",
    "owners",
    "path_of",
    "preprocess_for",
    "read_idx",
    "read_mat",
    "register",
    "sentences",
    "shapes",
    "small_norb",
    "split_off",
    "stroke_width",
    "svhn",
    "with_options",
]
