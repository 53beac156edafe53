"""Claims of the literature, and whether the numbers of a report bear them out: holds, does not hold, undecided."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from capsnet.experiments._report import Report
from capsnet.metrics import Measure, compare, difference

Verdict = Literal["holds", "does not hold", "undecided"]
BY_ORDER: dict[int, Verdict] = {-1: "holds", 0: "undecided", 1: "does not hold"}


class Claim(NamedTuple):
    """What somebody says, who says it, the verdict of the intervals, and the numbers in a sentence."""

    text: str
    source: str
    verdict: Verdict
    finding: str


Claims = Callable[[Report], list[Claim]]


def lower(text: str, source: str, report: Report, ours: str, theirs: str) -> Claim:
    """The measure named ``ours`` is lower than the one named ``theirs``: decided where their intervals are apart."""
    a, b = measure_named(report, ours), measure_named(report, theirs)
    return below(text, source, f"the error of *{ours}*", a, f"that of *{theirs}*", b)


def below(text: str, source: str, ours: str, a: Measure, theirs: str, b: Measure) -> Claim:
    """``a``, called ``ours`` in the sentence, is lower than ``b``: decided where their intervals are apart."""
    words = difference(ours, a, theirs, b)
    return Claim(text, source, BY_ORDER[compare(a, b)], f"{words[:1].upper()}{words[1:]}.")


def higher(text: str, source: str, report: Report, ours: str, theirs: Sequence[str]) -> Claim:
    """The measure named ``ours`` is higher than each of ``theirs``: fails if it is lower than one of them."""
    a, others = measure_named(report, ours), [measure_named(report, name) for name in theirs]
    orders = [compare(a, b) for b in others]
    verdict: Verdict = "holds" if min(orders) > 0 else "does not hold" if min(orders) < 0 else "undecided"
    found = "; ".join(f"*{b.name}* {b.shown()}" for b in others)
    return Claim(text, source, verdict, f"*{a.name}* {a.shown()}; {found}.")


def most_often_lower(text: str, source: str, pairs: Sequence[tuple[Measure, Measure]], where: str) -> Claim:
    """The first of each pair is lower: holds if it is so in half of them or more and the opposite in none."""
    orders = [compare(*pair) for pair in pairs]
    below, above = orders.count(-1), orders.count(1)
    half = len(orders) / 2
    verdict: Verdict = "undecided"
    if (below >= half) != (above >= half) and not (below and above):
        verdict = "holds" if below else "does not hold"
    return Claim(text, source, verdict, f"Lower error at {below} of {len(orders)} {where}, higher at {above}.")


def past(text: str, source: str, checks: Sequence[tuple[Measure, float, bool]], finding: str) -> Claim:
    """Each measure lies beyond its level, above it if ``True``: holds if all intervals do, fails if one cannot."""
    signs = [compare(m, Measure("", [level])) * (1 if above else -1) for m, level, above in checks]
    verdict: Verdict = "holds" if min(signs) > 0 else "does not hold" if min(signs) < 0 else "undecided"
    return Claim(text, source, verdict, finding)


def measure_named(report: Report, name: str) -> Measure:
    for measure in report.measures:
        if measure.name == name:
            return measure
    raise ValueError(f"the report has no measure {name!r}: it is of another version, so run the experiment again")
