"""The description of an exported file, which ``weights.onnx_file`` reads again."""

from importlib.metadata import PackageNotFoundError, version

import torch

from capsnet._version import __version__
from capsnet.data import preprocess_for
from capsnet.export._program import Traced
from capsnet.inference import words_of
from capsnet.models import Model
from capsnet.weights.onnx_file import Exported, Port

MEANINGS = {
    "lengths": "how present each class is, in the order of class_names",
    "poses": "the pose of each class capsule",
    "reconstruction": "what the longest capsule draws, in [0, 1]",
}


def describe(model: Model, traced: Traced) -> Exported:
    """Everything needed to prepare an input and to read the outputs, ready for JSON."""
    resize = preprocess_for(model.image_size, model.in_channels)  # the default of ``predict``
    nodes = traced.program.graph_signature.user_outputs
    values = {node.name: node.meta["val"] for node in traced.program.graph.nodes if "val" in node.meta}
    outputs: list[Port] = [
        {
            "name": name,
            "dtype": "float32",
            "shape": ["batch", *map(int, values[node].shape[1:])],
            "meaning": MEANINGS[name],
        }
        for name, node in zip(traced.outputs, nodes, strict=True)
    ]
    return {
        "input": _input(model, traced),
        "value_range": [0, len(words_of(model).vocabulary) - 1] if model.takes_texts else [0, 1],
        "outputs": outputs,
        "takes": "texts" if model.takes_texts else "pictures",
        "image_size": model.image_size,
        "channels": model.in_channels,
        "class_names": list(model.class_names),
        "preprocessing": model.preprocessing or (resize.model_dump() if resize and not model.takes_texts else {}),
        "config": model.config,
        "card": model.card,
        "versions": {"capsnet": __version__, "torch": torch.__version__, "onnx": _version("onnx")},
    }


def _input(model: Model, traced: Traced) -> Port:
    if model.takes_texts:
        meaning = "word numbers by preprocessing.vocabulary, 0 after the end of a text"
        return {"name": traced.input, "dtype": "int64", "shape": ["batch", "words"], "meaning": meaning}
    shape: list[int | str] = ["batch", model.in_channels, *model.image_size]
    meaning = "pictures prepared as preprocessing says, channels first, without further normalisation"
    return {"name": traced.input, "dtype": "float32", "shape": shape, "meaning": meaning}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
