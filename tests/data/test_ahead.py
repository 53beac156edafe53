"""Batches made in a background thread: the same ones, in order; errors arrive; no thread is left."""

import threading
from contextlib import closing

import pytest
import torch

from capsnet.data.ahead import made_ahead


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("capsnet-data")]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_items_come_in_order(count: int, ahead: int) -> None:
    assert list(made_ahead(lambda n: n * n, range(count), ahead)) == [(n, n * n) for n in range(count)]
    assert not helpers()


def test_next_item_is_made_while_the_caller_works() -> None:
    begun = [threading.Event() for _ in range(4)]

    def make(n: int) -> int:
        begun[n].set()
        return n

    with closing(made_ahead(make, range(4), 1)) as items:
        next(items)
        assert begun[1].wait(10)
        assert not begun[2].wait(0.05)  # no more than asked for


def test_error_arrives_with_its_item() -> None:
    def make(n: int) -> int:
        if n == 2:
            raise ValueError("a broken file")
        return n

    items = made_ahead(make, range(5))
    assert [next(items), next(items)] == [(0, 0), (1, 1)]
    with pytest.raises(ValueError, match="a broken file"):
        next(items)
    assert not helpers()


def test_error_of_the_caller_ends_the_thread() -> None:
    made: list[int] = []

    def interrupted() -> None:
        with closing(made_ahead(made.append, range(1000))) as items:
            for n, _ in items:
                if n == 3:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not helpers()
    assert len(made) <= 6


def test_background_operations_use_one_thread_and_the_callers_number_stays() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert [made for _, made in made_ahead(lambda _: torch.get_num_threads(), range(3))] == [1, 1, 1]
        assert torch.get_num_threads() == 3
        others: list[int] = []
        thread = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert others == [3]
    finally:
        torch.set_num_threads(before)
