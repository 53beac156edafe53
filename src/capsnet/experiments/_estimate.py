"""Estimate how long an experiment takes: time a few steps of each network that is still to be trained."""

import dataclasses
import time
from collections.abc import Sequence
from statistics import median

import torch

from capsnet import data
from capsnet.experiments._nets import training_step
from capsnet.experiments._report import duration
from capsnet.experiments.lab import Lab, fingerprint, resolved
from capsnet.training import Run, TrainConfig

STEPS = 2  # timed, after one to warm up


def sentence(name: str, lab: Lab, plan: Sequence[TrainConfig]) -> str:
    """The question to ask before it starts."""
    todo = [config for config in plan if lab.fresh or not Run(lab.where(config)).finished]
    if not todo:
        return f"{name}: all {len(plan)} training runs are finished; the rest takes minutes"
    seconds = estimate(todo, lab.device)
    size = "one training run" if len(todo) == 1 else f"{len(todo)} training runs"
    return f"{name}: {size} to do, about {duration(seconds)} on this machine"


def estimate(configs: Sequence[TrainConfig], device: str = "auto") -> float:
    """Seconds of training. Runs that differ in their seed or number of epochs only are timed once."""
    pace: dict[str, float] = {}
    total = 0.0
    for config in map(resolved, configs):
        kind = fingerprint(dataclasses.replace(config, seed=0, epochs=1))
        if kind not in pace:
            [pace[kind]] = seconds_per_epoch([config], device)
        total += config.epochs * pace[kind]
    return total


def seconds_per_epoch(configs: Sequence[TrainConfig], device: str, steps: int = STEPS) -> list[float]:
    """From the median time of some training steps of each network. They take turns, so that other work on the machine
    slows down all of them. The optimiser, validation and checkpoints are left out: they cost little."""
    networks = [(training_step(config, device), []) for config in configs]
    for _ in range(1 + steps):  # the first one warms up
        for step, times in networks:
            started = time.perf_counter()
            size = step()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append((time.perf_counter() - started) / size)
    sizes = [len(data.load(config.data, config.train_on)) for config in configs]
    images = [min(size, config.limit or size) for size, config in zip(sizes, configs, strict=True)]
    return [count * median(times[1:]) for count, (_, times) in zip(images, networks, strict=True)]
