"""Estimate how long an experiment takes: time a few steps of each network that is still to be trained."""

import time
from collections.abc import Sequence
from statistics import median

import torch

from capsnet import data
from capsnet.experiments._nets import training_step
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
    """Seconds of training. Each distinct network is timed once, at its own batch size."""
    pace: dict[str, float] = {}
    total = 0.0
    for config in configs:
        config = resolved(config)
        training = data.load(config.data, config.train_on)
        size = min(len(training), config.limit or len(training))
        kind = fingerprint({"m": config.model, "o": config.create_options(), "d": config.data, "b": config.batch_size})
        if kind not in pace:
            [pace[kind]] = seconds_per_image([config], device)
        total += config.epochs * size * pace[kind]
    return total


def seconds_per_image(configs: Sequence[TrainConfig], device: str, steps: int = STEPS) -> list[float]:
    """Median time of some training steps of each network. The networks take turns, so that other work on the machine
    slows down all of them. The optimiser, validation and checkpoints are left out: they cost little."""
    networks = [(training_step(config, device), []) for config in configs]
    for _ in range(1 + steps):  # the first one warms up
        for step, times in networks:
            started = time.perf_counter()
            size = step()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append((time.perf_counter() - started) / size)
    return [median(times[1:]) for _, times in networks]


def duration(seconds: float) -> str:
    """``40 seconds``, ``12 minutes``, ``7 hours``, ``3 days``."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {word}s"
    return f"{max(1, round(seconds))} seconds"
