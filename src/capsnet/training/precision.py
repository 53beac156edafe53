"""In which precision a run computes: what the device has, and what ``precision="auto"`` chooses."""

import copy
import logging
import math
import statistics
import time

import torch
from torch.nn.parallel import DistributedDataParallel

from capsnet import data
from capsnet.data import Dataset
from capsnet.kernels import has_bf16
from capsnet.models import Model
from capsnet.training import distributed
from capsnet.training.balance import class_weights
from capsnet.training.checkpoint import State
from capsnet.training.config import TrainConfig
from capsnet.training.objective import DTYPES, Objective, backward, own_micro_batches
from capsnet.training.run import Run

log = logging.getLogger("capsnet")
LONG = 100  # steps of a run from which a measurement is worth its time
ROUNDS = 3  # measured steps of each precision
GAIN = 1.1  # bf16 must be so many times as fast, or fp32 is used


def check_precision(config: TrainConfig, device: torch.device) -> None:
    """Refuse bf16 on a CPU that does not have it: PyTorch would compute it, but more slowly than fp32."""
    if config.precision == "bf16" and device.type == "cpu" and not has_bf16():
        raise ValueError(
            "this CPU has no bfloat16 products, so precision bf16 would be slower than fp32: use fp32 or auto, or set "
            "the environment variable CAPSNET_BF16=1 to compute in bfloat16 all the same"
        )


def settle_precision(state: State, training: Dataset, run: Run) -> str:
    """The precision of a run, for its environment: with ``auto`` the one chosen here, or at the run's start."""
    config = state.config
    if config.precision != "auto":
        return config.precision
    state.examples = len(training)
    chosen = distributed.broadcast_from_main(run.first_precision) if state.step else None
    if chosen is None:
        chosen, why = choose_precision(config, state.model, training)
        log.info("precision auto: %s, because %s", chosen, why)
    objective = state.objective
    inner = objective.module if isinstance(objective, DistributedDataParallel) else objective
    assert isinstance(inner, Objective)
    inner.dtype = DTYPES[chosen]
    return chosen


def choose_precision(config: TrainConfig, model: Model, training: Dataset) -> tuple[str, str]:
    """bf16 if the device has it and the run's first steps are faster in it, else fp32; the same in all processes. The
    second value says why."""
    device = next(model.parameters()).device
    available = has_bf16() if device.type == "cpu" else device.type == "cuda" and _gpu_has_bf16()
    if not distributed.broadcast_from_main(lambda: available):
        return "fp32", "this device has no bfloat16 products"
    steps = math.ceil(len(training) / config.batch_size) * config.epochs
    if steps < LONG:
        return "fp32", f"a run of {steps} steps is too short to measure"
    measured = measure(config, model, training)  # by all processes: they compute at the same time
    seconds = distributed.broadcast_from_main(lambda: measured)
    gain = seconds["fp32"] / seconds["bf16"]
    chosen = "bf16" if gain >= GAIN else "fp32"
    return chosen, f"bf16 is {gain:.2f} times as fast as fp32 in the first steps"


def _gpu_has_bf16() -> bool:
    return torch.cuda.is_bf16_supported(including_emulation=False)


def measure(config: TrainConfig, model: Model, training: Dataset) -> dict[str, float]:
    """Median seconds of the forward and backward pass of the first batch, in fp32 and in bf16 by turns.

    On a copy of the model, not compiled. Data and dropout are keyed, so the run that follows is not affected.
    """
    model = copy.deepcopy(model).train()
    order = data.batch_indices(len(training), config.batch_size, seed=config.seed, epoch=0, shuffle=True)
    parts = own_micro_batches(config, training, next(iter(order)), 0)
    weights = class_weights(training) if config.class_weights else None
    device = next(model.parameters()).device
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    objectives = {precision: Objective(model, precision) for precision in ("fp32", "bf16")}
    seconds: dict[str, list[float]] = {precision: [] for precision in objectives}
    for _ in range(1 + ROUNDS):  # the first round is a warm-up
        for precision, objective in objectives.items():
            model.zero_grad(set_to_none=True)
            start = time.perf_counter()
            backward(config, objective, model, scaler, parts, weights, 0)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[precision].append(time.perf_counter() - start)
    return {precision: statistics.median(values[1:]) for precision, values in seconds.items()}
