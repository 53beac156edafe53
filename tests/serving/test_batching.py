"""The batcher: batches up to the limit, errors of single items, cancelled requests."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from capsnet.serving.batching import Batcher, Busy, Limits


def batched(use: Callable[[Batcher[int, int], ThreadPoolExecutor], Any], compute: Any, **limits: Any) -> Any:
    with ThreadPoolExecutor(1) as workers, ThreadPoolExecutor(4) as preparing, ThreadPoolExecutor(1) as loop:

        async def main() -> Any:
            return await use(Batcher(compute, lambda: workers, Limits(**limits)), preparing)

        return loop.submit(asyncio.run, main()).result()  # Playwright has a loop in the main thread


def test_batches_grow_up_to_the_limit() -> None:
    sizes: list[int] = []
    go_on = threading.Event()

    def double(items: list[int]) -> list[int]:
        sizes.append(len(items))
        assert go_on.wait(60)
        return [2 * item for item in items]

    async def use(batcher: Batcher[int, int], preparing: ThreadPoolExecutor) -> list[int]:
        first = asyncio.create_task(batcher.ask(lambda: 25, preparing))
        while not sizes:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.ask(lambda n=n: n, preparing)) for n in range(25)]
        while len(batcher._queue) < 25:  # they arrive while the first is computed
            await asyncio.sleep(0.001)
        go_on.set()
        return await asyncio.gather(*others, first)

    assert batched(use, double, largest=10) == [2 * n for n in range(26)]
    assert sizes == [1, 10, 10, 5]


def test_failing_item_fails_alone() -> None:
    def fragile(items: list[int]) -> list[int]:
        if 3 in items:
            raise ValueError("three")
        return items

    async def use(batcher: Batcher[int, int], preparing: ThreadPoolExecutor) -> list[Any]:
        def prepare(n: int) -> int:
            if n == 5:
                raise KeyError(n)
            return n

        asked = (batcher.ask(lambda n=n: prepare(n), preparing) for n in range(7))
        return await asyncio.gather(*asked, return_exceptions=True)

    got = batched(use, fragile, wait=0.05)
    assert [type(item) for item in got] == [int, int, int, ValueError, int, KeyError, int]


def test_several_items_of_a_request_count_one_by_one() -> None:
    def compute(items: list[int]) -> list[int]:
        return [1 // item for item in items]

    async def use(batcher: Batcher[int, int], preparing: ThreadPoolExecutor) -> list[Any]:
        asked: list[list[int]] = [[1] * 3, [1] * 6, [1, 0, 1], [1] * 5]
        found = []
        for items in asked:
            one = batcher.ask_all(lambda items=items: items, preparing)
            found += await asyncio.gather(one, return_exceptions=True)
        return found

    three, six, failed, five = batched(use, compute, waiting=5, wait=0.01)
    assert (three, five) == ([1] * 3, [1] * 5)  # nothing of those between is still counted
    assert isinstance(six, Busy)
    assert isinstance(failed, ZeroDivisionError)


def test_cancelled_requests_are_not_computed() -> None:
    seen: list[int] = []

    def compute(items: list[int]) -> list[int]:
        seen.extend(items)
        return items

    async def use(batcher: Batcher[int, int], preparing: ThreadPoolExecutor) -> int:
        gone = asyncio.create_task(batcher.ask(lambda: 1, preparing))
        await asyncio.sleep(0.05)
        gone.cancel()
        stays = await batcher.ask(lambda: 2, preparing)
        batcher.limits.waiting = 0
        with pytest.raises(Busy):
            await batcher.ask(lambda: 3, preparing)
        return stays

    assert batched(use, compute, wait=0.3) == 2
    assert seen == [2]
