"""Make the next batch in a background thread while the caller uses this one.

What a batch holds depends on its indices only (randomness is keyed), so it does not matter when it is made.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")

AHEAD = 2  # batches


def made_ahead(make: Callable[[A], B], items: Iterable[A], ahead: int = AHEAD) -> Generator[tuple[A, B], None, None]:
    """Yield (item, make(item)) in order, made up to ``ahead`` items early by one other thread.

    An error in ``make`` is raised here when its item is due. Closing the generator ends the thread. PyTorch's
    operations use one core in that thread, because the caller uses the others.
    """
    waiting: deque[tuple[A, Future[B]]] = deque()
    pool = ThreadPoolExecutor(1, "capsnet-data")
    try:
        threads = torch.get_num_threads()
        if threads > 1:
            pool.submit(_use_one_thread).result()
            torch.set_num_threads(threads)  # threads that others start later take the last value set
        for item in items:
            waiting.append((item, pool.submit(make, item)))
            if len(waiting) > ahead:
                first, made = waiting.popleft()
                yield first, made.result()
        while waiting:
            first, made = waiting.popleft()
            yield first, made.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _use_one_thread() -> None:
    torch.get_num_threads()  # the first call in a thread takes the process's number, also after set_num_threads
    torch.set_num_threads(1)
