"""Weights as safetensors files with the model's config, class names and preprocessing in their metadata.

Loading runs no code from the file, and takes no more memory than the file is large: what it describes is compared with
its tensors before anything is built. A digest of both notices damage.
"""

import json
import logging
from pathlib import Path
from typing import Any, NotRequired

import pydantic
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor
from typing_extensions import TypedDict

from capsnet._digest import digest
from capsnet._files import write_atomically
from capsnet._names import describe_error
from capsnet.layers import PrimaryCaps
from capsnet.models import Model, outline, rebuild
from capsnet.weights._card import check_card, check_preprocessing

log = logging.getLogger("capsnet")

FORMAT = "capsnet-weights-2"
FIRST = "capsnet-weights-1"  # in this format the scale of primary capsules multiplied their bias too
EXPORTED = (".onnx", ".pt2")  # endings of exported models
MOST_METADATA = 16 * 2**20  # characters: the words of a text model are the longest part
FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors names them


class About(TypedDict):
    """The metadata of a file of weights. An unknown entry is an error: it may be a damaged ``digest``."""

    __pydantic_config__ = pydantic.ConfigDict(extra="forbid")  # type: ignore[misc]

    config: dict[str, Any]
    class_names: list[str]
    preprocessing: dict[str, Any]
    card: dict[str, Any]
    digest: NotRequired[str]  # of the tensors and of all the above; files of older versions have none


def save(
    model: Model, path: str | Path, *, dtype: torch.dtype | None = None, card: dict[str, Any] | None = None
) -> Path:
    """Write a model to one self-contained file.

    Args:
        dtype: store weight matrices in this type (``torch.float16`` halves the file); None keeps them. Vectors, such as
            the statistics of a BatchNorm, take little space and keep their precision.
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
        name: (t.to(dtype) if dtype is not None and t.is_floating_point() and t.ndim > 1 else t)
        .detach()
        .cpu()
        .contiguous()
        for name, t in model.state_dict().items()
    }
    about: About = {
        "config": model.config,
        "class_names": list(model.class_names),
        "preprocessing": model.preprocessing,
        "card": model.card if card is None else card,
    }
    check_card(about["card"])
    return write(_unshared(tensors), about, path)


def write(tensors: dict[str, Tensor], about: About, path: str | Path, format: str = FORMAT) -> Path:
    """Write tensors and metadata, with their digest."""
    plain: Any = json.loads(json.dumps({key: value for key, value in about.items() if key != "digest"}))
    metadata = json.dumps(plain | {"digest": digest([plain, tensors])})
    # one entry: safetensors writes several in random order, and equal weights should give equal files
    return write_atomically(path, serialise(tensors, {format: metadata}))


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
        keys = ", ".join(metadata)[:200] or "nothing"
        raise ValueError(f"{path} was not written by capsnet: its metadata has {keys} instead of {FORMAT}")
    if len(metadata[name]) > MOST_METADATA:
        raise ValueError(
            f"{path} has {len(metadata[name]):,} characters of metadata, at most {MOST_METADATA:,} are read"
        )
    try:
        about = pydantic.TypeAdapter(About).validate_json(metadata[name])
        check_card(about["card"])
    except pydantic.ValidationError as error:
        raise ValueError(f"{path} has damaged metadata: {describe_error(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path} has damaged metadata: {error}") from None
    return name, about


def read_tensors(path: str | Path, about: About) -> dict[str, Tensor]:
    """The tensors of a file whose metadata is ``about``, on the CPU, floating-point ones as float32.

    Raises ValueError if they, or the metadata, are not those that were written.
    """
    with safe_open(Path(path), framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    if (expected := about.get("digest")) is None:
        log.warning("%s is of an older version and has no digest: damage to it would not be noticed", path)
    elif digest([{key: value for key, value in about.items() if key != "digest"}, tensors]) != expected:
        raise ValueError(f"{path} is damaged: its content does not have the digest that was written with it")
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def read_converted(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file as models take them today."""
    name, about = _read_metadata(Path(path))
    tensors = read_tensors(path, about)
    return _convert(rebuild(about["config"]), tensors) if name == FIRST else tensors


def _check_shapes(model: Model, path: Path) -> None:
    """Refuse a file whose tensors are not those of the model, by its header: nothing is read or allocated."""
    with safe_open(path, framework="pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        for name, tensor in model.state_dict().items():
            if name not in found:
                raise ValueError(f"it has no tensor {name}")
            if (shape := tuple(found[name].get_shape())) != tuple(tensor.shape):
                raise ValueError(f"{name} has the shape {shape} instead of {tuple(tensor.shape)}")
            kind = found[name].get_dtype()
            if (kind in FLOATS) != tensor.is_floating_point():
                raise ValueError(f"{name} has the type {kind} instead of {tensor.dtype}")


def _convert(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the first format as the model takes them today, with the same results."""
    scales = {f"{name}.conv.bias": p.scale for name, p in model.named_modules() if isinstance(p, PrimaryCaps)}
    return {name: tensor * scales[name] if name in scales else tensor for name, tensor in tensors.items()}


def load_file(path: str | Path) -> Model:
    """The model that a file describes, with its weights, in evaluation mode."""
    path = Path(path)
    name, about = _read_metadata(path)
    config = about["config"]
    try:
        sketch = outline(lambda: rebuild(config)) or rebuild(config)
        if len(about["class_names"]) != sketch.num_classes:
            raise ValueError(f"{len(about['class_names'])} class names for {sketch.num_classes} classes")
        check_preprocessing(about["preprocessing"], sketch.takes_texts)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} describes a model that cannot be built here: {error}") from None
    try:
        _check_shapes(sketch, path)
    except ValueError as error:
        raise ValueError(f"{path} does not fit the model {config['name']!r} that it names: {error}") from None
    tensors = read_tensors(path, about)
    model = rebuild(config)
    try:
        model.load_state_dict(_convert(model, tensors) if name == FIRST else tensors)
    except RuntimeError as error:  # unknown tensors; some models drop those of older versions
        why = " ".join(str(error).partition("\n")[2].split())
        raise ValueError(f"{path} does not fit the model {config['name']!r} that it names: {why[:200]}") from None
    except ValueError as error:  # values that the model refuses
        raise ValueError(f"{path} does not fit the model {config['name']!r} that it names: {error}") from None
    model.class_names = tuple(about["class_names"])
    model.preprocessing = about["preprocessing"]
    model.card = about["card"]
    return model.eval()
