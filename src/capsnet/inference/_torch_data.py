"""PyTorch's own data sets and loaders as batches that a model takes."""

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

    An image is a tensor or array (C, H, W), or (H, W) for one channel, float in [0, 1] or uint8; a Pillow image goes
    through the model's preprocessing. To a model of texts give word numbers (L,). A label is a class number, or
    multi-hot (J,).
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
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ValueError(f"an example must be a pair (image, label), got {_kind(batch)}")
        images, targets = as_inputs(model, torch.as_tensor(batch[0])), torch.as_tensor(batch[1])
        if len(images) != len(targets):
            raise ValueError(f"a batch has {len(images)} images and {len(targets)} labels")
        yield Batch(images, targets, torch.arange(count, count + len(images)))
        count += len(images)
    if not count:
        raise ValueError("the data set is empty")


def _collate(model: Model, examples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    for example in examples:
        if not isinstance(example, list | tuple) or len(example) != 2:
            raise ValueError(f"an example must be a pair (image, label), got {_kind(example)}")
    prepare = preprocessing_of(model) if any(isinstance(image, Image.Image) for image, _ in examples) else None
    images = [
        torch.as_tensor(prepare(image) if prepare and isinstance(image, Image.Image) else image)
        for image, _ in examples
    ]
    if model.takes_texts:
        inputs = pad_sequence(images, batch_first=True)
    elif len({image.shape for image in images}) > 1:
        raise ValueError(f"images must have one size, got {tuple(images[0].shape)} and others: resize them first")
    else:
        inputs = torch.stack(images)
    return inputs, torch.from_numpy(np.stack([np.asarray(label) for _, label in examples]))


def _kind(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list | tuple) else type(value).__name__
