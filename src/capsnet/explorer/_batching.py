"""Micro-batching: questions that arrive together are computed together.

A picture among others costs a half (the small network) to a quarter (the paper's) of a single one: weights are fetched
once for all of them. So a question waits a moment for others, and those that arrive while a batch is being computed
form the next one. The busier the server, the larger its batches, up to a limit; beyond a number of waiting questions it
says so at once, because an answer that comes after the asker has given up is work for nobody.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Busy(Exception):
    """Too many are waiting: come back later."""


@dataclass
class Limits:
    """How much is done together, and how much may wait."""

    largest: int = 32  # questions in one batch
    wait: float = 0.002  # seconds that the first question of a batch waits for others
    waiting: int = 256  # questions that are being prepared, waiting or computed; beyond, ``Busy``


class _Asked(NamedTuple):
    item: Any
    answer: asyncio.Future


class Batcher(Generic[Item, Result]):
    """Collects questions of one kind and has them computed, a batch at a time, off the event loop.

    ``compute`` turns items into as many results, in a thread of ``workers``. If it fails, each item is computed alone,
    so that only the one at fault gets the error. Everything but ``compute`` happens on the event loop: no locks.
    """

    def __init__(
        self, compute: Callable[[list[Item]], list[Result]], workers: Callable[[], Executor], limits: Limits
    ) -> None:
        self._compute, self._workers, self.limits = compute, workers, limits
        self._queue: deque[_Asked] = deque()
        self._running: asyncio.Task[None] | None = None
        self._inside = 0
        self.batches: deque[int] = deque(maxlen=1000)  # the sizes of the last ones, for people to look at

    async def ask(self, prepare: Callable[[], Item], preparing: Executor) -> Result:
        """Prepare one item in a thread of ``preparing``, then answer it together with others."""
        if self._inside >= self.limits.waiting:
            raise Busy
        self._inside += 1
        try:
            item = await asyncio.get_running_loop().run_in_executor(preparing, prepare)
            return await self._answer(item)
        finally:
            self._inside -= 1

    def _answer(self, item: Item) -> "asyncio.Future[Result]":
        loop = asyncio.get_running_loop()
        asked = _Asked(item, loop.create_future())
        self._queue.append(asked)
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._run())
        return asked.answer

    async def _run(self) -> None:
        """Batch after batch until nobody waits."""
        taken: list[_Asked] = []
        try:
            if len(self._queue) < self.limits.largest:
                await asyncio.sleep(self.limits.wait)
            while self._queue:
                some = [self._queue.popleft() for _ in range(min(self.limits.largest, len(self._queue)))]
                taken = [asked for asked in some if not asked.answer.done()]  # others have hung up
                if taken:
                    await self._compute_batch(taken)
        finally:  # the server closes: nobody is left waiting for ever
            for asked in (*taken, *self._queue):
                asked.answer.cancel()
            self._queue.clear()

    async def _compute_batch(self, taken: list[_Asked]) -> None:
        loop = asyncio.get_running_loop()
        outcomes = await loop.run_in_executor(self._workers(), self._outcomes, [asked.item for asked in taken])
        self.batches.append(len(taken))
        for asked, outcome in zip(taken, outcomes, strict=True):
            if asked.answer.done():
                continue
            if isinstance(outcome, Exception):
                asked.answer.set_exception(outcome)
            else:
                asked.answer.set_result(outcome)

    def _outcomes(self, items: list[Item]) -> list[Result | Exception]:
        """Each item's result or error."""
        try:
            return list(self._compute(items))
        except Exception as error:
            if len(items) == 1:
                return [error]
        return [outcome for item in items for outcome in self._outcomes([item])]
