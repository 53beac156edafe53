"""``table1``: verdicts from the differences over the same test pictures."""

from pathlib import Path

import numpy as np
import pytest

from capsnet.experiments import Report, table1
from capsnet.experiments._mistakes import compared, gap, read, stored
from capsnet.experiments._report import error_measure
from capsnet.experiments.lab import Lab
from capsnet.experiments.table1 import BASELINE, BEST, FAR, METHODS, NAMES, PUBLISHED, claims, table


def wrong(both: int, alone: int, first: int, n: int = 10_000) -> np.ndarray:
    """One training that errs on ``both`` pictures and on ``alone`` from ``first`` on. -> (1, n)"""
    row = np.zeros((1, n))
    row[:, :both] = 1
    row[:, first : first + alone] = 1
    return row


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"), [(5, 40, "holds"), (40, 5, "does not hold"), (20, 22, "undecided")]
)
def test_verdict_is_that_of_the_difference(ours: int, theirs: int, verdict: str) -> None:
    best, other = wrong(400, ours, 1000), wrong(400, theirs, 2000)
    one = gap("", best, other, np.arange(10_000)[:, None])
    assert one.mean == pytest.approx((ours - theirs) / 100)
    report = Report(source={"budget": "day"})
    for family, name in NAMES.items():
        for method, marks in ((BEST, best), (BASELINE, other), *((m, other) for m in METHODS if m != BEST)):
            report.measures.append(error_measure(f"{name}, {method}", [{"value": 1 - marks.mean(), "n": 10_000}]))
        report.raw[f"gaps, {family}"] = dict.fromkeys((BASELINE, *METHODS), stored(one))
    found = claims(report)
    assert [claim.verdict for claim in found] == 9 * [verdict]
    assert len({claim.text for claim in found}) == 9
    assert f"{4 + ours / 100:.2f} % against {4 + theirs / 100:.2f} %, " in found[0].finding
    words = {"holds": "lower than B", "does not hold": "higher than B", "undecided": "not shown to be lower or higher"}
    assert f"A is {words[verdict]}" in compared("A", one, "B")
    del report.raw[f"gaps, {FAR}"]
    assert len(claims(report)) == 6, "a family that was not trained has no claim"


def test_seeds_must_agree() -> None:
    """Three trainings of which one falls the other way decide nothing, however many pictures there are."""
    others = np.concatenate([wrong(0, 100, 5000)] * 3)
    ours = np.concatenate([wrong(0, 20, 0), wrong(0, 30, 0), wrong(0, 130, 0)])
    one = gap("", ours, others, np.arange(10_000)[:, None])
    assert one.interval is not None
    assert one.interval[1] < 0
    assert "not shown" in compared("A", one, "B")


def test_day_has_every_method_for_every_kind_of_pictures(tmp_path: Path) -> None:
    cells = table(Lab("table1", "day", 1, tmp_path))
    assert len(cells) == 3 * (len(METHODS) + 1)
    assert {cell: cells[cell] for cell in PUBLISHED} == PUBLISHED
    assert table(Lab("table1", "quick", 1, tmp_path)) == PUBLISHED


def test_gap_is_the_best_method_minus_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {BEST: wrong(0, 20, 0, 1000), BASELINE: wrong(0, 50, 100, 1000)}
    monkeypatch.setattr(table1, "pictures_of", lambda config: (None, np.arange(1000)[:, None]))
    monkeypatch.setattr(table1, "mistakes", lambda lab, runs, test, family: marks[runs])
    networks: dict = {method: method for method in marks}
    gaps = table1.gaps_to_best(Lab("table1", "quick", 1, tmp_path), "mnist", networks)
    assert list(gaps) == [BASELINE]
    assert read(gaps[BASELINE]).mean == pytest.approx(2.0 - 5.0)
