"""Out of Python's training process: a trained model as one ONNX file, or as a program of ``torch.export``.

    from capsnet.export import export
    export("capsnet-small-mnist", "digits.onnx")

onnx, onnxscript and onnxruntime are an extra and are imported only when somebody exports.
"""

from capsnet.export._export import TOLERANCE, Done, export

__all__ = ["TOLERANCE", "Done", "export"]
