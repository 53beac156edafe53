"""Is the winner really better than the recipe's own values, or was it lucky?

The best of fifty trials is chosen because it did well once. So it is trained again, with seeds that the search has not
used, beside the recipe's own values at the same budget, and the differences are compared seed by seed.
"""

import dataclasses
import json
import logging
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from capsnet.metrics import mean_interval
from capsnet.search._worker import quiet_epochs
from capsnet.training import Diverged, TrainConfig, read_config
from capsnet.training.run import CONFIG, RESULTS, Run
from capsnet.training.trial import try_out

log = logging.getLogger("capsnet.search")
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
    def real(self) -> bool | None:
        """Whether the interval excludes zero; None with one seed, or if all seeds give the same difference."""
        if self.low is None or self.high is None or self.high - self.low <= 1e-9:
            return None
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        n, mean = len(self.seeds), f"{100 * self.mean:+.2f} points"
        if self.low is None or self.high is None:
            return (
                f"The winner differs by {mean} with one seed, which says nothing about chance: use --seeds 3 or more."
            )
        if self.real is None:
            return f"The winner differs by {mean} with each of {n} seeds: no spread to judge chance by."
        interval = f"{mean} (95 % interval {100 * self.low:+.2f} to {100 * self.high:+.2f}, {n} seeds)"
        if not self.real:
            few = " With so few seeds only a large difference can show." if n < 5 else ""
            return f"No difference is shown: winner minus default {interval}.{few}"
        which = "better" if self.mean > 0 else "worse"
        return f"The winner is {which} than the recipe's own values, by {interval}."


CAVEATS = (
    "The interval is Student's, over the paired differences of the seeds. It assumes that these are roughly "
    "normally distributed, which two or three of them cannot show.",
    "It covers the chance of initial weights, order and augmentation, not the choice of validation images.",
    "The winner was chosen on the same validation images, so its accuracy there, and the difference, are a little too "
    "good. The seeds are new, so luck with a seed is not part of it. The test split was not touched: "
    "train the winner and the recipe once each to have that number.",
)


def judge(seeds: Sequence[int], default: Sequence[float], winner: Sequence[float]) -> Verdict:
    """Compare accuracies that belong together pair by pair: mean difference and Student's interval."""
    differences = [w - d for w, d in zip(winner, default, strict=True)]
    mean, low, high = statistics.fmean(differences), None, None
    if len(differences) > 1:
        low, high = mean_interval(differences, CONFIDENCE)
    return Verdict(list(seeds), list(default), list(winner), mean, low, high)


def compare(
    default: TrainConfig,
    winner: TrainConfig,
    seeds: int,
    out: Path,
    *,
    device: str = "auto",
    on_trained: Callable[[], object] = lambda: None,
) -> Verdict:
    """Train both with the next seeds after the search's own. Trainings that are finished in ``out`` are reused."""
    numbers = [(default.seed + 1 + n) % 2**32 for n in range(seeds)]
    scores: dict[str, list[float]] = {"default": [], "winner": []}
    for seed in numbers:
        for name, config in (("default", default), ("winner", winner)):
            folder = out / "seeds" / f"{name}-{seed}"
            scores[name].append(_score(dataclasses.replace(config, seed=seed), folder, device))
            on_trained()
    return judge(numbers, scores["default"], scores["winner"])


def _score(config: TrainConfig, folder: Path, device: str) -> float:
    if Run(folder).finished and read_config(folder / CONFIG) == config:
        return json.loads((folder / RESULTS).read_text(encoding="utf-8"))["accuracy"]["value"]
    shutil.rmtree(folder, ignore_errors=True)  # interrupted, or of another winner
    try:
        with quiet_epochs():
            return try_out(config, folder, device=device).score
    except Diverged as failure:
        log.warning("%s: %s; it counts as 0 %%", folder.name, failure)
        return 0.0
