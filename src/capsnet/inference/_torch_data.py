"""Batches from examples that people hold in Python: arrays, torch data sets and loaders, Hugging Face data sets."""

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset

from capsnet.data import Batch
from capsnet.data.labelled import as_array, as_picture, labelled, number_labels, pair_of
from capsnet.inference.prediction import as_inputs, preprocessing_of
from capsnet.models import Model


def torch_batches(model: Model, source: Any, batch_size: int) -> tuple[Iterator[Batch], int | None]:
    """The batches of a ``DataLoader``, a streamed torch data set, or what ``data.adapt`` takes, and how many they are.

    Unlike ``adapt`` it prepares pictures for the model and keeps no more than a batch. An image is a tensor or array
    (C, H, W), or (H, W) for one channel, float in [0, 1] or uint8, or a Pillow image, which is preprocessed; for a
    model of texts it is word numbers (L,). A label is a class number, the name of a class, or multi-hot (J,).
    """
    if not isinstance(source, DataLoader):
        if not isinstance(source, IterableDataset):
            source = labelled(source, "evaluate takes a name, a DataLoader,")
            if source.class_names not in (None, model.class_names):
                names = ", ".join(source.class_names or ())
                raise ValueError(f"the model knows the classes {', '.join(model.class_names)}, the data have {names}")
        source = DataLoader(source, batch_size, collate_fn=lambda examples: _collate(model, examples))  # type: ignore[arg-type]
    total = len(source) if isinstance(source.dataset, Sized) else None
    return _batches(model, source), total


def _batches(model: Model, loader: DataLoader) -> Iterator[Batch]:
    count = 0
    for batch in loader:
        images, labels = pair_of(batch)
        images, targets = as_inputs(model, torch.as_tensor(images)), labels
        if not isinstance(labels, Tensor):  # the loader leaves texts as a list
            targets = torch.from_numpy(number_labels(as_array(labels), model.class_names)[0])
        yield Batch(images, targets, torch.arange(count, count + len(images)))
        count += len(images)
    if not count:
        raise ValueError("the data set is empty")


def _collate(model: Model, examples: Sequence[Any]) -> tuple[Tensor, Tensor]:
    images, labels = zip(*map(pair_of, examples), strict=True)
    images = [as_picture(image) for image in images]
    if any(isinstance(image, Image.Image | str | bytes) for image in images):
        images = map(preprocessing_of(model), images)
    images = [torch.as_tensor(image) for image in images]
    if not model.takes_texts and len({image.shape for image in images}) > 1:
        raise ValueError(f"images must have one size, got {tuple(images[0].shape)} and others: resize them first")
    numbers, _ = number_labels(np.stack([as_array(label) for label in labels]), model.class_names)
    return pad_sequence(images, batch_first=True), torch.from_numpy(numbers)
