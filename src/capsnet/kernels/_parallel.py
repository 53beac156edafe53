"""Threads that each run all operations on a piece of the work.

PyTorch divides every operation among its threads and waits for all of them before the next. Many short operations have
as many barriers, and on a busy machine each waits for a thread that is not scheduled: a training step of 0.5 seconds
took 26. Here a thread takes a piece (some images, some channels), runs all operations on it in its own cache, and there
is one barrier at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

_MOST = 16  # threads: each needs its own scratch memory
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()


def slots(pieces: int) -> int:
    """The number of threads for that many pieces."""
    return max(1, min(torch.get_num_threads(), pieces, _MOST))


def each(pieces: Sequence[T], work: Callable[[int, T], None]) -> None:
    """Call work(slot, piece) for every piece: those of one slot in order, in one thread; the slots in parallel.

    The assignment of pieces to slots is fixed, so sums that are collected by slot are the same in every run.
    """
    count = slots(len(pieces))
    inference = torch.is_inference_mode_enabled()

    def run(slot: int) -> None:
        with torch.inference_mode(inference), torch.no_grad():  # both are settings of the thread
            for piece in pieces[slot::count]:
                work(slot, piece)

    if count == 1:
        run(0)
        return
    for future in [_pool(count).submit(run, slot) for slot in range(count)]:
        future.result()


def _pool(size: int) -> ThreadPoolExecutor:
    """The threads, started on first use; new ones in a forked process, which inherits none."""
    key = os.getpid(), size
    with _lock:
        if key not in _pools:
            barrier = threading.Barrier(size + 1)

            def begin() -> None:
                torch.get_num_threads()  # else the thread's first operation takes the process's number again
                torch.set_num_threads(1)  # for the operations of this thread
                barrier.wait()

            _pools[key] = ThreadPoolExecutor(size, "capsnet", initializer=begin)
            for _ in range(size):
                _pools[key].submit(lambda: None)
            barrier.wait()
            torch.set_num_threads(torch.get_num_threads())  # threads that others start later take the last value set
        return _pools[key]
