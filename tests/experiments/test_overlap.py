"""Error against overlap: bins, errors and the crossing, on cases worked out by hand."""

import numpy as np
import pytest

from capsnet.experiments import overlap
from capsnet.experiments.lab import Lab
from capsnet.metrics import wilson_interval


def test_bins_include_their_upper_end() -> None:
    values = np.array([0.0, 0.05, 0.1, 0.1001, 0.95, 1.0, 0.0])
    bins = overlap.sort_into_bins(values)
    assert {name: members.tolist() for name, members in bins.items()} == {
        "none": [0, 6],
        "0 to 10 %": [1, 2],
        "10 to 20 %": [3],
        "90 to 100 %": [4, 5],
    }
    everywhere = overlap.sort_into_bins(np.arange(1001) / 1000)
    assert sum(len(members) for members in everywhere.values()) == 1001
    assert [len(members) for members in everywhere.values()] == [1] + [100] * 10


def test_bin_errors_average_the_seeds_of_their_pairs() -> None:
    overlaps = np.array([0.0, 0.0, 0.5, 0.6, 0.7, 0.8])
    bins = {"none": np.array([0, 1]), "some": np.array([2, 3, 4, 5])}
    right = np.array([[1, 1, 1, 0, 1, 1], [1, 1, 0, 0, 1, 1]], dtype=bool)  # two seeds
    curve = overlap.bin_errors(right, overlaps, bins)
    assert curve["bin"] == ["none", "some"]
    assert curve["pairs"] == [2, 4]
    assert curve["overlap"] == pytest.approx([0, 65])
    assert curve["error"] == pytest.approx([0, 37.5])
    low, high = wilson_interval(2, 4)  # 0.625 of 4, rounded; four pairs are four pairs however many seeds saw them
    assert (curve["low"][1], curve["high"][1]) == pytest.approx((100 * (1 - high), 100 * (1 - low)))
    assert curve["low"][0] == 0
    assert 50 < curve["high"][0] < 70  # two of two right: nearly anything is possible


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


def test_crossing_sentence_says_why_there_is_none() -> None:
    def say(*y: float) -> str:
        return overlap.crossing_sentence("CNN", [0, 10, 20], y, 5)

    assert say(1, 3, 7) == "The CNN's error rises through 5 % at an overlap of about 15 %."
    assert say(1, 2, 3) == "The CNN stays below 5 % at every overlap (at most 3.0 %)."
    assert say(8, 6, 7) == "The CNN errs on 5 % or more at every overlap (at least 6.0 %)."
    assert "falls below 5 %" in say(9, 6, 2)


def test_findings_are_true_either_way() -> None:
    def curve(*error: float) -> dict[str, list]:
        bounds = {"low": [e - 0.1 for e in error], "high": [e + 0.1 for e in error]}
        return {"overlap": [0, 50, 100], "error": list(error), **bounds}

    words = overlap.findings({"CapsNet": curve(1, 2, 3), "CNN": curve(0.5, 4, 8)})
    assert "The CNN's error rises through 5 % at an overlap of about 62 %." in words
    assert "1.0 % against 0.5 % with the least overlap, 3.0 % against 8.0 % with the most" in words[-1]
    assert "lower error in 2 of 3 bins and the higher in 1" in words[-1]
    assert "its lead grows with the overlap (-0.5 points with the least overlap, +5.0 with the most)." in words[-1]
    words = overlap.findings({"CapsNet": curve(1, 2, 8), "CNN": curve(2, 4, 8)})
    assert "lower error in 2 of 3 bins and the higher in 0: its lead does *not* grow" in words[-1]
    words = overlap.findings({"CapsNet": curve(3, 4, 9), "CNN": curve(2, 4, 8)})
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
