"""``twins``: two networks on the same pairs, on cases where the answer is known."""

import numpy as np
import pytest

from capsnet.experiments import Report
from capsnet.experiments._mistakes import mean_over_pictures
from capsnet.experiments.twins import FAMILIES, GAP, NETS, claims, finding, measures


def mistakes(both: int, ours: int, theirs: int, n: int = 4000) -> np.ndarray:
    """Of n pairs, how many both networks get wrong, and each of them alone. -> (n, 2)"""
    wrong = np.zeros((n, 2))
    wrong[:both] = 1
    wrong[both : both + ours, 0] = 1
    wrong[both + ours : both + ours + theirs, 1] = 1
    return wrong


def digits(n: int = 4000, of: int = 1000) -> np.ndarray:
    """Two different digits for each pair."""
    first = np.arange(n) % of
    return np.stack([first, (first + 1 + np.random.default_rng(0).integers(0, of - 1, n)) % of], axis=1)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "words"),
    [(20, 120, "holds", "fewer"), (120, 20, "does not hold", "more"), (60, 60, "undecided", "not shown to be fewer")],
)
def test_verdict_is_that_of_the_difference(ours: int, theirs: int, verdict: str, words: str) -> None:
    found = [one for family in FAMILIES for one in measures(family, mistakes(200, ours, theirs), digits())]
    both = claims(Report(found))
    assert [claim.verdict for claim in both] == [verdict] * len(FAMILIES)
    assert f"{(200 + ours) / 40:.2f} % against {(200 + theirs) / 40:.2f} %" in both[0].finding
    assert f"get wrong are {words}" in finding("shift 4", found[len(NETS)])


def test_shared_mistakes_do_not_hide_a_difference() -> None:
    """The intervals of the two errors overlap, that of the difference does not reach zero."""
    ours, twin, gap = measures("shift 4", mistakes(400, 10, 60), digits())
    assert gap.name.endswith(GAP)
    assert ours.interval is not None
    assert twin.interval is not None
    assert gap.interval is not None
    assert ours.interval[1] > twin.interval[0]
    assert gap.interval[1] < 0
    assert gap.mean == pytest.approx(-1.25)


def test_pairs_that_share_digits_say_less() -> None:
    """An error that a digit brings to all its pairs counts once; pairs without a common digit are independent."""
    n = 2000
    apart, shared = np.arange(2 * n).reshape(n, 2), digits(n, of=100)
    hard = (shared < 10).any(axis=1).astype(float)
    mean, (low, high) = mean_over_pictures(hard, apart)
    assert mean == pytest.approx(hard.mean())
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(mean * (1 - mean) / n))
    wide = mean_over_pictures(hard, shared)[1]
    assert wide[1] - wide[0] > 2 * (high - low)


def test_interval_covers_the_mean_in_19_of_20_draws() -> None:
    """Pairs of 60 digits whose difficulty is drawn anew: 400 times."""
    rng, members, covered = np.random.default_rng(0), digits(1000, of=60), 0
    for _ in range(400):
        hard = rng.normal(size=60)
        low, high = mean_over_pictures(hard[members].sum(axis=1) + rng.normal(size=1000), members)[1]
        covered += low < 0 < high
    assert 0.90 < covered / 400 < 0.98
