"""Verdicts on claims follow the intervals, and every stored report decides its experiment's claims."""

import pytest

from capsnet.experiments import Measure, Report, get, list_experiments
from capsnet.experiments._claims import lower, most_often_lower, past
from tools._stale import version_of
from tools.results import claims_table, render
from tools.tables import ROOT


def interval(low: float, high: float, name: str = "") -> Measure:
    return Measure(name, [(low + high) / 2], "%", interval=(low, high), n=100)


@pytest.mark.parametrize(("ours", "verdict"), [((1, 2), "holds"), ((2, 4), "undecided"), ((6, 7), "does not hold")])
def test_lower_error_is_decided_by_the_intervals(ours: tuple[float, float], verdict: str) -> None:
    report = Report([interval(*ours, "A"), interval(3, 5, "B")])
    claim = lower("A beats B", "somebody", report, "A", "B")
    assert claim.verdict == verdict
    assert "The error of *A*" in claim.finding


@pytest.mark.parametrize(
    ("orders", "verdict"),
    [((-1, 0), "holds"), ((-1, 0, 0), "undecided"), ((-1, -1, 1), "undecided"), ((1, 0), "does not hold")],
)
def test_several_sizes_must_not_contradict_each_other(orders: tuple[int, ...], verdict: str) -> None:
    pairs = [(interval(10 + 5 * order, 11 + 5 * order), interval(10, 11)) for order in orders]
    assert most_often_lower("fewer", "somebody", pairs, "with few").verdict == verdict


@pytest.mark.parametrize(
    ("caps", "cnn", "verdict"),
    [
        ((10, 20), (80, 90), "holds"),
        ((40, 60), (80, 90), "undecided"),
        ((10, 20), (30, 40), "does not hold"),
        ((70, 80), (45, 55), "does not hold"),
    ],
)
def test_levels_must_be_passed_by_all(caps: tuple[float, float], cnn: tuple[float, float], verdict: str) -> None:
    checks = [(interval(*caps), 50.0, False), (interval(*cnn), 50.0, True)]
    assert past("reject", "somebody", checks, "").verdict == verdict


def test_results_page_begins_with_a_verdict_for_every_claim() -> None:
    docs = ROOT / "docs"
    page = render(docs)
    assert page == (docs / "RESULTS.md").read_text()
    stored = {n: docs / "results" / f"{n}.json" for n in list_experiments()}
    reports = {n: Report.read(file, docs) for n, file in stored.items() if file.is_file()}
    reports = {n: report for n, report in reports.items() if version_of(report) != "earlier"}
    decided = [claim for name, report in reports.items() for claim in get(name).claims(report)]
    assert len(decided) >= 9
    assert page.index("## Claims") < page.index("- [")
    for claim in decided:
        assert f"| {claim.text} | {claim.source} | {claim.verdict} |" in claims_table(reports)
