"""A model as a traced program, the program as bytes, and the bytes as a function again."""

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
from capsnet.weights.onnx_file import FORMAT

OUTPUTS = ("lengths", "poses", "reconstruction")
TRACED = 3  # examples in the traced batch: sizes 0 and 1 are special to the tracer
Run = Callable[[Tensor], Sequence[Tensor]]


class Traced(NamedTuple):
    """A model as a program, with the names of its input and outputs."""

    program: ExportedProgram
    answers: nn.Module  # the model in torch, to compare files with
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

    A copy is traced, on the CPU in single precision, with the plain kernels: other runtimes lack the operators of the
    fast ones.
    """
    answers = Answers(copy.deepcopy(model).cpu().float()).eval()
    example = example_batch(answers.model, TRACED, seed=0)
    free = {0: Dim("batch", min=1), 1: Dim("words", min=1)} if model.takes_texts else {0: Dim("batch", min=1)}
    with kernels.using("plain"), torch.no_grad(), quiet():
        output: Output = answers.model(example)
        outputs = tuple(name for name, value in output._asdict().items() if name in OUTPUTS and value is not None)
        try:
            program = torch.export.export(answers, (example,), dynamic_shapes=(free,), strict=False)
        except Exception as error:  # torch.export raises what the model's code raises
            raise ValueError(f"{_name(model)} cannot be traced by torch.export: {reason(error)}") from error
    return Traced(program, answers, answers.model, "words" if model.takes_texts else "images", outputs)


def onnx_bytes(traced: Traced, metadata: str) -> bytes:
    """The program as an ONNX file, with ``metadata`` inside."""
    with torch.no_grad(), quiet():
        try:
            converted = torch.onnx.export(
                traced.program, dynamo=True, verbose=False, input_names=[traced.input], output_names=traced.outputs
            )
            assert converted is not None
            proto = converted.model_proto
        except Exception as error:  # the converter's exceptions are not public
            raise ValueError(f"{_name(traced.model)} cannot be exported to ONNX: {reason(error)}") from error
    _tidy(proto.graph)
    entry = proto.metadata_props.add()
    entry.key, entry.value = FORMAT, metadata
    try:
        return proto.SerializeToString()
    except ValueError:
        raise ValueError(f"{_name(traced.model)} is too large for one ONNX file: the limit is 2 GB") from None


def torch_bytes(traced: Traced, metadata: str) -> bytes:
    """The program as ``torch.export.save`` writes it, with ``metadata`` inside as an extra file."""
    content = io.BytesIO()
    with quiet():
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
    with quiet():
        return torch.export.load(io.BytesIO(content)).module()


def difference(traced: Traced, run: Run, batches: Sequence[int]) -> float:
    """The largest difference between a file's outputs and torch's, over batches of random examples."""
    worst = 0.0
    for size in batches:
        images = example_batch(traced.model, size, seed=size)
        with torch.no_grad(), kernels.using("plain"):
            pairs = list(zip(run(images), traced.answers(images), strict=True))
        if any(actual.shape != expected.shape for actual, expected in pairs):
            return float("inf")
        gaps = [(actual - expected).abs().max() for actual, expected in pairs]
        worst = float(torch.stack([torch.tensor(worst), *gaps]).max())  # NaN if any is NaN
    return worst


def example_batch(model: Model, count: int, seed: int) -> Tensor:
    """Random inputs; texts of another length for each count."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        batch = model.example_inputs(count)
    return batch[:, : 4 + count].contiguous() if model.takes_texts else batch


def reason(error: BaseException) -> str:
    """The first cause of a converter's error, in one line."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _tidy(graph: Any) -> None:
    """Name the free sizes (the tracer's names are like s34) and ``strip``, so that equal weights give equal files.
    Shapes of weights are not repeated in ``value_info``: quantisers transpose weights, and then find that they
    contradict it."""
    free = [dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim if dim.dim_param]
    names = dict(zip(free, ("batch", "words"), strict=False))
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    weights = {weight.name for weight in graph.initializer}
    inner = [value for value in graph.value_info if value.name not in weights]
    del graph.value_info[:]
    graph.value_info.extend(inner)
    strip(graph)


def strip(graph: Any) -> None:
    """Remove source lines and paths."""
    for part in [graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer]:
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def _name(model: Model) -> str:
    return str(model.config.get("name", type(model).__name__))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of the tracer, the converter and the quantiser, which uses the root logger."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", None)]
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
