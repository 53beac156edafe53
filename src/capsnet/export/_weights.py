"""Weights of an ONNX graph in the smallest form that is exact: for files that a browser downloads.

A float16 weight is stored as its high and its low bytes apart: sign and exponent repeat, which gzip finds only if the
noise of the low bytes is not in between. Two tables and an addition give the same float32 numbers back, and runtimes
compute that once, when they load the file.
"""

from typing import Any

import numpy as np
from torch import Tensor, nn

SMALLEST = 1024  # numbers of a weight for which the tables and six nodes are worth it


class _ScaleAndShift(nn.BatchNorm2d):
    """BatchNorm at inference without the operator of that name, which the converter multiplies into the convolution
    before it: the product is no float16 number any more."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


def keep_norms_apart(module: nn.Module) -> None:
    """Keep the converter from changing the weights of convolutions before a BatchNorm. In place, for inference."""
    for part in module.modules():
        if type(part) is nn.BatchNorm2d and part.affine and part.track_running_stats:
            part.__class__ = _ScaleAndShift


def store_halves(graph: Any) -> None:
    """Store the weights that are float16 numbers in 16 bits, and compute them in 32 bits as before."""
    from onnx import TensorProto, helper, numpy_helper

    weights, nodes = [], []
    for weight in graph.initializer:
        values = numpy_helper.to_array(weight) if weight.data_type == TensorProto.FLOAT else np.empty(0)
        with np.errstate(over="ignore"):
            half = values.astype("<f2")
        if half.size < SMALLEST or not np.array_equal(half, values):
            weights.append(weight)
            continue
        name, pairs = weight.name, half.view(np.uint8).reshape(*half.shape, 2)
        for part, side in (("low", 0), ("high", 1)):
            weights.append(numpy_helper.from_array(np.ascontiguousarray(pairs[..., side]), f"{name}.{part}"))
        nodes += [
            helper.make_node("Cast", [f"{name}.low"], [f"{name}.count"], to=TensorProto.FLOAT),
            helper.make_node("Cast", [f"{name}.high"], [f"{name}.row"], to=TensorProto.INT32),
            helper.make_node("Gather", ["halves.first", f"{name}.row"], [f"{name}.first"]),
            helper.make_node("Gather", ["halves.step", f"{name}.row"], [f"{name}.step"]),
            helper.make_node("Mul", [f"{name}.count", f"{name}.step"], [f"{name}.rest"]),
            helper.make_node("Add", [f"{name}.first", f"{name}.rest"], [name]),
        ]
    if nodes:
        weights += [numpy_helper.from_array(table, f"halves.{name}") for name, table in _tables().items()]
    nodes += graph.node
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(weights)
    graph.node.extend(nodes)


def _tables() -> dict[str, np.ndarray]:
    """By high byte, the float16 number with the low byte 0, and the step from there to the next one."""
    high = np.arange(256, dtype=np.uint16) << 8
    first, second = high.view(np.float16).astype(np.float32), (high + 1).view(np.float16).astype(np.float32)
    finite = np.isfinite(first) & np.isfinite(second)
    return {
        "first": np.where(finite, first, 0),
        "step": np.subtract(second, first, where=finite, out=np.zeros(256, "f4")),
    }
