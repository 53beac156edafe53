"""``export``: trace, convert, compare with torch, then write the file and its card."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

from capsnet._files import write_atomically
from capsnet._names import check_name
from capsnet.data import Dataset
from capsnet.export import _int8
from capsnet.export._program import Traced, difference, onnx_bytes, onnx_runner, torch_bytes, torch_runner, trace
from capsnet.export._sheet import describe
from capsnet.models import Model
from capsnet.weights import load
from capsnet.weights.onnx_file import Exported, OnnxModel, card_path, seal

Format = Literal["onnx", "torch"]
SUFFIX: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-4  # the largest difference from torch, in lengths, poses and pixels
BATCHES = (1, 5)  # other sizes than the traced one


class Done(NamedTuple):
    """The written file, its card, the largest difference from torch's answers, and the names of its outputs.

    ``changed`` and ``compared``: of an int8 file, how many answers are another class than torch's, and of how many.
    """

    path: Path
    card: Path
    difference: float
    outputs: tuple[str, ...]
    changed: int = 0
    compared: int = 0


def export(
    model: Model | Traced | str | Path,
    output: str | Path,
    format: Format = "onnx",
    *,
    int8: bool = False,
    data: str | None = None,
) -> Done:
    """Write a trained model as one file that does not need this package: from images, any number at a time, to
    ``lengths`` and, if the model has them, ``poses`` and ``reconstruction``.

    The file is first run (an ONNX file in onnxruntime) on batches of 1 and 5, and refused if an output differs by more
    than ``TOLERANCE`` from torch's. ``OUTPUT.json`` describes the file; so does its metadata.

    With ``int8`` convolutions and linear layers compute with 8-bit numbers: the file is smaller and faster, and its
    answers differ by the noise of the rounding. It is refused if more than 1 % of the answers to up to 1000 validation
    examples are another class than torch's.

    Args:
        model: a model, or what ``load`` takes; or what ``trace`` made of a model, to write both formats without
            tracing twice.
        output: the file to write, ``*.onnx``, or ``*.pt2`` for the format ``torch``.
        format: ``onnx``, or ``torch`` for ``torch.export.load``.
        int8: quantise; only for ``onnx``.
        data: for ``int8``, the data set whose training split gives the ranges of activations, as NAME or NAME:PATH;
            None takes what the model was trained on, as its card says.
    """
    check_name("format", format, ("onnx", "torch"))
    if int8 and format != "onnx":
        raise ValueError(f"int8 is for ONNX files, not for the format {format}")
    if data is not None and not int8:
        raise ValueError("data is for int8 only: it gives the ranges of activations")
    output = Path(output)
    _check_place(output, format)
    if format == "onnx":
        need_extra()
    network = model.model if isinstance(model, Traced) else _network(model)
    examples = _int8.load_examples(network, data) if int8 else None
    traced = model if isinstance(model, Traced) else trace(network)
    about = describe(network, traced)
    if format == "onnx":
        about["sealed"] = True
    content, checked = _convert(traced, format, json.dumps(about))
    if examples is not None:
        content, checked = _quantise(traced, content, *examples)
    return _write(output, format, content, about, checked)


def _network(model: Model | str | Path) -> Model:
    network = model if isinstance(model, Model) else load(model)
    if isinstance(network, OnnxModel):
        name = "the model" if isinstance(model, Model) else model
        raise ValueError(f"{name} is an ONNX file already: export the weights it was made from")
    return network


def _convert(traced: Traced, format: Format, metadata: str) -> tuple[bytes, dict[str, Any]]:
    """The file, and how far its answers are from torch's."""
    content = onnx_bytes(traced, metadata) if format == "onnx" else torch_bytes(traced, metadata)
    run = onnx_runner(content) if format == "onnx" else torch_runner(content)
    worst = difference(traced, run, BATCHES)
    if not worst <= TOLERANCE:  # NaN is refused, too
        raise ValueError(
            f"the {format} file does not agree with torch: answers differ by up to {worst:.2g}, "
            f"more than {TOLERANCE:g}; nothing was written"
        )
    return content, {"largest_difference": worst, "tolerance": TOLERANCE, "batch_sizes": list(BATCHES)}


def _quantise(traced: Traced, content: bytes, ranges: Dataset, compared: Dataset) -> tuple[bytes, dict[str, Any]]:
    """The 8-bit file, and how many of its answers are not torch's."""
    content = _int8.quantise(content, traced, ranges)
    found = _int8.compare(traced, onnx_runner(content), compared)
    if not math.isfinite(found.difference) or found.changed > _int8.MOST_CHANGED * found.compared:
        raise ValueError(
            f"the int8 file does not agree with torch: {found.changed} of {found.compared} answers change, and lengths "
            f"by up to {found.difference:.2g}; nothing was written"
        )
    return content, {
        "int8": True,
        "measured_on": ranges.name,
        "compared_on": compared.name,
        "largest_difference": found.difference,
        "changed_answers": found.changed,
        "compared_answers": found.compared,
    }


def _write(output: Path, format: str, content: bytes, about: Exported, checked: dict[str, Any]) -> Done:
    content = seal(content) if format == "onnx" else content
    digest = hashlib.sha256(content).hexdigest()
    card = {"file": output.name, "format": format, "sha256": digest, "checked": checked, **about}
    write_atomically(output, content)
    written = write_atomically(card_path(output), json.dumps(card, indent=2) + "\n")
    names = tuple(port["name"] for port in about["outputs"])
    counts = checked.get("changed_answers", 0), checked.get("compared_answers", 0)
    return Done(output, written, checked["largest_difference"], names, *counts)


def _check_place(output: Path, format: Format) -> None:
    """Check that the file can be written before it is made, which takes up to a minute."""
    if output.is_dir():
        raise ValueError(f"{output} is a folder: name the file to write, such as {output / f'model{SUFFIX[format]}'}")
    if output.suffix.lower() != SUFFIX[format]:  # ``load`` recognises the file by it
        raise ValueError(f"a file of the format {format} must end in {SUFFIX[format]}, got {output}")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"cannot write {output}: there is no folder {output.parent}")


def need_extra() -> None:
    """Refuse to go on without the optional packages."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"exporting to ONNX needs {error.name}: pip install 'capsnet[export]'") from None
