"""The features of the latest pictures, computed once for all panels.

After a stroke several panels ask about the same picture with different routings. The layers before the routing take
most of a forward pass and give each of them the same answer.
"""

import threading
import time
from collections import OrderedDict
from typing import Any

from torch import Tensor

from capsnet.models import Model, Output

KEPT = 32  # pictures of each model


class Features:
    """The output of ``model.forward_features`` for the latest pictures, with the seconds it took."""

    def __init__(self, model: Model) -> None:
        self.model = model
        # with several routed layers the features depend on the routing too
        self.shared = hasattr(model, "forward_head") and len(model.routed_layers()) == 1
        self._kept: OrderedDict[tuple[bytes, int], tuple[Any, float]] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, rerouted: Model, image: Tensor, trace: bool = False) -> tuple[Output, float]:
        """The output of ``rerouted``, a copy of the model with any routing, and the seconds of a whole pass."""
        features, before = self.of(image) if self.shared else (None, 0.0)
        start = time.perf_counter()
        head: Any = rerouted
        output = rerouted(image, trace=trace) if features is None else head.forward_head(features, trace=trace)
        return output, before + time.perf_counter() - start

    def of(self, image: Tensor) -> tuple[Any, float]:
        """The features of a picture (1, C, H, W), and the seconds that computing them took."""
        versions = [p._version for p in self.model.parameters() if not p.is_inference()]  # grow when weights change
        key = image.numpy().tobytes(), sum(versions)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        start = time.perf_counter()
        features = self.model.forward_features(image)
        result = features, time.perf_counter() - start
        with self._lock:
            self._kept[key] = result
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return result
