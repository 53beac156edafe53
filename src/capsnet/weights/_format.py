"""Weights as safetensors files with the model's config, class names and preprocessing in their metadata.

Loading runs no code from the file.
"""

import json
from pathlib import Path
from typing import Any

import pydantic
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor
from typing_extensions import TypedDict

from capsnet._files import write_atomically
from capsnet._names import describe_error
from capsnet.layers import PrimaryCaps
from capsnet.models import Model, rebuild

FORMAT = "capsnet-weights-2"
FIRST = "capsnet-weights-1"  # in this format the scale of primary capsules multiplied their bias too
EXPORTED = (".onnx", ".pt2")  # endings of exported models


class About(TypedDict):
    """The metadata of a file of weights."""

    config: dict[str, Any]
    class_names: list[str]
    preprocessing: dict[str, Any]
    card: dict[str, Any]


def save(
    model: Model, path: str | Path, *, dtype: torch.dtype | None = None, card: dict[str, Any] | None = None
) -> Path:
    """Write a model to one self-contained file.

    Args:
        dtype: store floating-point tensors in this type (``torch.float16`` halves the file); None keeps them.
        card: what JSON can hold about the origin of the weights (command, seed, accuracy, ...); None keeps the model's.
    """
    if not model.config:
        raise ValueError("only models made by create_model can be saved: this one has no config to be rebuilt from")
    if Path(path).suffix.lower() in EXPORTED:
        raise ValueError(
            f"weights are not written as {path}: {' and '.join(EXPORTED)} are for exported models; "
            f"name the file {Path(path).with_suffix('.safetensors').name}"
        )
    tensors = {
        name: (t.to(dtype) if dtype is not None and t.is_floating_point() else t).detach().cpu().contiguous()
        for name, t in model.state_dict().items()
    }
    tensors = _unshared(tensors)
    about = {
        "config": model.config,
        "class_names": list(model.class_names),
        "preprocessing": model.preprocessing,
        "card": model.card if card is None else card,
    }
    # one entry: safetensors writes several in random order, and equal weights should give equal files
    return write_atomically(path, serialise(tensors, {FORMAT: json.dumps(about)}))


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with copies of those that share memory (a model may be in an ensemble twice)."""
    addresses: set[int] = set()
    unshared: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        unshared[name] = tensor.clone() if address in addresses else tensor
        addresses.add(address)
    return unshared


def read_metadata(path: str | Path) -> About:
    """The metadata of a file of weights: ``config``, ``class_names``, ``preprocessing``, ``card``."""
    return _read_metadata(Path(path))[1]


def _read_metadata(path: Path) -> tuple[str, About]:
    """The format of a file, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no weights file {path}") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file: {error}") from None
    name = FIRST if FIRST in metadata else FORMAT
    if name not in metadata:
        keys = ", ".join(metadata) or "nothing"
        raise ValueError(f"{path} was not written by capsnet: its metadata has {keys} instead of {FORMAT}")
    try:
        return name, pydantic.TypeAdapter(About).validate_json(metadata[name])
    except pydantic.ValidationError as error:
        raise ValueError(f"{path} has damaged metadata: {describe_error(error)}") from None


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU, floating-point ones as float32."""
    with safe_open(Path(path), framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def _convert(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the first format as the model takes them today, with the same results."""
    scales = {f"{name}.conv.bias": p.scale for name, p in model.named_modules() if isinstance(p, PrimaryCaps)}
    return {name: tensor * scales[name] if name in scales else tensor for name, tensor in tensors.items()}


def load_file(path: str | Path) -> Model:
    """The model that a file describes, with its weights, in evaluation mode."""
    name, about = _read_metadata(Path(path))
    config = about["config"]
    try:
        model = rebuild(config)
        if len(about["class_names"]) != model.num_classes:
            raise ValueError(f"{len(about['class_names'])} class names for {model.num_classes} classes")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} describes a model that cannot be built here: {error}") from None
    try:
        model.load_state_dict(_convert(model, read_tensors(path)) if name == FIRST else read_tensors(path))
    except RuntimeError as error:
        why = " ".join(str(error).partition("\n")[2].split())
        raise ValueError(f"{path} does not fit the model {config['name']!r} that it names: {why[:200]}") from None
    model.class_names = tuple(about["class_names"])
    model.preprocessing = about["preprocessing"]
    model.card = about["card"]
    return model.eval()
