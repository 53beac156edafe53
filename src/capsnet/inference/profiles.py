"""Profiles: statistics of a trained model's capsules over a data set, for the explorer's sliders and gallery.

A slider's range is the 2nd to 98th percentile of a pose dimension among the recognised examples of the class. A gallery
shows the recognised examples with the smallest margin between the true capsule and the best other one, and the wrong
ones. Nothing is chosen by these examples, so the test split may be used.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from capsnet import data
from capsnet._files import write_atomically
from capsnet.data import Dataset
from capsnet.inference.evaluation import check_fit
from capsnet.inference.prediction import evaluating
from capsnet.metrics import multi_hot, top_k
from capsnet.models import Model
from capsnet.weights import list_weights, resolve

PERCENTILES = (2, 98)
KEEP = 96  # hard examples in a profile, and as many wrong ones
DIGITS = 4  # after the decimal point


class Example(BaseModel):
    """One of a split by its index: its class, the longest capsule and how long that is."""

    model_config = ConfigDict(extra="forbid")

    index: int
    label: int
    seen_as: int
    length: float


class Profile(BaseModel):
    """Ranges [J][D][low, high], means [J][D] and names [J][D] of the pose dimensions, and two lists of examples.

    The first three are None for a model without poses; a name is None where the dimension has no known meaning.
    ``hard`` holds recognised examples, smallest margin first; ``wrong`` holds mistakes, longest capsule first. Examples
    of several classes are in neither. ``purpose`` is a sentence on what the model is for.
    """

    model_config = ConfigDict(extra="forbid")

    ranges: list[list[tuple[float, float]]] | None
    means: list[list[float]] | None
    names: list[list[str | None]] | None
    hard: list[Example]
    wrong: list[Example]
    purpose: str = ""


class _Answers(NamedTuple):
    """A model's answers to N examples: lengths (N, J), poses (N, J, D) or None, the truth (N, J) as bool."""

    lengths: NDArray[np.float32]
    poses: NDArray[np.float32] | None
    truth: NDArray[np.bool_]


def measure(
    model: Model,
    dataset: Dataset,
    *,
    limit: int | None = None,
    keep: int = KEEP,
    batch_size: int = 250,
    stop: Callable[[], bool] = lambda: False,
) -> Profile | None:
    """The profile of a model on (the first ``limit`` examples of) a data set; None if ``stop`` returned True.

    A model whose answers are not finite (its training diverged) raises ValueError.
    """
    check_fit(model, dataset)
    answers = _answers(model, dataset, min(limit or len(dataset), len(dataset)), batch_size, stop)
    if answers is None:
        return None
    if not all(np.isfinite(values).all() for values in (answers.lengths, answers.poses) if values is not None):
        raise ValueError(f"the model's answers on {dataset} are not finite: there is nothing to measure")
    hard, wrong = _hardest(answers, keep) if (answers.truth.sum(axis=1) == 1).all() else ([], [])
    if answers.poses is None:
        return Profile(ranges=None, means=None, names=None, hard=hard, wrong=wrong)
    J, D = answers.poses.shape[1:]
    poses_of = [_class_poses(answers, j) for j in range(J)]
    ranges = [np.percentile(poses, PERCENTILES, axis=0).T for poses in poses_of]  # J times (D, 2)
    return Profile(
        ranges=[[(_short(low), _short(high)) for low, high in row] for row in ranges],
        means=[[_short(value) for value in poses.mean(axis=0)] for poses in poses_of],
        names=[[None] * D for _ in range(J)],
        hard=hard,
        wrong=wrong,
    )


def read(name: str) -> Profile | None:
    """The profile of a bundled model, or None."""
    if name not in list_weights():
        return None
    path = resolve(name).with_suffix(".profile.json")
    return Profile.model_validate_json(path.read_text(encoding="utf-8")) if path.is_file() else None


def write(name: str, profile: Profile) -> None:
    """Write a profile beside the weights of a bundled model."""
    write_atomically(resolve(name).with_suffix(".profile.json"), profile.model_dump_json() + "\n")


def _answers(model: Model, dataset: Dataset, count: int, batch_size: int, stop: Callable[[], bool]) -> _Answers | None:
    lengths, poses, truth = [], [], []
    with evaluating(model):
        for index in data.batch_indices(count, batch_size):
            if stop():
                return None
            batch = dataset.batch(index)
            output = model(batch.images)
            lengths.append(output.lengths.float().numpy())
            if output.poses is not None:
                poses.append(output.poses.float().numpy())
            truth.append(multi_hot(batch.targets, len(batch.targets), model.num_classes))
    return _Answers(np.concatenate(lengths), np.concatenate(poses) if poses else None, np.concatenate(truth))


def _class_poses(answers: _Answers, j: int) -> NDArray[np.float32]:
    """Poses (n, D) of class j in the examples with a right answer; if there are none, in all with class j; else all."""
    assert answers.poses is not None
    right = (top_k(answers.lengths, answers.truth.sum(axis=1)) == answers.truth).all(axis=1)
    present = answers.truth[:, j]
    for choice in (present & right, present):
        if choice.any():
            return answers.poses[choice, j]
    return answers.poses[:, j]


def _hardest(answers: _Answers, keep: int) -> tuple[list[Example], list[Example]]:
    """The recognised examples of the smallest margin, and the wrong ones of the longest capsule."""
    longest, label = answers.lengths.max(axis=1), answers.truth.argmax(axis=1)
    margin = answers.lengths[answers.truth] - np.where(answers.truth, -np.inf, answers.lengths).max(axis=1)
    predicted = answers.lengths.argmax(axis=1)
    right = predicted == label

    def first(chosen: NDArray[np.bool_], score: NDArray[np.float32]) -> list[Example]:
        order = [int(n) for n in np.argsort(score, kind="stable") if chosen[n]][:keep]
        return [
            Example(index=n, label=int(label[n]), seen_as=int(predicted[n]), length=_short(float(longest[n])))
            for n in order
        ]

    return first(right, margin), first(~right, -longest)


def _short(value: float) -> float:
    return round(float(value), DIGITS)
