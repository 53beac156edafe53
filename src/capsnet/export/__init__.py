"""Export: a trained model as one ONNX file, or as a program of ``torch.export``.

    from capsnet.export import export
    export("capsnet-small-mnist", "digits.onnx")

onnx, onnxscript and onnxruntime are optional dependencies, imported when a model is exported.
"""

from capsnet.export._export import SUFFIX, TOLERANCE, Done, Format, export
from capsnet.export._graph import graph
from capsnet.export._program import Traced, trace

__all__ = ["SUFFIX", "TOLERANCE", "Done", "Format", "Traced", "export", "graph", "trace"]
