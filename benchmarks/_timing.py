"""Timing. Contenders alternate in one process, so that other load on the machine affects all equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def alternate(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 7, warm_up: int = 1, burst: int = 1
) -> dict[str, float]:
    """Median seconds of each contender over ``rounds`` rounds in which each has its turn.

    A turn is one call, or ``burst`` calls after one that is not counted: with short calls the first of a turn pays for
    bringing its weights back into the cache.
    """
    for run in contenders.values():
        for _ in range(warm_up):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            if burst > 1:
                run()
            for _ in range(burst):
                start = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def matrix_product_peak(dtype: torch.dtype = torch.float32, size: int = 2048, rounds: int = 9) -> float:
    """Floating-point operations per second of a large matrix product: the peak of this process."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    out = torch.empty(size, size, dtype=dtype)
    median = alternate({"product": lambda: torch.mm(a, b, out=out)}, rounds)["product"]
    return 2 * size**3 / median


def memory_bandwidth(megabytes: int = 256, rounds: int = 9) -> float:
    """Bytes per second of reading memory that is larger than the caches: a sum."""
    values = torch.ones(megabytes * 250_000)
    return values.nbytes / alternate({"sum": values.sum}, rounds)["sum"]
