"""Exported models: an ONNX file, computed by onnxruntime, as a model.

A file describes itself in one entry of its metadata; if another tool has removed that, the card beside the file is
read. The last entry, the seal, is the hash of all bytes before it. A file that does not have the hash of its card or,
without a card, that of its seal is refused. onnxruntime is an optional dependency, imported when such a file is loaded.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired

import pydantic
import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from capsnet._names import describe_error
from capsnet.models import Model, Output
from capsnet.weights._card import check_card, check_preprocessing

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

log = logging.getLogger("capsnet")

FORMAT = "capsnet-onnx-1"
SEAL = "capsnet-sha256"
MARKS = (b'"sealed": true', SEAL.encode())  # one of them survives damage to the other: the file had a seal


class Port(TypedDict):
    """An input or output; a free size has a name instead of a number."""

    name: str
    dtype: Literal["float32", "int64"]
    shape: list[int | str]
    meaning: str


class Exported(TypedDict):
    """The description of an exported file: enough to prepare its input and to read its outputs."""

    input: Port
    value_range: list[float]
    outputs: list[Port]
    takes: Literal["pictures", "texts"]
    image_size: tuple[int, int]  # height, width
    channels: int
    class_names: list[str]
    preprocessing: dict[str, Any]
    config: dict[str, Any]
    card: dict[str, Any]
    versions: dict[str, str]
    sealed: NotRequired[bool]  # true of an ONNX file; older ones have no seal


class OnnxModel(Model):
    """A network in an ONNX file, computed by onnxruntime on the CPU.

    It maps images to ``Output``. It has no weights to train or to save, no ``decode`` and no trace.
    """

    def __init__(self, session: "InferenceSession", about: Exported) -> None:
        super().__init__(about["image_size"], about["channels"], len(about["class_names"]))
        self.takes_texts = about["takes"] == "texts"
        self.class_names = tuple(about["class_names"])
        self.preprocessing, self.card = about["preprocessing"], about["card"]
        self._session, self._about = session, about
        sizes = {port["name"]: port["shape"][-1] for port in about["outputs"]}
        self.pose_dim = int(sizes["poses"]) if "poses" in sizes else None
        self._anchor = nn.Parameter(torch.zeros(0), requires_grad=False)  # callers ask for the device of a parameter

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        if labels is not None or trace:
            raise ValueError("an ONNX file takes images only: for labels and traces load the weights it was made from")
        self.check_images(images)
        dtype = torch.int64 if self.takes_texts else torch.float32
        inputs = {self._about["input"]["name"]: images.detach().to("cpu", dtype).numpy()}
        names = [port["name"] for port in self._about["outputs"]]
        try:
            values = self._session.run(names, inputs)
        except Exception as error:  # onnxruntime's own have no common ancestor
            raise ValueError(f"onnxruntime cannot compute this: {_first_line(error)}") from error
        outputs = {name: torch.from_numpy(v).to(images.device) for name, v in zip(names, values, strict=True)}
        return Output(outputs["lengths"], outputs.get("poses"), outputs.get("reconstruction"))

    def check_images(self, images: Tensor) -> None:
        if not self.takes_texts:
            super().check_images(images)
        elif images.ndim != 2 or images.shape[1] < 1 or images.is_floating_point():
            raise ValueError(f"expected word numbers (B, L), got {images.dtype} of shape {tuple(images.shape)}")


def load_onnx(path: str | Path) -> OnnxModel:
    """The model in an ONNX file that ``capsnet export`` wrote."""
    path = Path(path)
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ValueError(f"{path} needs onnxruntime to compute: pip install 'capsnet[export]'") from None
    beside = _card_beside(path)
    checked = beside is not None or _has_seal(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only, which are in the exception as well
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
    except Exception as error:  # onnxruntime's own have no common ancestor
        raise ValueError(f"{path} is not a complete ONNX file: {_first_line(error)}") from None
    text = metadata.get(FORMAT) or beside
    if text is None:
        raise ValueError(f"{path} was not written by capsnet export: its metadata has no {FORMAT}")
    try:
        about = pydantic.TypeAdapter(Exported).validate_json(text)
        check_card(about["card"])
        check_preprocessing(about["preprocessing"], about["takes"] == "texts")
        _check_ports(session, about)
        model = OnnxModel(session, about).eval()
    except pydantic.ValidationError as error:
        raise ValueError(f"{path} has damaged metadata: {describe_error(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path} has damaged metadata: {error}") from None
    if not checked:
        log.warning("%s has no checksum, as files of older versions: damage to it would not be noticed", path)
    return model


def seal(content: bytes) -> bytes:
    """An ONNX file with its seal. Fields of a protobuf may be appended: this is field 14, an entry of the metadata."""
    return content + _seal_of(content)


def _seal_of(content: bytes | memoryview) -> bytes:
    value = f"{len(content):012d} {hashlib.sha256(content).hexdigest()}"
    return _field(14, _field(1, SEAL.encode()) + _field(2, value.encode()))


def _field(number: int, value: bytes) -> bytes:
    assert len(value) < 128  # so that its length is one byte
    return bytes([number << 3 | 2, len(value)]) + value


def _has_seal(path: Path) -> bool:
    """Whether the seal is right; False for a file that never had one. Another one is refused before it is parsed."""
    content = path.read_bytes()
    view, length = memoryview(content), len(_seal_of(b""))  # slices of a view are not copied
    if _seal_of(view[:-length]) == view[-length:]:
        return True
    if any(mark in content for mark in MARKS):
        raise ValueError(
            f"{path} is damaged, or another program has changed it: its content does not have the checksum that was "
            f"written with it. Export it again; if the change was intended, {card_path(path).name} with its sha256 "
            "admits it (docs/export.md)"
        )
    return False


def card_path(path: Path) -> Path:
    """The card of an exported file: beside it, with .json after its whole name."""
    return path.with_name(f"{path.name}.json")


def _card_beside(path: Path) -> str | None:
    """The card's text, if there is one. It holds the file's hash, so that a damaged file is noticed."""
    card = card_path(path)
    if not card.is_file():
        return None
    text = card.read_text(encoding="utf-8", errors="replace")
    try:
        expected = pydantic.TypeAdapter(dict[str, Any]).validate_json(text).get("sha256")
    except pydantic.ValidationError:
        raise ValueError(f"{card} is damaged: export {path.name} again, or remove the card") from None
    with path.open("rb") as file:
        if expected != hashlib.file_digest(file, "sha256").hexdigest():
            raise ValueError(f"{path} is damaged, or {card.name} is of another file: their sha256 differ")
    return text


def _check_ports(session: "InferenceSession", about: Exported) -> None:
    """Check that the metadata describes this graph."""
    inputs, outputs = ([port.name for port in ports] for ports in (session.get_inputs(), session.get_outputs()))
    described = [port["name"] for port in about["outputs"]]
    if inputs != [about["input"]["name"]] or outputs != described or "lengths" not in described:
        raise ValueError(f"it describes {about['input']['name']} -> {described}, the graph has {inputs} -> {outputs}")
    if not set(described) <= set(Output._fields):
        raise ValueError(f"unknown outputs {described}")
    names = len(about["class_names"])
    for found, port in zip(
        [*session.get_inputs(), *session.get_outputs()], [about["input"], *about["outputs"]], strict=True
    ):
        if found.name == "lengths" and isinstance(last := found.shape[-1], int) and last != names:
            raise ValueError(f"it has {names} class names, the graph {last} classes")
        _check_shape(port["name"], port["shape"], found.shape)
    if about["takes"] == "pictures":
        _check_shape("image_size", ["batch", about["channels"], *about["image_size"]], about["input"]["shape"])


def _check_shape(name: str, described: Sequence[int | str], found: Sequence[int | str | None]) -> None:
    """Where both have a number, it is the same."""
    pairs = list(zip(described, found, strict=False))
    same = all(one == two for one, two in pairs if isinstance(one, int) and isinstance(two, int))
    if len(described) != len(found) or len(described) < 2 or not same:
        raise ValueError(f"it describes {name} of shape {described}, the graph has {found}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
