"""Computations of the benchmarks, and the table at its smallest sizes."""

import pytest

from benchmarks import __main__ as bench
from benchmarks import table
from benchmarks.time_to_accuracy import reached
from capsnet import routing


def test_time_to_accuracy_is_that_of_the_first_epoch_reaching_it() -> None:
    lines = [{"seconds": 10.0, "val_accuracy": a} for a in (0.97, 0.985, 0.9899, 0.99, 0.989)]
    assert reached(lines) == [20.0, 40.0, None]
    assert reached([]) == [None, None, None]


def test_table_has_every_row_and_says_why_a_cell_is_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything once, at the smallest sizes, on a CPU without bfloat16."""
    monkeypatch.setattr(table, "has_bf16", lambda: False)
    bench.main(["--quick", "--threads", "1"])
    output = capsys.readouterr()
    lines = [line for line in output.out.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == table.HEADER
    assert len({line.count("|") for line in lines}) == 1
    expected = ["matrix product", "reading memory", "training", "inference", "one image", "Efficient", "EM"]
    expected += [f"routing {name}," for name in routing.list_forms()]
    assert all(any(what in line for line in lines) for what in expected)
    assert "no bf16" in output.out
    assert "routings: alternating" in output.err


def test_row_that_is_unknown_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["trian"])
    assert "unknown row 'trian': choose from train, inference" in capsys.readouterr().err


def test_cells_of_a_row_are_compared_in_the_right_direction() -> None:
    rate = table.Measured("a, images/s", "2", {"this": 300.0, "textbook": 100.0, "compiled": "no C++ compiler"})
    assert rate.line() == ["a, images/s", "300", "", "100", "", "no C++ compiler", "3.00", "", "2"]
    time = table.Measured("b, ms", "", {"this": 2.0, "textbook": 5.0, "compiled": 3.0}, more_is_better=False)
    assert time.line()[6:8] == ["2.50", "1.50"]
    other = table.Measured("c, ms", "", {"this": 6.0}, more_is_better=False, relative_to=3.0)
    assert other.line()[6] == "2.00 x dynamic"
