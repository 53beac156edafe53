"""The gradient of one step: of the whole batch's mean loss, in whatever number of pieces it is computed.

A batch may be shared by N processes, and each share be cut into K micro-batches that fit the memory. Every model's loss
is a mean over examples, so a piece of n of the B examples counts n / B, and the sum over the pieces is the gradient
that one process would have got in one go, up to rounding. Two things are not: BatchNorm takes its statistics from each
piece by itself, and dropout draws each piece's mask by itself.
"""

from collections.abc import Iterator
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

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Objective(nn.Module):
    """A model and its loss as one call: DDP looks at `forward` alone, and torch.compile is to see both.

    Lower precision is for the network; its outputs are float32 again before the loss is summed over pixels.
    """

    def __init__(self, model: Model, precision: str) -> None:
        super().__init__()
        self.model = model
        self.dtype = DTYPES[precision]

    def forward(
        self, images: Tensor, labels: Tensor, targets: Tensor, wanted: Tensor, weights: Tensor | None, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if self.dtype == torch.float32:
            output: Output = self.model(images, labels=labels)
        else:
            with torch.autocast(images.device.type, self.dtype):
                output = self.model(images, labels=labels)
            output = Output(*(part if part is None else part.float() for part in output[:4]))  # type: ignore[arg-type]
        return self.model.loss(output, targets, wanted, weights, step=step)


class Piece(NamedTuple):
    """How much of a whole batch this process has."""

    count: int  # examples that count here: all of its own, or none where there were fewer examples than processes
    whole: int  # examples that all processes have together


def own_piece(config: TrainConfig, training: Dataset, index: NDArray[np.int64], epoch: int) -> tuple[Batch, Piece]:
    """The examples of a batch that fall to this process. One without any computes the first, and it counts nothing:
    it has to be there when the gradients are averaged."""
    mine = index[distributed.share(len(index))]
    shown = mine if len(mine) else index[:1]
    batch = training.batch(shown, augment=config.augment, seed=config.seed, epoch=epoch)
    return batch, Piece(len(mine), len(index))


def backward(
    config: TrainConfig,
    objective: nn.Module,
    model: Model,
    scaler: torch.amp.GradScaler,
    batch: Batch,
    piece: Piece,
    weights: Tensor | None,
    step: int,
) -> dict[str, float]:
    """Leave the gradient of the whole batch's mean loss in the model's weights; returns the mean losses."""
    device = next(model.parameters()).device
    parts = cut(batch, min(config.accumulate, max(piece.count, 1)))
    counters = [(b, b.clone()) for b in model.buffers() if not b.is_floating_point()] if len(parts) > 1 else []
    names: list[str] = []
    means = torch.zeros((), device=device)
    for k, part in enumerate(parts):
        for buffer, value in counters:  # what counts steps counts one for all micro-batches
            buffer.copy_(value)
        share = len(part.images) * bool(piece.count) / piece.whole
        inputs = arrange(part, model, weights)
        with (
            keyed_dropout(config.seed, step, distributed.rank() * config.accumulate + k, device),
            held(objective, k + 1 < len(parts)),
        ):
            loss = Loss(*objective(*inputs, step))
            scaler.scale(loss.total * (share * distributed.world())).backward()
        names = ["loss", *loss.parts]
        means = means + share * torch.stack([loss.total, *loss.parts.values()]).detach()
    return dict(zip(names, distributed.total(means).tolist(), strict=True))


def cut(batch: Batch, count: int) -> list[Batch]:
    """A batch in so many nearly equal parts."""
    if count == 1:
        return [batch]
    columns = [list(t.tensor_split(count)) for t in (batch.images, batch.targets, batch.indices)]
    made = [None] * count
    if batch.sources is not None:
        made = [type(batch.sources)(*s) for s in zip(*(t.tensor_split(count) for t in batch.sources), strict=True)]
    return [Batch(*parts) for parts in zip(*columns, made, strict=True)]


def arrange(batch: Batch, model: Model, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """A batch as the objective takes it, on the model's device.

    Where a picture is made of several objects, each one's own capsule has to draw it apart from the others.
    """
    device = next(model.parameters()).device
    images, targets = batch.images.to(device), batch.targets.to(device)
    labels, wanted = targets, images
    if batch.sources is not None:
        labels = torch.nn.functional.one_hot(batch.sources.classes, model.num_classes).to(device)  # (B, K, J)
        wanted = batch.sources.images.to(device)  # (B, K, C, H, W)
    counts = None if weights is None else example_weights(weights.to(device), targets)
    return images, labels, targets, wanted, counts


def held(objective: nn.Module, hold: bool):
    """Keep gradients to oneself until the last micro-batch: then one exchange serves all of them."""
    return objective.no_sync() if hold and isinstance(objective, DistributedDataParallel) else nullcontext()


@contextmanager
def keyed_dropout(seed: int, step: int, piece: int, device: torch.device) -> Iterator[None]:
    """Give whatever is random inside the model a generator that depends on (seed, step, piece of the batch) alone, and
    restore it after."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed((seed * 1_000_003 + step + piece * 0x9E3779B97F4A7C15) % 2**63)
        yield


@contextmanager
def explained(compiled: bool) -> Iterator[None]:
    """One sentence where torch.compile cannot do its work."""
    try:
        yield
    except Exception as error:
        if compiled and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            first = str(error).strip().partition("\n")[0]
            raise ValueError(f"torch.compile failed ({first}): train without --compile") from error
        raise
