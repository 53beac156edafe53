"""Weights for unequal classes, so that rare classes are not ignored."""

import torch
from torch import Tensor

from capsnet import data
from capsnet.data import Dataset
from capsnet.functional import multi_hot


def class_weights(training: Dataset) -> Tensor:
    """The weight of an example of each class: inversely proportional to their number, 1 on average over the examples.

    With N examples of J classes, n_j of class j: N / (J n_j), so that each class has the same total weight in the loss.
    It is 0 for a class without examples.

    Shapes: -> (J,)
    """
    counts = torch.zeros(training.num_classes)
    for batch in data.batches(training, 1000):
        counts += multi_hot(batch.targets, training.num_classes).sum(dim=0)
    occurs = counts > 0
    return torch.where(occurs, counts.sum() / (occurs.sum() * counts.clamp_min(1)), torch.zeros_like(counts))


def example_weights(weights: Tensor, targets: Tensor) -> Tensor:
    """The weight of each example: its class's, the mean over its classes if it has several, 1 if it has none.

    Shapes: weights (J,), targets (B,) or (B, J) multi-hot -> (B,)
    """
    labels = multi_hot(targets, len(weights)).to(weights.dtype)  # (B, J)
    count = labels.sum(dim=1)
    return torch.where(count > 0, labels @ weights / count.clamp_min(1), torch.ones_like(count))
