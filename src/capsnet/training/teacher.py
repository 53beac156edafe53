"""A trained model as a teacher: the network learns to give the same lengths, besides its own objective.

Hinton, Vinyals, Dean, *Distilling the Knowledge in a Neural Network*, 2015 (arXiv 1503.02531). A teacher's lengths say
more than a label: how present the other classes are, and that a picture can hardly be read. Lengths are not
probabilities over the classes, so the distance is the squared error:

    loss = the network's own + teacher_weight * sum_j (|v_j| - |t_j|)^2
"""

from collections.abc import Callable

import torch
from torch import Tensor

from capsnet.models import Model
from capsnet.training.config import TrainConfig
from capsnet.weights import load

Teacher = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) -> lengths (B, J). A function, not a module: its weights are not trained, saved or averaged."""


def load_teacher(config: TrainConfig, model: Model) -> Teacher | None:
    """The teacher of a configuration, on the device of ``model``; ``ValueError`` if the two do not fit together."""
    if config.teacher is None:
        return None
    teacher = load(config.teacher)
    for what, own, other in (
        ("kind of input", *("texts" if m.takes_texts else "pictures" for m in (model, teacher))),
        ("image size", model.image_size, teacher.image_size),
        ("channels", model.in_channels, teacher.in_channels),
        ("classes", list(model.class_names), list(teacher.class_names)),
    ):
        if own != other:
            raise ValueError(
                f"the teacher {config.teacher} and the network must agree in {what}: the network has {own}, the "
                f"teacher {other}"
            )
    teacher.to(next(model.parameters()).device).requires_grad_(False).eval()

    def lengths(images: Tensor) -> Tensor:
        with torch.no_grad():
            return teacher(images).lengths.float()

    return lengths


def distance(lengths: Tensor, taught: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean over the examples of the squared distance. Shapes: (B, J), (B, J), weights (B,) or None -> scalar"""
    squared = (lengths - taught).square().sum(dim=1)
    return (squared if weights is None else squared * weights).mean()
