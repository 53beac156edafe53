"""The comparison of winner and recipe, on numbers that can be checked by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capsnet.search import _verdict
from capsnet.search._verdict import compare, judge
from capsnet.training import TrainConfig
from capsnet.training.run import RESULTS, open_run
from capsnet.training.trial import Tried


def test_interval_is_students_over_paired_differences() -> None:
    """Differences 1, 2 and 3 points: mean 2, deviation 1, error 1/sqrt(3), t = 4.303: 2 ± 2.484."""
    verdict = judge([1, 2, 3], [0.90, 0.90, 0.90], [0.91, 0.92, 0.93])
    assert verdict.mean == pytest.approx(0.02)
    assert verdict.low == pytest.approx(0.02 - 0.0430265 / math.sqrt(3), abs=1e-6)
    assert verdict.high == pytest.approx(0.02 + 0.0430265 / math.sqrt(3), abs=1e-6)
    assert verdict.real is False
    assert str(verdict).startswith("No difference is shown: winner minus default +2.00 points (95 % interval -0.48 to")
    assert "so few seeds" in str(verdict)
    clear = judge([1, 2, 3], [0.90, 0.91, 0.92], [0.93, 0.941, 0.952])
    assert clear.real is True
    assert str(clear).startswith("The winner is better than the recipe's own values, by +3.10 points")


def test_spread_common_to_both_does_not_widen_the_interval() -> None:
    """Seeds that are good or bad for both say nothing about the difference."""
    verdict = judge([1, 2, 3], [0.70, 0.80, 0.90], [0.711, 0.81, 0.909])
    assert verdict.real is True
    assert judge([1, 2, 3], [0.90, 0.70, 0.80], [0.711, 0.81, 0.909]).real is False


def test_worse_winner_is_reported() -> None:
    assert "winner is worse" in str(judge([1, 2], [0.95, 0.96], [0.90, 0.9101]))


def test_verdict_is_undecided_without_spread() -> None:
    one = judge([1], [0.9], [0.95])
    assert (one.low, one.real) == (None, None)
    assert "says nothing about chance" in str(one)
    same = judge([1, 2, 3], [0.9, 0.9, 0.9], [0.95, 0.95, 0.95])
    assert same.real is None
    assert "no spread" in str(same)


def test_finished_trainings_count_for_the_same_settings_only(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[TrainConfig] = []

    def tried(config: TrainConfig, out: Path, **more: Any) -> Tried:
        open_run(config, out, "no").write(RESULTS, {"accuracy": {"value": config.lr}})
        trained.append(config)
        return Tried(config.lr, 1)

    monkeypatch.setattr(_verdict, "try_out", tried)
    first = compare(quick, replace(quick, lr=0.02), 2, tmp_path)
    assert (first.default, first.winner) == ([quick.lr] * 2, [0.02] * 2)
    assert [config.seed for config in trained] == [1, 1, 2, 2]  # not those of the search
    assert compare(quick, replace(quick, lr=0.02), 2, tmp_path) == first
    assert len(trained) == 4
    assert compare(quick, replace(quick, lr=0.03), 2, tmp_path).winner == [0.03] * 2  # of another winner
    assert len(trained) == 6
