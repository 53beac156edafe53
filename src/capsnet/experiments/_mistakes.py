"""The test pictures that each network gets wrong, and the difference of two networks over the same pictures.

Networks err on many of the same pictures, so intervals of two errors overlap long after the errors differ. The interval
here is that of the difference, picture by picture. A picture of two digits shares each of them with other pictures,
which are therefore alike: the interval allows for it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capsnet import data
from capsnet.data import Dataset, Pairs
from capsnet.experiments._claims import Claim, past
from capsnet.experiments._report import Measure
from capsnet.experiments.lab import Lab, Trained
from capsnet.inference import evaluate
from capsnet.metrics import compare, multi_hot, top_k
from capsnet.training import TrainConfig, first


def mistakes(lab: Lab, runs: Sequence[Trained], test: Dataset, spec: str) -> NDArray[np.float64]:
    """1 for each test picture of which not all classes were found, of each training. -> (S, N)"""
    right = [
        lab.remember("right", lambda t=t: answers(t, test), run=t.folder, pictures=len(test), on=spec) for t in runs
    ]
    return (np.array([list(one["right"]) for one in right]) == "0").astype(float)


def answers(trained: Trained, test: Dataset) -> dict[str, str]:
    """Of each picture, whether all its classes, and as many as there are objects, had the highest scores: a string of
    ones and zeros."""
    tested = evaluate(trained.model, test, progress=True)
    truth = multi_hot(tested.targets, *tested.lengths.shape)
    right = (top_k(tested.lengths, truth.sum(axis=1)) == truth).all(axis=1)
    return {"right": "".join("1" if all_found else "0" for all_found in right)}


def origins(test: Dataset) -> NDArray[np.int64]:
    """The digits that each picture was made of; a picture that was not made of others is its own. -> (N, M)"""
    numbers = np.arange(len(test))
    return test.choose(numbers) if isinstance(test, Pairs) else numbers[:, None]


def pictures_of(config: TrainConfig, split: str = "test") -> tuple[Dataset, NDArray[np.int64]]:
    """The pictures of a split that a run of this configuration reports its error on, and their ``origins``."""
    whole = data.load(config.data, split)
    test = first(whole, config.eval_limit)
    return test, origins(whole)[: len(test)]


def gap(name: str, ours: NDArray[np.float64], theirs: NDArray[np.float64], members: NDArray[np.int64]) -> Measure:
    """The error of one network minus that of another, in points. Shapes: (S, N), (S, N), (N, M)

    The value of a seed is the difference of the two trainings with it; the interval is over the pictures.
    """
    difference = 100 * (ours - theirs)
    reach = mean_over_pictures(difference.mean(axis=0), members)[1]
    return Measure(name, difference.mean(axis=1).tolist(), "points", interval=reach, n=difference.shape[1])


def mean_over_pictures(values: NDArray[np.float64], members: NDArray[np.int64]) -> tuple[float, tuple[float, float]]:
    """The mean over pictures and its 95 % interval, where pictures that share a member may be alike (dyadic clusters:
    Aronow, Samii, Assenova 2015). Shapes: (N,), members (N, M) from 0"""
    mean = float(values.mean())
    off = values - mean
    sums = np.bincount(members.ravel(), weights=np.repeat(off, members.shape[1]))  # over all pictures of a member
    own = float(np.square(off).sum())
    shared = float(np.square(sums).sum()) - (members.shape[1] - 1) * own
    half = 1.96 * np.sqrt(max(shared, own)) / len(values)  # never below that of independent pictures
    return mean, (mean - half, mean + half)


def stored(gap: Measure) -> dict[str, Any]:
    """A difference as JSON; ``read`` makes a measure of it again."""
    return {"values": gap.values, "interval": gap.interval, "n": gap.n}


def read(stored: dict[str, Any]) -> Measure:
    return Measure("", stored["values"], "points", interval=tuple(stored["interval"]), n=stored["n"])


def sign(gap: Measure) -> int:
    """-1 where fewer pictures are wrong, 1 where more are, 0 where chance may explain the difference."""
    return compare(gap, Measure("", [0.0]))


def signed(gap: Measure) -> str:
    """A difference with its sign and interval: ``-0.14 (-0.25 to -0.02)``; a third digit of what has no unit."""
    digits = 2 if gap.unit else 3
    low, high = gap.interval or (gap.mean, gap.mean)
    return f"{gap.mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def fewer(text: str, source: str, ours: Measure, theirs: Measure, gap: Measure) -> Claim:
    """``ours`` errs on fewer pictures than ``theirs``: decided where the interval of their difference has one sign."""
    seeds = len(gap.values)
    trainings = "one training each" if seeds == 1 else f"{seeds} trainings each"
    finding = f"{ours.mean:.2f} % against {theirs.mean:.2f} %, {signed(gap)} points on {gap.n:,} pictures; {trainings}."
    return past(text, source, [(gap, 0.0, False)], finding)


def compared(ours: str, gap: Measure, theirs: str) -> str:
    """A difference as a sentence without its full stop, whichever way it falls."""
    how = ("not shown to be lower or higher than", "higher than", "lower than")[sign(gap)]
    return f"{ours} is {how} {theirs}: {signed(gap)} points"
