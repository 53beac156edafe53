"""Routings that sharpen during training.

A routing is immutable, and ``routing.at(progress)`` is what it is at a point of training. A training step uses that
one; before and after the step the layers have the routing itself. So validation, checkpoints, averaged weights and
exports know the final routing only, and a resumed run needs nothing but the number of its next step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from capsnet.models import Model


@contextmanager
def routing_at(model: Model, progress: float) -> Iterator[None]:
    """Inside the block the layers of the model route as they do at ``progress`` in [0, 1] of training."""
    layers: list[Any] = list(model.routed_layers().values())
    final = [layer.routing for layer in layers]
    try:
        for layer, routing in zip(layers, final, strict=True):
            layer.routing = routing.at(progress)
        yield
    finally:
        for layer, routing in zip(layers, final, strict=True):
            layer.routing = routing
