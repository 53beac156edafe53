"""An ONNX file with 8-bit convolutions and linear layers, by the quantiser of onnxruntime.

Weights are rounded filter by filter, activations by ranges measured on examples ("static" quantisation: the ranges are
in the file, so an image's answer does not depend on the others of its batch). Weights have seven bits: onnxruntime's
kernels for CPUs without VNNI would overflow with eight. Votes and routing stay in float32.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsnet import data, kernels
from capsnet.data import Dataset
from capsnet.export._program import Run, Traced, quiet, reason
from capsnet.inference import check_fit
from capsnet.models import Model

QUANTISED = ("Conv", "Gemm")  # the operators; MatMul makes the votes
MEASURED, COMPARED = 256, 1000  # examples for the ranges of activations, and to compare answers on
MOST_CHANGED = 0.01  # of the compared answers
_BATCH = 32


class Comparison(NamedTuple):
    """The largest difference in lengths from torch's, and how many of the compared answers are another class."""

    difference: float
    changed: int
    compared: int


def load_examples(model: Model, name: str | None) -> tuple[Dataset, Dataset]:
    """(those to measure on, those to compare on): training and validation split of the model's data, or of ``name``."""
    spec = name or model.card.get("data")
    if spec is None:
        raise ValueError("int8 needs examples to measure the ranges of activations: name a data set with --data")
    try:
        splits = data.load(spec, "train"), data.load(spec, "validation")
    except (ValueError, OSError) as error:
        raise ValueError(f"int8 needs examples of {spec} to measure the ranges of activations: {error}") from error
    check_fit(model, splits[0])
    return splits


def quantise(content: bytes, traced: Traced, examples: Dataset) -> bytes:
    """The file with 8-bit operators."""
    import onnx
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter(_batches(examples, MEASURED))

        def get_next(self) -> Any:
            images = next(self.batches, None)
            return None if images is None else {traced.input: images.numpy()}

    proto = onnx.load_model_from_string(content)
    if not any(node.op_type in QUANTISED for node in proto.graph.node):
        name = traced.model.config.get("name", type(traced.model).__name__)
        raise ValueError(f"{name} cannot be quantised: it has no convolution and no linear layer")
    with tempfile.TemporaryDirectory() as folder, quiet():
        output = Path(folder) / "int8.onnx"
        try:
            quantization.quantize_static(
                proto,
                output,
                Reader(),
                op_types_to_quantize=list(QUANTISED),
                per_channel=True,
                reduce_range=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
            )
        except Exception as error:  # the quantiser raises whatever its parts raise
            name = traced.model.config.get("name", type(traced.model).__name__)
            raise ValueError(f"{name} cannot be quantised by onnxruntime: {reason(error)}") from error
        return output.read_bytes()


def compare(traced: Traced, run: Run, examples: Dataset) -> Comparison:
    """The answers of the quantised file beside torch's."""
    worst, changed, compared = 0.0, 0, 0
    for images in _batches(examples, COMPARED):
        with torch.no_grad(), kernels.using("plain"):
            expected, actual = traced.answers(images)[0], run(images)[0]
        gap = (actual - expected).abs().max()
        worst = float(torch.maximum(gap, torch.tensor(worst)))  # NaN if any is NaN
        changed += int((actual.argmax(1) != expected.argmax(1)).sum())
        compared += len(images)
    return Comparison(worst, changed, compared)


def _batches(examples: Dataset, count: int) -> Sequence[Tensor]:
    """So many examples, evenly spread over the data set, which may be ordered by class."""
    chosen = np.linspace(0, len(examples) - 1, min(count, len(examples))).round().astype(int)
    return [examples.batch(chosen[k : k + _BATCH]).images for k in range(0, len(chosen), _BATCH)]
