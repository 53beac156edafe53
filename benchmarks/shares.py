"""Where the time of a training step goes: images/s, and the operators with the largest shares.

python -m benchmarks.shares [RECIPE] [--threads N] [--batch N]

Shares are of the time of all operators by torch's profiler, each without the operators that it calls.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from capsnet import keep_freed_memory, recipes
from capsnet.experiments._nets import training_step

SHOWN = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="matrix")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as `capsnet train` does
    step = training_step(recipes.get(args.recipe, batch_size=args.batch))
    rates = []
    for _ in range(10):
        start = time.perf_counter()
        rates.append(step() / (time.perf_counter() - start))
    print(f"{args.recipe}, {args.threads} threads: {statistics.median(rates[3:]):.0f} images/s")
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    operators = sorted(seen.key_averages(), key=lambda one: -one.self_cpu_time_total)
    total = sum(one.self_cpu_time_total for one in operators)
    for one in operators[:SHOWN]:
        print(f"{one.self_cpu_time_total / total:7.1%} {one.count:6} {one.key}")


if __name__ == "__main__":
    main()
