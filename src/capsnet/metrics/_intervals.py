"""Proportions and means with the intervals that the number of examples leaves open, and how to compare them."""

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from capsnet.metrics._arrays import ArrayLike, as_array


class Proportion(NamedTuple):
    """A proportion of ``n`` examples with its 95 % Wilson interval, ``low`` to ``high``."""

    value: float
    low: float
    high: float
    n: int

    @property
    def error(self) -> "Proportion":
        """The error rate, 1 - value, with the interval's ends swapped."""
        return Proportion(1 - self.value, 1 - self.high, 1 - self.low, self.n)

    def __str__(self) -> str:
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%}, n = {self.n:,})"


def wilson_interval(correct: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion p = correct / n (Wilson 1927; Newcombe 1998, method 3).

        (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    The normal interval, p ± z sqrt(p(1-p)/n), fails near 0 and 1: at 10 errors in 10,000 it is too narrow, at none it
    has no width.
    """
    if n < 1 or not 0 <= correct <= n:
        raise ValueError(f"an interval needs 0 <= correct <= n and n >= 1, got correct = {correct:g} and n = {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p, zz = correct / n, z * z / n
    centre = p + zz / 2
    spread = math.sqrt(zz * (p * (1 - p) + zz / 4))
    # Rounding must not push the interval off p, nor off 0 and 1.
    return max(0.0, min(p, (centre - spread) / (1 + zz))), min(1.0, max(p, (centre + spread) / (1 + zz)))


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of a few values, roughly normally distributed: of several seeds, say."""
    from scipy.stats import t

    if len(values) < 2:
        raise ValueError(f"an interval of the mean needs 2 values or more, got {len(values)}")
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    half = float(t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return mean - half, mean + half


def effective_number(right: ArrayLike, originals: ArrayLike) -> int:
    """How many independent examples say as much about a proportion as these, of which several show the same original.

    Their number divided by the design effect (Kish 1965): the variance of the mean over originals, by that of
    independent examples. At least the number of originals, at most that of examples. Shapes: (N,), (N,) -> scalar
    """
    marks, kinds = as_array(right).astype(float), np.unique(as_array(originals), return_inverse=True)[1]
    n, count, p = len(marks), int(kinds.max()) + 1, float(marks.mean())
    sums = np.bincount(kinds, weights=marks - p)  # of the deviations of each original
    variance = count / max(count - 1, 1) * float(np.square(sums).sum()) / n**2
    independent = p * (1 - p)
    # where all originals have the same share right, the sums are 0 up to rounding
    return round(min(max(independent / variance, count), n)) if variance > 1e-12 * independent else count


def proportion(credit: np.ndarray, confidence: float) -> Proportion:
    """The mean of (n,) credits, 0 to 1 each."""
    if not len(credit):
        raise ValueError("no row of the targets has a true class, so there is nothing to count")
    total, n = float(credit.sum()), len(credit)
    return Proportion(total / n, *wilson_interval(total, n, confidence), n)


class Measure(NamedTuple):
    """One quantity: a value per seed, and the published value."""

    name: str
    values: list[float]
    unit: str = "%"
    published: str = "-"
    interval: tuple[float, float] | None = None  # 95 %, from the number of examples
    note: str = ""
    n: int | None = None  # number of examples

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None where there is one seed only."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def shown(self) -> str:
        """Mean, spread and interval as text: ``0.82 ± 0.05 % (95 %: 0.70 to 0.96)``."""
        digits = _digits(self)
        spread = "" if self.spread is None else f" ± {self.spread:.{digits}f}"
        words = f"{self.mean:.{digits}f}{spread}{' ' + self.unit if self.unit else ''}"
        if self.interval is not None:
            words += f" (95 %: {self.interval[0]:.{digits}f} to {self.interval[1]:.{digits}f})"
        return words


def compare(a: Measure, b: Measure) -> int:
    """-1 where ``a`` is lower than ``b``, 1 where it is higher, 0 where chance may explain the difference.

    Two chances: of the examples (95 % intervals must not overlap; a measure without one counts as exactly its mean)
    and, with several seeds, of the seeds (Welch's 95 % interval of the difference of the means must not contain 0).
    """
    (a_low, a_high), (b_low, b_high) = (m.interval or (m.mean, m.mean) for m in (a, b))
    order = -1 if a_high < b_low else int(a_low > b_high)
    return order if order and _seeds_agree(a, b) else 0


def _seeds_agree(a: Measure, b: Measure) -> bool:
    """Whether the seeds show a difference of the means. A single seed cannot say; a mere number has none."""
    if not (a.spread or b.spread):
        return True
    from scipy.stats import t  # ttest_ind warns of lost precision where seeds are nearly equal

    if a.spread is not None and b.spread is not None:
        of_a, of_b = (m.spread**2 / len(m.values) for m in (a, b) if m.spread is not None)  # variances of the means
        variance = of_a + of_b
        freedom = variance**2 / (of_a**2 / (len(a.values) - 1) + of_b**2 / (len(b.values) - 1))
    else:
        several, other = (a, b) if a.spread else (b, a)
        if other.interval is not None:
            return True
        assert several.spread is not None
        variance, freedom = several.spread**2 / len(several.values), len(several.values) - 1
    return bool(abs(a.mean - b.mean) > t.ppf(0.975, freedom) * variance**0.5)


def difference(name_a: str, a: Measure, name_b: str, b: Measure) -> str:
    """The comparison of two measures as a sentence, without its full stop.

    the error of A is lower than that of B: 1.20 % against 2.30 %, 95 % intervals apart
    the error of A is level with that of B: 1.20 % against 1.30 %, no difference that 10,000 examples can show
    """
    order, digits, unit = compare(a, b), max(_digits(a), _digits(b)), f" {a.unit}" if a.unit else ""
    numbers = f"{a.mean:.{digits}f}{unit} against {b.mean:.{digits}f}{unit}"
    known = bool(a.interval) + bool(b.interval)
    reason = ("", ", outside the 95 % interval", ", 95 % intervals apart")[known]
    if known and not order:
        seeds = f" and {len(a.values)} seeds" if a.spread is not None and b.spread is not None else ""
        reason = f", no difference that {f'{a.n:,}' if a.n else 'so many'} examples{seeds} can show"
    return f"{name_a} is {('level with', 'higher than', 'lower than')[order]} {name_b}: {numbers}{reason}"


def _digits(measure: Measure) -> int:
    """Decimals: three of an area or a correlation, two of percentages and small numbers, else one."""
    if not measure.unit and abs(measure.mean) <= 1:
        return 3
    return 2 if measure.unit == "%" or abs(measure.mean) < 10 else 1
