"""Error against overlap: bins, errors and the crossing, on cases worked out by hand."""

import numpy as np
import pytest

from capsnet.experiments import overlap
from capsnet.experiments.lab import Lab
from capsnet.metrics import Measure, wilson_interval


def curve(*errors: float) -> list[Measure]:
    return [Measure("bin", [error], interval=(error - 0.1, error + 0.1)) for error in errors]


def test_bins_include_their_upper_end() -> None:
    values = np.array([0.0, 0.05, 0.1, 0.1001, 0.95, 1.0, 0.0])
    bins = overlap.sort_into_bins(values)
    assert {name: members.tolist() for name, members in bins.items()} == {
        "none": [0, 6],
        "0 to 10 %": [1, 2],
        "10 to 20 %": [3],
        "90 to 100 %": [4, 5],
    }
    assert list(overlap.sort_into_bins(values, fewest=2)) == ["none", "0 to 10 %", "90 to 100 %"]
    everywhere = overlap.sort_into_bins(np.arange(1001) / 1000)
    assert sum(len(members) for members in everywhere.values()) == 1001
    assert [len(members) for members in everywhere.values()] == [1] + [100] * 10


def test_bin_errors_average_the_seeds_of_their_pairs() -> None:
    right = np.array([[1, 1, 1, 0, 1, 1], [1, 1, 0, 0, 1, 1]], dtype=bool)  # two seeds
    none, some = (overlap.error_of("bin", right[:, members]) for members in (slice(2), slice(2, 6)))
    assert (none.n, some.n) == (2, 4)
    assert (none.mean, some.mean) == pytest.approx((0, 37.5))
    low, high = wilson_interval(2, 4)  # 0.625 of 4, rounded; four pairs are four pairs however many seeds saw them
    assert some.interval == pytest.approx((100 * (1 - high), 100 * (1 - low)))
    assert none.interval is not None
    assert none.interval[0] == 0
    assert 50 < none.interval[1] < 70  # two of two right: nearly anything is possible


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([0, 10, 20], [1, 3, 7], 15),
        ([0, 10, 20], [1, 5, 9], 10),  # exactly on a point
        ([0, 10, 20, 30], [4, 6, 2, 8], 5),  # the first time counts
        ([0, 10, 20], [6, 4, 9], 12),  # starts above, comes down, and rises through it
        ([0, 10, 20], [1, 2, 4.9], None),
        ([0, 10, 20], [5, 6, 7], None),  # is there from the beginning
        ([0, 10, 20], [9, 6, 2], None),
        ([0], [3], None),
    ],
)
def test_crossing_is_the_first_rise_through_the_level(x: list[float], y: list[float], expected: float | None) -> None:
    assert overlap.crossing(x, y, 5) == (None if expected is None else pytest.approx(expected))


def test_crossing_has_an_interval_over_the_pairs() -> None:
    """Two bins of 2 and 8 % error, in the middle of which 5 % lies; with more pairs the interval is narrower."""
    reach = []
    for count in (100, 10_000):
        right = [np.arange(count)[None] % 100 >= errors for errors in (2, 8)]
        reach.append(overlap.crossing_interval([20, 80], right, 5.0))
        assert reach[-1][0] < overlap.crossing([20, 80], [2, 8], 5.0) < reach[-1][1]
    assert reach[1][1] - reach[1][0] < (reach[0][1] - reach[0][0]) / 4


def test_crossing_sentence_says_why_there_is_none() -> None:
    def say(*y: float) -> str:
        return overlap.crossing_sentence("CNN", [0, 10, 20], curve(*y), 5)

    assert say(1, 3, 7) == "The CNN's error rises through 5 % at an overlap of about 15 %."
    assert say(1, 2, 3) == "The CNN stays below 5 % at every overlap (at most 3.0 %)."
    assert say(8, 6, 7) == "The CNN errs on 5 % or more at every overlap (at least 6.0 %)."
    assert "falls below 5 %" in say(9, 6, 2)


def test_findings_are_true_either_way() -> None:
    def findings(**curves: list[Measure]) -> list[str]:
        return overlap.findings([0, 50, 100], curves)

    words = findings(CapsNet=curve(1, 2, 3), CNN=curve(0.5, 4, 8))
    assert "The CNN's error rises through 5 % at an overlap of about 62 %." in words
    assert "1.0 % against 0.5 % with the least overlap, 3.0 % against 8.0 % with the most" in words[-1]
    assert "lower error in 2 of 3 bins and the higher in 1" in words[-1]
    assert "its lead grows with the overlap (-0.5 points with the least overlap, +5.0 with the most)." in words[-1]
    words = findings(CapsNet=curve(1, 2, 8), CNN=curve(2, 4, 8))
    assert "lower error in 2 of 3 bins and the higher in 0: its lead does *not* grow" in words[-1]
    words = findings(CapsNet=curve(3, 4, 9), CNN=curve(2, 4, 8))
    assert "in 0 of 3 bins and the higher in 2: it has no lead" in words[-1]


def test_plan_trains_both_networks_on_the_same_pairs(tmp_path) -> None:
    for budget in ("smoke", "quick", "paper"):
        lab = Lab("overlap", budget, 2, tmp_path)
        runs = overlap.plan(lab)
        assert len({run.data for run in runs}) == 1
        assert [(run.model.startswith("capsnet"), run.seed) for run in runs] == [
            (True, 0),
            (True, 1),
            (False, 0),
            (False, 1),
        ]
