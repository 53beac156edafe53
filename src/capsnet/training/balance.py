"""Weights for unequal classes: a class of 20 images among 400 should not be learnt away."""

import torch
from torch import Tensor

from capsnet import data
from capsnet.data import Dataset
from capsnet.functional import multi_hot


def class_weights(training: Dataset) -> Tensor:
    """How much an example of each class counts: inversely to how many there are, 1 on average over the examples.

    With N examples of J classes, n_j of class j: N / (J n_j), so that each class has the same share of the loss. A
    class without any example weighs nothing.

    Shapes: -> (J,)
    """
    counts = torch.zeros(training.num_classes)
    for batch in data.batches(training, 1000):
        counts += multi_hot(batch.targets, training.num_classes).sum(dim=0)
    there = counts > 0
    return torch.where(there, counts.sum() / (there.sum() * counts.clamp_min(1)), torch.zeros_like(counts))


def example_weights(weights: Tensor, targets: Tensor) -> Tensor:
    """The weight of each example: its class's, the mean over its classes if it has several, 1 if it has none.

    Shapes: weights (J,), targets (B,) or (B, J) multi-hot -> (B,)
    """
    here = multi_hot(targets, len(weights)).to(weights.dtype)  # (B, J)
    several = here.sum(dim=1)
    return torch.where(several > 0, here @ weights / several.clamp_min(1), torch.ones_like(several))
