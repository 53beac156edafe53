"""``few-shot``: who has the lower error where, on differences made by hand."""

import pytest

from capsnet.experiments import Report
from capsnet.experiments._mistakes import stored
from capsnet.experiments.few_shot import claims, finding
from capsnet.metrics import Measure


def gaps(*points: float) -> list[Measure]:
    """Differences of three seeds that agree, within half a point over the pictures."""
    return [Measure("", [p - 0.1, p, p + 0.1], "points", interval=(p - 0.5, p + 0.5), n=100) for p in points]


def test_the_finding_names_the_sizes() -> None:
    words = finding([10, 100, 1000, 3000], gaps(-2, -1, 0.2, 3), "CapsNet")
    assert words.startswith(
        "The error of the CapsNet, picture by picture and over the seeds, against that of the CNN: "
    )
    assert "lower with 10, 100 training images; higher with 3,000 training images; " in words
    assert words.endswith("not shown to be either with 1,000 training images.")


def test_seeds_that_disagree_show_nothing() -> None:
    one = Measure("", [-6.0, 0.0, 1.0], "points", interval=(-2.2, -1.2), n=100)
    assert "lower" not in finding([10], [one], "CapsNet")


@pytest.mark.parametrize(("point", "verdict"), [(-2.0, "holds"), (2.0, "does not hold"), (0.1, "undecided")])
def test_claim_is_about_at_most_a_thousand_images(point: float, verdict: str) -> None:
    raw = {"sizes": [10, 100, 10_000], "gaps": [stored(one) for one in gaps(point, point, -3.0)]}
    assert [claim.verdict for claim in claims(Report(raw={"CapsNet": raw}))] == [verdict]
