"""Is the winner really better than what the recipe has anyway, or was it lucky?

The best of fifty trials is chosen *because* it did well once. So it is trained again, with seeds that the search has
not used, side by side with the recipe's own values at the same budget, and the differences are looked at pair by pair.
"""

import dataclasses
import json
import logging
import math
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from capsnet.search._worker import hushed
from capsnet.training import Diverged, TrainConfig, read_config
from capsnet.training.run import CONFIG, RESULTS, Run
from capsnet.training.trial import try_out

log = logging.getLogger("capsnet.search")
SEEDS = "seeds"
CONFIDENCE = 0.95


class Verdict(NamedTuple):
    """Validation accuracies of both, seed by seed, and the mean difference with its interval (None: one seed only)."""

    seeds: list[int]
    default: list[float]
    winner: list[float]
    mean: float
    low: float | None
    high: float | None

    @property
    def spread(self) -> bool:
        """Whether the seeds differ in what they say: else there is nothing to take an interval from."""
        return self.low is not None and self.high is not None and self.high - self.low > 1e-9

    @property
    def real(self) -> bool | None:
        """Whether the interval excludes zero; None if there is no saying."""
        if not self.spread or self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        n, mean = len(self.seeds), f"{100 * self.mean:+.2f} points"
        if self.low is None or self.high is None:
            return (
                f"The winner differs by {mean} with one seed, which says nothing about chance: use --seeds 3 or more."
            )
        if not self.spread:
            return f"The winner differs by {mean} with each of {n} seeds: no spread to judge chance by."
        interval = f"{mean} (95 % interval {100 * self.low:+.2f} to {100 * self.high:+.2f}, {n} seeds)"
        few = " With so few seeds only a large difference can show." if n < 5 and not self.real else ""
        if not self.real:
            return f"No difference is shown: winner minus default {interval}.{few}"
        which = "better" if self.mean > 0 else "worse"
        return f"The winner is {which} than the recipe's own values, by {interval}."


CAVEATS = (
    "The interval is Student's, over the paired differences of the seeds: it assumes that these scatter roughly "
    "normally, which two or three of them cannot show.",
    "It is about the chance of initial weights, order and augmentation. Another set of validation images is not in it.",
    "The winner was chosen on the same validation images, so its accuracy there is a little too good, and so is the "
    "difference. The seeds are new, so luck with a seed is not part of it. The test split was not touched: "
    "train the winner and the recipe once each to have that number.",
)


def judge(seeds: Sequence[int], default: Sequence[float], winner: Sequence[float]) -> Verdict:
    """Compare accuracies that belong together pair by pair."""
    differences = [w - d for w, d in zip(winner, default, strict=True)]
    mean, low, high = statistics.fmean(differences), None, None
    if len(differences) > 1:
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        half = t_quantile(0.5 + CONFIDENCE / 2, len(differences) - 1) * error
        low, high = mean - half, mean + half
    return Verdict(list(seeds), list(default), list(winner), mean, low, high)


def t_quantile(p: float, df: int) -> float:
    """Student's t: below which value a share p >= 1/2 lies, for whole degrees of freedom.

    Inverts A(t | df), the share between -t and t, by bisection of the angle with tan = t / sqrt(df), in which it is
    a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4). With two seeds it is 12.7, with three 4.3, in the end 1.96.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _between(middle, df) < 2 * p - 1 else (low, middle)
    return math.tan(low) * math.sqrt(df)


def _between(angle: float, df: int) -> float:
    cos, term, total = math.cos(angle), 1.0, 0.0
    if df % 2:
        term = math.cos(angle)
        for k in range(1, df - 1, 2):  # cos + 2/3 cos^3 + 2 4 / (3 5) cos^5 + ...
            total += term
            term *= (k + 1) / (k + 2) * cos**2
        return 2 / math.pi * (angle + math.sin(angle) * total)
    for k in range(0, df - 1, 2):  # 1 + 1/2 cos^2 + 1 3 / (2 4) cos^4 + ...
        total += term
        term *= (k + 1) / (k + 2) * cos**2
    return math.sin(angle) * total


def compare(
    default: TrainConfig,
    winner: TrainConfig,
    seeds: int,
    out: Path,
    *,
    device: str = "auto",
    on_trained: Callable[[], object] = lambda: None,
) -> Verdict:
    """Train both with the next seeds after the search's own; what is finished in ``out`` is not trained again."""
    numbers = [(default.seed + 1 + n) % 2**32 for n in range(seeds)]
    scores: dict[str, list[float]] = {"default": [], "winner": []}
    for seed in numbers:
        for name, config in (("default", default), ("winner", winner)):
            here = out / SEEDS / f"{name}-{seed}"
            scores[name].append(_score(dataclasses.replace(config, seed=seed), here, device))
            on_trained()
    return judge(numbers, scores["default"], scores["winner"])


def _score(config: TrainConfig, here: Path, device: str) -> float:
    if Run(here).finished and read_config(here / CONFIG) == config:
        return json.loads((here / RESULTS).read_text())["accuracy"]["value"]
    shutil.rmtree(here, ignore_errors=True)  # cut short, or of another winner
    try:
        with hushed():
            return try_out(config, here, device=device).score
    except Diverged as failure:
        log.warning("%s: %s; it counts as 0 %%", here.name, failure)
        return 0.0
