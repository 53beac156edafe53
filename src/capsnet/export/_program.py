"""From a model to a program of plain operators, from there to bytes, and back from the bytes to answers."""

import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from capsnet import kernels
from capsnet.models import Model, Output
from capsnet.weights._onnx import FORMAT

OUTPUTS = ("lengths", "poses", "reconstruction")
TRACED = 3  # examples; and words, of a text: sizes 0 and 1 are special to the tracer
Run = Callable[[Tensor], Sequence[Tensor]]


class Traced(NamedTuple):
    """A model as a program, with the names of what goes in and comes out."""

    program: ExportedProgram
    answers: nn.Module  # the same in torch, what the files are compared with
    model: Model
    input: str
    outputs: tuple[str, ...]


class Answers(nn.Module):
    """A model's output as a plain tuple of the tensors that it has, in the order of ``OUTPUTS``."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output: Output = self.model(images)
        return tuple(value for value in map(output._asdict().get, OUTPUTS) if value is not None)


def trace(model: Model) -> Traced:
    """The model as a program of plain operators, with any number of examples (and of words).

    A copy is traced, on the CPU in single precision, and by the plain kernels: the fast ones are made of what no other
    runtime has.
    """
    answers = Answers(copy.deepcopy(model).cpu().float()).eval()
    example = made_up(answers.model, TRACED, torch.Generator().manual_seed(0), words=TRACED + 4)
    free = {0: Dim("batch", min=1), 1: Dim("words", min=1)} if model.takes_texts else {0: Dim("batch", min=1)}
    with kernels.using("plain"), torch.no_grad(), _quiet():
        output: Output = answers.model(example)
        there = tuple(name for name, value in output._asdict().items() if name in OUTPUTS and value is not None)
        try:
            program = torch.export.export(answers, (example,), dynamic_shapes=(free,), strict=False)
        except Exception as error:  # torch.export raises whatever the model's code raises
            raise ValueError(f"{_name(model)} cannot be traced by torch.export: {reason(error)}") from error
    return Traced(program, answers, answers.model, "words" if model.takes_texts else "images", there)


def onnx_bytes(traced: Traced, metadata: str) -> bytes:
    """The program as an ONNX file, with ``metadata`` inside."""
    with torch.no_grad(), _quiet():
        try:
            made = torch.onnx.export(
                traced.program, dynamo=True, verbose=False, input_names=[traced.input], output_names=traced.outputs
            )
            assert made is not None
            proto = made.model_proto
        except Exception as error:  # the converter's own are not public
            raise ValueError(f"{_name(traced.model)} cannot be exported to ONNX: {reason(error)}") from error
    _tidy(proto.graph)
    entry = proto.metadata_props.add()
    entry.key, entry.value = FORMAT, metadata
    try:
        return proto.SerializeToString()
    except ValueError:
        raise ValueError(f"{_name(traced.model)} is too large for one ONNX file: 2 GB are the most") from None


def torch_bytes(traced: Traced, metadata: str) -> bytes:
    """The program as ``torch.export.save`` writes it, with ``metadata`` inside as an extra file."""
    content = io.BytesIO()
    with _quiet():
        torch.export.save(traced.program, content, extra_files={f"{FORMAT}.json": metadata})
    return content.getvalue()


def onnx_runner(content: bytes) -> Run:
    """The file computed by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: [torch.from_numpy(value) for value in session.run(None, {name: images.numpy()})]


def torch_runner(content: bytes) -> Run:
    """The file computed by torch."""
    with _quiet():
        return torch.export.load(io.BytesIO(content)).module()


def difference(traced: Traced, run: Run, batches: Sequence[int]) -> float:
    """The largest difference between a file's answers and torch's own, over batches of made-up examples."""
    generator, worst = torch.Generator().manual_seed(1), 0.0
    for size in batches:
        images = made_up(traced.model, size, generator, words=2 * TRACED + size)
        with torch.no_grad(), kernels.using("plain"):
            pairs = list(zip(run(images), traced.answers(images), strict=True))
        if any(got.shape != wanted.shape for got, wanted in pairs):
            return float("inf")
        gaps = [(got - wanted).abs().max() for got, wanted in pairs]
        worst = float(torch.stack([torch.tensor(worst), *gaps]).max())  # of a NaN, NaN
    return worst


def made_up(model: Model, count: int, generator: torch.Generator, words: int) -> Tensor:
    """Inputs like real ones: soft blobs on black, (B, C, H, W) in [0, 1]; or words followed by padding, (B, L)."""
    if model.takes_texts:
        numbers = torch.randint(1, vocabulary(model), (count, words), generator=generator)
        ends = torch.randint(1, words + 1, (count, 1), generator=generator)
        return numbers.masked_fill(torch.arange(words) >= ends, 0)
    height, width = model.image_size
    coarse = torch.rand(count, model.in_channels, 6, 6, generator=generator)
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bicubic", align_corners=False)
    return (3 * smooth - 1.2).clamp(0, 1)


def reason(error: BaseException) -> str:
    """What is at the bottom of a converter's error, in one line."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def vocabulary(model: Model) -> int:
    """How many words a model of texts, or each member of an ensemble, knows."""
    return min(part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding))


def _tidy(graph: Any) -> None:
    """Free sizes by their names instead of the tracer's (s34), and without notes on which line of whose disk a node
    comes from: equal weights shall give equal files."""
    free = [dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim if dim.dim_param]
    called = dict(zip(free, ("batch", "words"), strict=False))
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in called:
                dim.dim_param = called[dim.dim_param]
    for thing in [graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")


def _name(model: Model) -> str:
    return str(model.config.get("name", type(model).__name__))


@contextmanager
def _quiet() -> Iterator[None]:
    """The tracer and the converter talk to their developers (deprecations, missing torchvision): not to ours."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
