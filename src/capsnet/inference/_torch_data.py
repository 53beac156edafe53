"""Batches from PyTorch's data sets and loaders."""

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset

from capsnet.data import Batch
from capsnet.inference.prediction import as_inputs, preprocessing_of
from capsnet.models import Model


def torch_batches(model: Model, source: Any, batch_size: int) -> tuple[Iterator[Batch], int | None]:
    """The batches of a torch ``Dataset``, a ``DataLoader`` or a sequence of (image, label), and how many there are.

    An image is a tensor or array (C, H, W), or (H, W) for one channel, float in [0, 1] or uint8, or a Pillow image,
    which is preprocessed; for a model of texts it is word numbers (L,). A label is a class number, or multi-hot (J,).
    """
    if not isinstance(source, DataLoader):
        if not isinstance(source, IterableDataset) and not (
            hasattr(source, "__getitem__") and hasattr(source, "__len__")
        ):
            kinds = "a data set or its name, a torch Dataset, a DataLoader, or a sequence of (image, label)"
            raise ValueError(f"evaluate takes {kinds}, got {type(source).__name__}")
        source = DataLoader(source, batch_size, collate_fn=lambda examples: _collate(model, examples))
    total = len(source) if isinstance(source.dataset, Sized) else None
    return _batches(model, source), total


def _batches(model: Model, loader: DataLoader) -> Iterator[Batch]:
    count = 0
    for batch in loader:
        images, targets = map(torch.as_tensor, _pair(batch))
        images = as_inputs(model, images)
        yield Batch(images, targets, torch.arange(count, count + len(images)))
        count += len(images)
    if not count:
        raise ValueError("the data set is empty")


def _collate(model: Model, examples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    images, labels = zip(*map(_pair, examples), strict=True)
    if any(isinstance(image, Image.Image) for image in images):
        images = map(preprocessing_of(model), images)
    images = [torch.as_tensor(image) for image in images]
    if not model.takes_texts and len({image.shape for image in images}) > 1:
        raise ValueError(f"images must have one size, got {tuple(images[0].shape)} and others: resize them first")
    return pad_sequence(images, batch_first=True), torch.from_numpy(np.stack([np.asarray(label) for label in labels]))


def _pair(example: Any) -> Any:
    if isinstance(example, list | tuple) and len(example) == 2:
        return example
    kind = f"{len(example)} values" if isinstance(example, list | tuple) else type(example).__name__
    raise ValueError(f"an example must be a pair (image, label), got {kind}")
