"""The state of a run between two steps: everything that an exact resume needs."""

import io
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from capsnet._digest import digest
from capsnet._files import write_atomically
from capsnet.data.fingerprint import find_difference
from capsnet.layers import PrimaryCaps
from capsnet.models import Model
from capsnet.training import distributed
from capsnet.training.config import TrainConfig
from capsnet.training.objective import Objective
from capsnet.training.optim import make_optimizer
from capsnet.training.teacher import load_teacher

log = logging.getLogger("capsnet")


class Diverged(ValueError):
    """The loss, a gradient or a weight is no longer a number."""


class Step(NamedTuple):
    """The losses of a step, not yet read."""

    number: int  # from 1
    batch: int  # of the epoch, from 1
    count: int  # examples
    rate: float  # learning rate
    names: tuple[str, ...]  # of the losses
    values: Tensor  # the losses, then the norm of the gradients


@dataclass
class State:
    """The progress of a run. Randomness is keyed by (seed, epoch, example), so there is no generator to save."""

    config: TrainConfig
    model: Model
    objective: nn.Module  # the model and its loss, data parallel over all processes
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # keeps small gradients above zero in fp16; otherwise disabled
    average: AveragedModel | None
    epoch: int = 0  # epochs finished
    batch: int = 0  # batches of the current epoch done
    step: int = 0  # steps in all
    unread: list[Step] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=dict)  # losses, learning rate, gradient norm of the last step read
    sums: dict[str, float] = field(default_factory=dict)  # losses of the current epoch so far, times examples
    seen: int = 0  # examples of the current epoch so far
    spent: float = 0.0  # seconds of training on them, over all resumes
    examples: int = 0  # of an epoch: another number would change the order
    data: dict[str, dict[str, Any]] = field(default_factory=dict)  # the fingerprint of each split
    best_score: float = -1.0
    best_epoch: int = 0
    best_weights: dict[str, torch.Tensor] | None = None

    def spend(self, since: float) -> float:
        """Add the seconds since ``since`` to the epoch; returns now."""
        now = time.perf_counter()
        self.spent += now - since
        return now

    @property
    def steps(self) -> int:
        """The number of steps of the whole run."""
        return math.ceil(self.examples / self.config.batch_size) * self.config.epochs

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the validation accuracy is good enough to stop."""
        stop_at = self.config.stop_at
        return self.epoch >= self.config.epochs or (stop_at is not None and self.best_score >= stop_at)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def tested(self) -> Model:
        """The model that gets evaluated: the average of the weights where there is one."""
        return self.model if self.average is None else self.average.module  # type: ignore[return-value]


def new_state(config: TrainConfig, model: Model, compiled: bool = False) -> State:
    objective = Objective(model, config.precision, load_teacher(config, model), config.teacher_weight)
    if compiled:
        objective.compile()
    parallel, average = distributed.data_parallel(objective), None  # from here on all processes have equal weights
    if config.ema is not None:
        average = AveragedModel(model, multi_avg_fn=moving_average(config.ema), use_buffers=True)
    scaler = torch.amp.GradScaler(next(model.parameters()).device.type, enabled=config.precision == "fp16")
    return State(config, model, parallel, make_optimizer(config, model), scaler, average)


def moving_average(decay: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]:
    """An exponential average over the last tenth of the steps so far, until ``decay`` averages over fewer.

    With a constant 0.999 the random initial weights are still a third of the average after a thousand steps. Integers
    (counters) are copied.
    """

    def update(averaged: Sequence[Tensor], current: Sequence[Tensor], count: Tensor | int) -> None:
        steps = int(count)
        keep = min(decay, (1 + steps) / (10 + steps))
        floats = [pair for pair in zip(averaged, current, strict=True) if pair[0].is_floating_point()]
        if floats:
            lerp: Any = torch._foreach_lerp_  # type: ignore[attr-defined]
            lerp(*map(list, zip(*floats, strict=True)), 1 - keep)
        for mean, new in zip(averaged, current, strict=True):
            if not mean.is_floating_point():
                mean.copy_(new)

    return update


@torch.no_grad()
def update_average(average: AveragedModel, model: nn.Module, decay: float | None, count: int) -> None:
    """``average.update_parameters(model)`` after ``count`` others, which it would read from the device."""
    means, values = ([*module.parameters(), *module.buffers()] for module in (average.module, model))
    if count == 0:
        for mean, new in zip(means, values, strict=True):
            mean.copy_(new)
    else:
        moving_average(decay or 0.0)(means, values, count)
    average.n_averaged += 1


_PLAIN = ("epoch", "batch", "step", "sums", "seen", "spent", "best_score", "best_epoch", "best_weights")


def save_checkpoint(state: State, path: str | Path) -> None:
    """Write the state atomically; the previous checkpoint survives any failure.

    A state with weights that are not finite is not written. All processes have the same state, so the main one writes
    it and any number of processes can read it.
    """
    check_finite(state, path)
    if not distributed.is_main():
        return
    content: dict[str, Any] = {key: getattr(state, key) for key in (*_PLAIN, "examples", "data")}
    content["model"] = state.model.state_dict()
    content["optimizer"] = state.optimizer.state_dict()
    content["scaler"] = state.scaler.state_dict()
    content["average"] = None if state.average is None else state.average.state_dict()
    content["format"] = 2
    content["digest"] = digest(content)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def check_finite(state: State, checkpoint: str | Path) -> None:
    """Stop a run whose weights are no longer finite."""
    for name, weight in state.model.named_parameters():
        if not weight.isfinite().all():
            raise Diverged(
                f"training diverged: {name} is no longer finite after step {state.step}; "
                f"{last_checkpoint(checkpoint)}. Try a lower --lr or --clip 1"
            )


def last_checkpoint(checkpoint: str | Path) -> str:
    return f"the last good checkpoint is {checkpoint}" if Path(checkpoint).is_file() else "there is no checkpoint yet"


def load_checkpoint(state: State, path: str | Path) -> None:
    """Load a saved state into a new one of the same config. Loads tensors and plain values only, no code.

    The main process reads the file and sends it to the others, which may be on other machines.
    """
    content = read_checkpoint(distributed.broadcast_from_main(Path(path).read_bytes), path)
    try:
        scaled = any(layer.scale != 1 for layer in state.model.modules() if isinstance(layer, PrimaryCaps))
        if scaled and content.get("format", 1) < 2:
            raise ValueError("the scale of primary capsules multiplied their bias too")
        state.model.load_state_dict(content["model"])
        state.optimizer.load_state_dict(content["optimizer"])
        state.scaler.load_state_dict(content.get("scaler", {}))  # older checkpoints have none
        if state.average is not None:
            state.average.load_state_dict(content["average"])
        for key in _PLAIN:
            setattr(state, key, content.get(key, 0.0) if key == "spent" else content[key])  # older ones have no time
    except (RuntimeError, KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(
            f"{path} is not a usable checkpoint: it was written for another model or by another version; finish the "
            "run with the version that began it, or start a new one"
        ) from None
    check_data(state, content, path)


def read_checkpoint(saved: bytes, path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, if it is what was written."""
    try:
        content = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
        expected = content.pop("digest", None)
        intact = expected is None or digest(content) == expected
    except Exception:  # a damaged pickle can fail in any way
        intact, expected, content = False, None, {}
    if not intact:
        raise ValueError(f"{path} is not a usable checkpoint: it is damaged; restore it, or start a new run")
    if expected is None:
        log.warning("%s is of an older version and has no digest: damage to it would not be noticed", path)
    return content


def check_data(state: State, content: dict[str, Any], path: str | Path) -> None:
    """Refuse to go on with other data than the run was begun with: half of each would be in its weights."""
    before = content.get("examples") or 0  # older checkpoints do not say
    if before and state.examples and before != state.examples:
        raise ValueError(
            f"the run of {path} was begun with {before:,} training examples, now there are {state.examples:,}: "
            "restore the data, or start a new run"
        )
    if state.data and not content.get("data"):
        log.warning("%s is of an older version: whether the data is still the same is not checked", path)
    for split, prints in (content.get("data") or {}).items():
        difference = find_difference(prints, state.data[split]) if split in state.data else None
        if difference:
            raise ValueError(
                f"the run of {path} was begun with another {split} split: {difference}; restore the data, or start a "
                "new run"
            )
