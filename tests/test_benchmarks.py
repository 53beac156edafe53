"""Computations of the benchmarks."""

from benchmarks.time_to_accuracy import reached


def test_time_to_accuracy_is_that_of_the_first_epoch_reaching_it() -> None:
    lines = [{"seconds": 10.0, "val_accuracy": a} for a in (0.97, 0.985, 0.9899, 0.99, 0.989)]
    assert reached(lines) == [20.0, 40.0, None]
    assert reached([]) == [None, None, None]
