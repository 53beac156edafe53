"""Micro-batching: requests that arrive together are computed together.

In a batch an image costs half (the small network) to a quarter (the paper's) of a single one: weights are read once for
all of them. So a request waits a moment for others, and those that arrive while a batch is computed form the next one.
The busier the server, the larger its batches, up to a limit. Beyond a number of waiting requests new ones are refused
at once: an answer after the client's timeout is wasted work.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from capsnet.serving.problems import Busy

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Limits:
    """The largest batch, and how much may wait."""

    largest: int = 32  # requests in one batch
    wait: float = 0.002  # seconds that the first request of a batch waits for others
    waiting: int = 256  # requests that are being prepared, waiting or computed; beyond, ``Busy``


class _Request(NamedTuple):
    item: Any
    answer: asyncio.Future


class Batcher(Generic[Item, Result]):
    """Collects requests of one kind and has them computed, a batch at a time, off the event loop.

    ``compute`` turns items into as many results, in a thread of ``workers``. If it fails, each item is computed alone,
    so that only the faulty one gets the error. Everything but ``compute`` runs on the event loop: no locks.
    """

    def __init__(
        self, compute: Callable[[list[Item]], list[Result]], workers: Callable[[], Executor], limits: Limits
    ) -> None:
        self._compute, self._workers, self.limits = compute, workers, limits
        self._queue: deque[_Request] = deque()
        self._running: asyncio.Task[None] | None = None
        self._inside = 0
        self.batches: deque[int] = deque(maxlen=1000)  # the sizes of the last ones

    async def ask(self, prepare: Callable[[], Item], preparing: Executor) -> Result:
        """Prepare one item in a thread of ``preparing``, then answer it together with others."""
        return (await self.ask_all(lambda: [prepare()], preparing))[0]

    async def ask_all(self, prepare: Callable[[], list[Item]], preparing: Executor) -> list[Result]:
        """The same for several items at once; an error of one is that of all."""
        if self._inside >= self.limits.waiting:
            raise Busy("images")
        self._inside, count = self._inside + 1, 1
        try:
            loop = asyncio.get_running_loop()
            requests = [_Request(item, loop.create_future()) for item in await loop.run_in_executor(preparing, prepare)]
            if self._inside - count + len(requests) > self.limits.waiting:
                raise Busy("images")
            self._inside, count = self._inside - count + len(requests), len(requests)
            self._queue.extend(requests)
            if self._running is None or self._running.done():
                self._running = loop.create_task(self._run())
            return list(await asyncio.gather(*(request.answer for request in requests)))
        finally:
            self._inside -= count

    async def _run(self) -> None:
        """Batch after batch until the queue is empty."""
        taken: list[_Request] = []
        try:
            if len(self._queue) < self.limits.largest:
                await asyncio.sleep(self.limits.wait)
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(self.limits.largest, len(self._queue)))]
                taken = [request for request in batch if not request.answer.done()]  # the others were cancelled
                if taken:
                    await self._compute_batch(taken)
        finally:  # when the server stops, nothing is left waiting
            for request in (*taken, *self._queue):
                request.answer.cancel()
            self._queue.clear()

    async def _compute_batch(self, taken: list[_Request]) -> None:
        loop = asyncio.get_running_loop()
        outcomes = await loop.run_in_executor(self._workers(), self._outcomes, [request.item for request in taken])
        self.batches.append(len(taken))
        for request, outcome in zip(taken, outcomes, strict=True):
            if request.answer.done():
                continue
            if isinstance(outcome, Exception):
                request.answer.set_exception(outcome)
            else:
                request.answer.set_result(outcome)

    def _outcomes(self, items: list[Item]) -> list[Result | Exception]:
        """Each item's result or error."""
        try:
            return list(self._compute(items))
        except Exception as error:
            if len(items) == 1:
                return [error]
        return [outcome for item in items for outcome in self._outcomes([item])]
