"""The gradient of one step: that of the batch's mean loss, computed in one or more pieces.

A batch may be divided among N processes, and each part into K micro-batches that fit the memory. Every model's loss is
a mean over examples, so a piece of n of the B examples counts n / B, and the sum over the pieces is the gradient that
one process would compute at once, up to rounding. Two things differ: BatchNorm takes its statistics from each piece,
and dropout draws a mask for each piece.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from capsnet.data import Batch, Dataset
from capsnet.models import Loss, Model, Output
from capsnet.training import distributed
from capsnet.training.balance import example_weights
from capsnet.training.config import TrainConfig
from capsnet.training.teacher import Teacher, distance

DTYPES = {"auto": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Objective(nn.Module):
    """A model and its loss as one module: DDP uses ``forward`` only, and torch.compile compiles both.

    The network may run in lower precision; its outputs are converted to float32 before the loss. ``auto`` is float32
    until ``settle_precision`` chooses. With a ``teacher`` the distance to its lengths is added to the loss.
    """

    def __init__(
        self, model: Model, precision: str, teacher: Teacher | None = None, teacher_weight: float = 1.0
    ) -> None:
        super().__init__()
        self.model = model
        self.dtype = DTYPES[precision]
        self.teacher, self.teacher_weight = teacher, teacher_weight

    def forward(
        self, images: Tensor, labels: Tensor, targets: Tensor, pictures: Tensor, weights: Tensor | None, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.autocast(images.device.type, self.dtype, enabled=self.dtype != torch.float32):
            output: Output = self.model(images, labels=labels)
            taught = None if self.teacher is None else self.teacher(images)
        if self.dtype != torch.float32:
            floats = {key: part.float() for key, part in output._asdict().items() if isinstance(part, Tensor)}
            output = output._replace(**floats)
        loss = self.model.loss(output, targets, pictures, weights, step=step)
        if taught is None:
            return loss
        apart = distance(output.lengths, taught, weights)
        return Loss(loss.total + self.teacher_weight * apart, loss.parts | {"teacher": apart})


class MicroBatch(NamedTuple):
    """A part of a batch, and its number of examples over that of the batch."""

    batch: Batch
    weight: float


def own_micro_batches(config: TrainConfig, training: Dataset, index: NDArray[np.int64], epoch: int) -> list[MicroBatch]:
    """This process's part of a batch, in ``accumulate`` nearly equal parts.

    A process without any example computes the first with a weight of zero, because all processes take part when the
    gradients are averaged.
    """
    mine = index[distributed.own_slice(len(index))]
    examples = mine if len(mine) else index[:1]
    return [
        MicroBatch(
            training.batch(part, augment=config.augment, seed=config.seed, epoch=epoch),
            len(part) / len(index) if len(mine) else 0.0,
        )
        for part in np.array_split(examples, min(config.accumulate, len(examples)))
    ]


def backward(
    config: TrainConfig,
    objective: nn.Module,
    model: Model,
    scaler: torch.amp.GradScaler,
    parts: Sequence[MicroBatch],
    class_weights: Tensor | None,
    step: int,
) -> dict[str, Tensor]:
    """Set the gradients to those of the batch's mean loss; returns the mean losses."""
    device = next(model.parameters()).device
    names: list[str] = []
    means = torch.zeros((), device=device)
    for k, (batch, weight) in enumerate(parts):
        inputs = loss_inputs(batch, model, class_weights)
        with (
            keyed_dropout(config.seed, step, distributed.rank() * config.accumulate + k, device),
            without_sync(objective, k + 1 < len(parts)),
        ):
            loss = Loss(*objective(*inputs, step))
            scaler.scale(loss.total * (weight * distributed.world_size())).backward()
        names = ["loss", *loss.parts]
        means = means + weight * torch.stack([loss.total, *loss.parts.values()]).detach()
    return dict(zip(names, distributed.sum_ranks(means), strict=True))


def loss_inputs(
    batch: Batch, model: Model, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """The arguments of ``Objective``, on the model's device: images, labels to decode, targets, reconstruction targets
    and example weights.

    For a picture made of several objects, each object's capsule is decoded separately and compared with that object.
    """
    device = next(model.parameters()).device
    images, targets = batch.images.to(device), batch.targets.to(device)
    labels, pictures = targets, images
    if batch.sources is not None:
        labels = torch.nn.functional.one_hot(batch.sources.classes, model.num_classes).to(device)  # (B, K, J)
        pictures = batch.sources.images.to(device)  # (B, K, C, H, W)
    factors = None if weights is None else example_weights(weights.to(device), targets)
    return images, labels, targets, pictures, factors


def without_sync(objective: nn.Module, apply: bool):
    """If ``apply``, do not average gradients over processes: the last micro-batch does it for all of them."""
    return objective.no_sync() if apply and isinstance(objective, DistributedDataParallel) else nullcontext()


@contextmanager
def keyed_dropout(seed: int, step: int, piece: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's generator by (seed, step, piece of the batch) inside the block, and restore it after."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed((seed * 1_000_003 + step + piece * 0x9E3779B97F4A7C15) % 2**63)
        yield


@contextmanager
def explained(compiled: bool) -> Iterator[None]:
    """Turn a failure of torch.compile into one sentence."""
    try:
        yield
    except Exception as error:
        if compiled and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            first = str(error).strip().partition("\n")[0]
            raise ValueError(f"torch.compile failed ({first}): train without --compile") from error
        raise
