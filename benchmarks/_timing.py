"""Timing. Contenders alternate in one process, so that other load on the machine affects both equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int = 7, warm_up: int = 1) -> dict[str, float]:
    """Median seconds of each contender over ``rounds`` rounds in which each runs once."""
    for run in contenders.values():
        for _ in range(warm_up):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def matrix_product_peak(size: int = 2048, rounds: int = 9) -> float:
    """Floating-point operations per second of a large float32 matrix product: the peak of this process."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        times.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(times[1:])
