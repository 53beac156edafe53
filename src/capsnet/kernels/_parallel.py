"""A few threads, each doing whole pieces of work by itself.

PyTorch divides every single operation among its threads and waits for all of them before the next. A thousand
operations of a tenth of a millisecond have a thousand such barriers, and on a busy machine each of them waits for a
thread that is not scheduled: a training step of 0.5 seconds took 26. Here a thread takes a piece (some images, some
channels), runs all operations on it in its own cache, and there is one barrier at the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

_MOST = 16  # threads: each needs scratch of its own
_crews: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()


def slots(pieces: int) -> int:
    """How many threads divide that many pieces."""
    return max(1, min(torch.get_num_threads(), pieces, _MOST))


def each(pieces: Sequence[T], work: Callable[[int, T], None]) -> None:
    """work(slot, piece) for every piece. Pieces of one slot are done in order, by one thread, different slots at once.

    The assignment of pieces to slots is fixed, so sums that are collected by slot are the same in every run.
    """
    count = slots(len(pieces))
    inference = torch.is_inference_mode_enabled()

    def work_off(slot: int) -> None:
        with torch.inference_mode(inference), torch.no_grad():  # both are settings of the thread, not of the program
            for piece in pieces[slot::count]:
                work(slot, piece)

    if count == 1:
        work_off(0)
        return
    for future in [_crew(count).submit(work_off, slot) for slot in range(count)]:
        future.result()


def _crew(size: int) -> ThreadPoolExecutor:
    """The threads, started on first use; new ones in a forked process, which inherits none."""
    key = os.getpid(), size
    with _lock:
        if key not in _crews:
            barrier = threading.Barrier(size + 1)

            def begin() -> None:
                torch.set_num_threads(1)  # for operations that this thread will start
                barrier.wait()

            _crews[key] = ThreadPoolExecutor(size, "capsnet", initializer=begin)
            for _ in range(size):
                _crews[key].submit(lambda: None)
            barrier.wait()
            torch.set_num_threads(torch.get_num_threads())  # threads that others start later take the last value set
        return _crews[key]
