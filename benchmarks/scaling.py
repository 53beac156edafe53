"""Predicted throughput of N processes: a small model of compute and communication with two measured inputs.

python -m benchmarks.scaling --step-ms 115 --batch 128 --gradient-mb 5.1 [--node-gbs 200] [--net-gbs 25] [--help]

Assumptions:
- every process computes as fast as the measured one, and none waits for data;
- a step is ``fixed`` milliseconds that do not depend on the batch (launching, the optimiser) plus time proportional to
  the examples; two thirds of that time are the backward pass;
- gradients of M bytes are summed over N processes by a ring, 2 (N - 1) / N * M / bandwidth + 2 (N - 1) * latency, or by
  a tree, 2 M / bandwidth + 2 log2(N) * latency, whichever is faster (as NCCL chooses);
- within one machine bandwidth and latency are the machine's, beyond it the network's, per GPU;
- a fraction ``overlap`` of the backward pass hides that exchange; two small reductions per step (losses, stop) take
  a tree's latency each and are not hidden;
- no stragglers, congestion or checkpoints: real clusters are slower.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, fields
from typing import NamedTuple

BACKWARD = 2 / 3  # of the time that goes with the examples
SMALL_SUMS = 2  # per step


@dataclass(frozen=True)
class Cluster:
    """Measured and assumed values. Times in milliseconds, bandwidths in GB/s per GPU."""

    step_ms: float = 115.0  # one process, `batch` examples
    batch: int = 128
    gradient_mb: float = 5.12
    fixed_ms: float = 2.0
    overlap: float = 0.7
    per_node: int = 8
    node_gbs: float = 200.0
    net_gbs: float = 25.0
    node_us: float = 5.0
    net_us: float = 15.0


class Forecast(NamedTuple):
    """One step of N processes."""

    compute_ms: float
    exchange_ms: float  # of gradients, hidden or not
    step_ms: float
    images_per_second: float
    efficiency: float  # against N times one process


def exchange(c: Cluster, processes: int, megabytes: float) -> float:
    """Milliseconds to sum so many megabytes over all processes."""
    if processes == 1:
        return 0.0
    inside = processes <= c.per_node
    rate = c.node_gbs if inside else c.net_gbs  # GB/s are MB/ms
    hop = (c.node_us if inside else c.net_us) / 1000
    ring = 2 * (processes - 1) / processes * megabytes / rate + 2 * (processes - 1) * hop
    tree = 2 * megabytes / rate + 2 * math.ceil(math.log2(processes)) * hop
    return min(ring, tree)


def forecast(c: Cluster, processes: int, per_process: float) -> Forecast:
    """The forecast for N processes with ``per_process`` examples each."""
    moving = (c.step_ms - c.fixed_ms) * per_process / c.batch
    total = exchange(c, processes, c.gradient_mb)
    waiting = max(0.0, total - c.overlap * BACKWARD * moving) + SMALL_SUMS * exchange(c, processes, 0.0)
    step = c.fixed_ms + moving + waiting
    rate = 1000 * processes * per_process / step
    return Forecast(c.fixed_ms + moving, total, step, rate, rate / (processes * 1000 * c.batch / c.step_ms))


def table(c: Cluster) -> None:
    print(f"measured: {c.step_ms:g} ms for {c.batch} examples on one process, {c.gradient_mb:g} MB of gradients")
    print(f"{'':>9} | {c.batch} examples per process{'':<22} | {c.batch} examples in all, shared")
    print(f"{'processes':>9} | {'exchange':>9} {'step':>9} {'images/s':>12} {'of ideal':>9} | "
          f"{'step':>9} {'images/s':>12} {'of ideal':>9}")  # fmt: skip
    for power in range(11):
        n = 2**power
        grown = forecast(c, n, c.batch)
        line = f"{n:>9} | {grown.exchange_ms:>6.2f} ms {grown.step_ms:>6.1f} ms {grown.images_per_second:>12,.0f} "
        line += f"{grown.efficiency:>9.0%} | "
        if n <= c.batch:
            shared = forecast(c, n, c.batch / n)
            line += f"{shared.step_ms:>6.1f} ms {shared.images_per_second:>12,.0f} {shared.efficiency:>9.0%}"
        else:
            line += f"{'more processes than examples':>32}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Cluster):
        kind = int if field.name in ("batch", "per_node") else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    cluster = Cluster(**vars(parser.parse_args()))
    if cluster.fixed_ms >= cluster.step_ms or min(vars(cluster).values()) < 0 or not 0 <= cluster.overlap <= 1:
        parser.error("times and sizes must be positive, fixed-ms below step-ms, overlap between 0 and 1")
    table(cluster)


if __name__ == "__main__":
    main()
