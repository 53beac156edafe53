"""The gain of keeping freed memory (``capsnet.keep_freed_memory``): training steps with and without, alternating.

python -m benchmarks.page_faults [--recipe efficient] [--threads N] [--seconds S] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

import torch

from capsnet import data, keep_freed_memory, recipes
from capsnet.models import Loss
from capsnet.training.prepare import build, load_splits

WARM_UP = 3  # steps


def train(recipe: str, threads: int, seconds: float) -> tuple[float, float]:
    """Images per second, and the system's share of the processor time."""
    torch.set_num_threads(threads)
    config = recipes.get(recipe)
    training = load_splits(config)[0]
    model = build(config, training).train()
    started, before, images = 0.0, os.times(), 0
    for step, index in enumerate(data.batch_indices(len(training), config.batch_size)):
        if step == WARM_UP:
            started, before, images = time.perf_counter(), os.times(), 0
        batch = training.batch(index, augment=config.augment)
        loss: Loss = model.loss(model(batch.images, labels=batch.targets), batch.targets, batch.images)
        loss.total.backward()
        model.zero_grad(set_to_none=True)
        images += len(index)
        if step > WARM_UP and time.perf_counter() - started > seconds:
            break
    after, took = os.times(), time.perf_counter() - started
    system, user = after.system - before.system, after.user - before.user
    return images / took, system / (system + user)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="efficient")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", choices=("kept", "returned"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        if args.inside == "kept":
            keep_freed_memory()
        speed, system = train(args.recipe, args.threads, args.seconds)
        print(speed, system, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    rates: dict[str, list[list[float]]] = {"returned": [], "kept": []}
    for _ in range(args.rounds):
        for how, lines in rates.items():
            run = [sys.executable, "-m", "benchmarks.page_faults", *sys.argv[1:], "--inside", how]
            lines.append([float(word) for word in subprocess.check_output(run, text=True).split()])
    for how, lines in rates.items():
        speed, system, memory = (statistics.median(column) for column in zip(*lines, strict=True))
        print(f"{how:<9} {speed:>6.0f} images/s   {system:>5.1%} in the system   {memory:>6.0f} MB at most")


if __name__ == "__main__":
    main()
