"""Any module as an ONNX graph, for parts of a model: a decoder, a routing, a network with its trace."""

import copy
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from capsnet import kernels
from capsnet.export._export import TOLERANCE, need_extra
from capsnet.export._program import quiet, reason, strip
from capsnet.export._weights import keep_norms_apart, store_halves


def graph(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    free: Mapping[str, Collection[int]] | None = None,
) -> bytes:
    """A module as an ONNX file: from tensors of these names to tensors (a tuple) of these names.

    ``free`` lists the axes of an input that may have any size, ``{"votes": (1, 2)}``, unless the module's code needs
    that of the example; the others have the size of the example. Weights that 16-bit numbers hold exactly, such as
    those of the bundled models, are stored so: the file is half as large and computes the same.

    The file is run in onnxruntime on the example. ValueError if there is no such graph, or if an output differs from
    torch's by more than ``TOLERANCE`` of its largest value (at least of 1).
    """
    need_extra()
    module = copy.deepcopy(module).cpu().float().eval()
    keep_norms_apart(module)
    shapes = tuple(dict.fromkeys((free or {}).get(name, ()), Dim.AUTO) for name in inputs)
    with kernels.using("plain"), torch.no_grad(), quiet():
        try:
            program = torch.export.export(module, tuple(inputs.values()), dynamic_shapes=shapes, strict=False)
            converted = torch.onnx.export(
                program, input_names=list(inputs), output_names=list(outputs), dynamo=True, verbose=False
            )
            assert converted is not None
            proto = converted.model_proto
        except Exception as error:  # the exceptions of tracer and converter are not public
            raise ValueError(f"{type(module).__name__} cannot be exported to ONNX: {reason(error)}") from error
    strip(proto.graph)
    del proto.graph.value_info[:]  # shapes that every runtime infers
    store_halves(proto.graph)
    content = proto.SerializeToString()
    worst = _difference(content, module, inputs)
    if not worst <= TOLERANCE:  # NaN is refused, too
        raise ValueError(f"{type(module).__name__} does not agree with torch as ONNX: it differs by {worst:.2g}")
    return content


def _difference(content: bytes, module: nn.Module, inputs: Mapping[str, Tensor]) -> float:
    """The largest difference from torch's outputs, relative to the largest value of an output or to 1."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    used = {port.name for port in session.get_inputs()}
    found = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in used})
    with kernels.using("plain"), torch.no_grad():
        expected = [value.numpy() for value in module(*inputs.values())]
    gaps = [np.abs(a - b).max() / max(1.0, np.abs(b).max()) for a, b in zip(found, expected, strict=True)]
    return float(np.max(gaps))
