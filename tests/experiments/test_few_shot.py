"""``few-shot``: who has the lower error where, on curves made by hand."""

import pytest

from capsnet.experiments import Report
from capsnet.experiments.few_shot import BARE, BOTH, claims, finding, which
from capsnet.metrics import Measure


def curve(*errors: float) -> list[Measure]:
    return [Measure("", [error], interval=(error - 0.5, error + 0.5)) for error in errors]


def test_the_lower_curve_is_named_where_intervals_are_apart() -> None:
    errors = {BOTH[0]: curve(40, 8, 3), BARE: curve(42, 11, 4), BOTH[1]: curve(42, 10, 3.2)}
    lower = which(errors, *BOTH)
    assert lower == ["CapsNet", "CapsNet", "-"]
    words = finding([10, 100, 1000], lower)
    assert words.startswith("CapsNet and CNN: beyond the 95 % intervals, the CapsNet has the lower error at 10, 100 ")
    assert words.endswith("at 1 of 3 sizes the intervals overlap.")
    bare = which(errors, BARE, "CNN")
    assert bare == ["-", "-", "-"]
    assert finding([10, 100, 1000], bare, (BARE, "CNN")).startswith(f"{BARE} and CNN: at no size")
    assert "do not support" in finding([10, 100, 1000], ["CNN", "-", "-"])


@pytest.mark.parametrize(("cnn", "verdict"), [(10.0, "holds"), (6.0, "does not hold"), (8.0, "undecided")])
def test_claim_is_about_at_most_a_thousand_images(cnn: float, verdict: str) -> None:
    def raw(errors: list[float]) -> dict:
        return {"sizes": [10, 100, 10_000], "test error": [errors], "interval": [[e - 0.5, e + 0.5] for e in errors]}

    report = Report(raw={"CapsNet": raw([8, 8, 1]), BARE: raw([8, 8, 8]), "CNN": raw([cnn, cnn, 3])})
    assert [claim.verdict for claim in claims(report)] == [verdict]
