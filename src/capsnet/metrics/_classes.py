"""Right and wrong classes: accuracy, exact match, half credit, confusion, AUC, calibration; all of them per class."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from capsnet.metrics._arrays import ArrayLike, as_array
from capsnet.metrics._intervals import Proportion, effective_number, proportion, wilson_interval


class ClassMetrics(NamedTuple):
    """One class against the rest. None where a number is not defined.

    precision: tp / (tp + fp), None if never predicted; recall: tp / support; f1: 2 tp / (2 tp + fp + fn);
    auc: see ``auc``. Recall, f1 and AUC are None if the class never occurs, AUC also if nothing else occurs.
    """

    precision: float | None
    recall: float | None
    f1: float | None
    auc: float | None
    support: int


def accuracy(
    lengths: ArrayLike, targets: ArrayLike, confidence: float = 0.95, *, originals: ArrayLike | None = None
) -> Proportion:
    """Proportion of the examples whose highest score is the true class: lengths (N, J), targets (N,).

    ``originals`` (N,): of which original each example is a version, see ``effective_number``.
    """
    scores = _scores(lengths)
    labels = _labels(targets, *scores.shape)
    right = scores.argmax(axis=1) == labels
    if originals is None:
        return proportion(right, confidence)
    n, value = effective_number(right, originals), float(right.mean())
    return Proportion(value, *wilson_interval(value * n, n, confidence), len(right))


def exact_match(
    lengths: ArrayLike,
    targets: ArrayLike,
    k: int | None = None,
    confidence: float = 0.95,
    *,
    threshold: float | None = None,
) -> Proportion:
    """Proportion of the examples whose k longest capsules are *exactly* the k true classes: MultiMNIST's metric.

    One digit of two is wrong; ``half_credit`` counts it half. Without ``k`` it is each row's number of true classes,
    and a row without any is not counted in ``n``. With ``k``, a row with another number of true classes is wrong.

    With a ``threshold`` all classes that reach it are predicted, and every row counts.
    """
    scores = _scores(lengths)
    truth = _hot(targets, *scores.shape)
    right = (_chosen(scores, truth, k, threshold) == truth).all(axis=1)  # (N,)
    counted = truth.any(axis=1) if k is None and threshold is None else np.ones(len(truth), dtype=bool)
    return proportion(right[counted], confidence)


def half_credit(lengths: ArrayLike, targets: ArrayLike, confidence: float = 0.95) -> Proportion:
    """Mean fraction of an example's k true classes that are among its k longest capsules, as in Efficient-CapsNet.

    A picture of two digits counts 0, 0.5 or 1, so this is never below ``exact_match``. A row without a true class is
    not counted. The objects of a picture are not independent, so ``n`` counts pictures, and the interval is Wilson's
    for the mean credit p of n pictures. The variance of a credit is at most p (1 - p), so for large n the interval is
    never too narrow.
    """
    scores = _scores(lengths)
    truth = _hot(targets, *scores.shape)
    true = truth.sum(axis=1)  # (N,)
    credit = (top_k(scores, true) & truth).sum(axis=1)[true > 0] / true[true > 0]
    return proportion(credit, confidence)


def _chosen(scores: np.ndarray, truth: np.ndarray, k: int | None, threshold: float | None) -> np.ndarray:
    """The predicted classes: those that reach the threshold, else the k highest, k being each row's true number."""
    if threshold is not None:
        if k is not None:
            raise ValueError(f"either k or a threshold says what is predicted, got k={k} and threshold={threshold}")
        return scores >= threshold
    return top_k(scores, truth.sum(axis=1) if k is None else k)


def top_k(lengths: ArrayLike, k: int | np.ndarray) -> np.ndarray:
    """Which classes are among the k highest of their row: bool (N, J). ``k`` is one number or one per row, (N,)."""
    scores = _scores(lengths)
    N, J = scores.shape
    count = np.broadcast_to(np.asarray(k), (N,))
    if count.min() < 0 or count.max() > J:
        raise ValueError(f"k must lie between 0 and the number of classes {J}, got {count.min()} to {count.max()}")
    order = np.argsort(-scores, axis=1, kind="stable")  # stable: of equal scores the lower class number comes first
    chosen = np.zeros((N, J), dtype=bool)
    np.put_along_axis(chosen, order, np.arange(J) < count[:, None], axis=1)
    return chosen


def confusion_matrix(targets: ArrayLike, predictions: ArrayLike, num_classes: int) -> np.ndarray:
    """Counts (J, J): row = true class, column = predicted class."""
    truth = _labels(targets, len(targets), num_classes)
    guess = _labels(predictions, len(targets), num_classes, what="prediction")
    return np.bincount(truth * num_classes + guess, minlength=num_classes**2).reshape(num_classes, num_classes)


def auc(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """Area under the ROC curve: the probability that a random positive outscores a random negative, ties counting half.

    From the rank sum (Mann and Whitney 1947), with average ranks for ties:

        AUC = (sum of the positives' ranks - P (P + 1) / 2) / (P (N - P))

    scores (N,), positive (N,) bool. None if there is no positive or no negative.
    """
    values = _scores(as_array(scores)[:, None])[:, 0]  # (N,)
    mark = as_array(positive).astype(bool)
    if mark.shape != values.shape:
        raise ValueError(f"scores and positive must both be (N,), got {values.shape} and {mark.shape}")
    pos = int(mark.sum())
    neg = len(mark) - pos
    if not pos or not neg:
        return None
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    rank = np.cumsum(size) - (size - 1) / 2  # average rank of each group of equal scores, from 1
    return float((rank[group.reshape(-1)][mark].sum() - pos * (pos + 1) / 2) / (pos * neg))


def calibration_error(probabilities: ArrayLike, targets: ArrayLike, bins: int = 10) -> float:
    """Expected calibration error (Naeini, Cooper, Hauskrecht 2015): how far confidence is from the share that is right.

    Examples are sorted into ``bins`` of equal width by the probability of the predicted class; the error is the mean
    of |share right - mean probability| over the bins, each weighted by its number of examples. 0 is perfect.

    probabilities (N, J), each in [0, 1]; targets (N,).
    """
    scores = _scores(probabilities)
    if scores.min() < 0 or scores.max() > 1:
        raise ValueError(f"probabilities must lie in [0, 1], got {scores.min():g} to {scores.max():g}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    right = scores.argmax(axis=1) == _labels(targets, *scores.shape)
    sure = scores.max(axis=1)
    place = np.minimum((sure * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, right - sure, bins)).sum() / len(sure))


def per_class(
    lengths: ArrayLike, targets: ArrayLike, k: int | None = None, *, threshold: float | None = None
) -> list[ClassMetrics]:
    """Precision, recall, f1, one-vs-rest AUC and support of each class.

    The predicted classes are those of ``accuracy`` and ``exact_match``: the highest score for (N,) targets, the k
    highest for (N, J), k being each row's number of true classes unless given; or what reaches the threshold.
    """
    scores = _scores(lengths)
    truth = multi_hot(targets, *scores.shape)
    chosen = _chosen(scores, truth, k, threshold)
    areas = [auc(score, true) for score, true in zip(scores.T, truth.T, strict=True)]
    counts = [hot.sum(axis=0).tolist() for hot in (truth & chosen, chosen, truth)]
    return [
        ClassMetrics(
            precision=hits / predicted if predicted else None,
            recall=hits / support if support else None,
            f1=2 * hits / (support + predicted) if support else None,  # support + predicted = 2 tp + fp + fn
            auc=area,
            support=support,
        )
        for hits, predicted, support, area in zip(*counts, areas, strict=True)
    ]


def summarise(
    lengths: ArrayLike,
    targets: ArrayLike,
    class_names: Sequence[str] | None = None,
    k: int | None = None,
    *,
    threshold: float | None = None,
    originals: ArrayLike | None = None,
) -> dict[str, Any]:
    """All metrics in one dictionary that ``json.dumps(..., allow_nan=False)`` accepts: None, never NaN.

    (N,) targets give ``accuracy``, ``error`` and ``confusion_matrix``; (N, J) give ``exact_match`` and ``error`` (None
    if no row has a true class) and, where the number of objects is known (no ``k``, no ``threshold``),
    ``half_credit``. ``macro`` is the plain mean over the classes that occur; a class that occurs but is never predicted
    counts with precision 0. ``threshold`` is for (N, J) targets (see ``exact_match``), ``originals`` for (N,) ones (see
    ``accuracy``).
    """
    scores = _scores(lengths)
    N, J = scores.shape
    names = [str(j) for j in range(J)] if class_names is None else [str(name) for name in class_names]
    if len(names) != J:
        raise ValueError(f"class_names must name all {J} classes, got {len(names)} names")
    summary: dict[str, Any] = {"n": N, "num_classes": J}
    right = credit = None
    if single := as_array(targets).ndim == 1:
        right, k, threshold = accuracy(scores, targets, originals=originals), None, None
    elif k is not None or threshold is not None:
        right = exact_match(scores, targets, k, threshold=threshold)
    elif _hot(targets, N, J).any():
        right, credit = exact_match(scores, targets), half_credit(scores, targets)
    summary["accuracy" if single else "exact_match"] = right and right._asdict()
    summary["error"] = right and right.error._asdict()
    if credit is not None:
        summary["half_credit"] = credit._asdict()
    rows = per_class(scores, targets, k, threshold=threshold)
    if threshold is not None:
        summary["threshold"] = threshold
    summary["macro"] = {key: _macro(rows, key) for key in ("precision", "recall", "f1", "auc")}
    summary["per_class"] = [{"class": name} | row._asdict() for name, row in zip(names, rows, strict=True)]
    if single:
        summary["confusion_matrix"] = confusion_matrix(targets, scores.argmax(axis=1), J).tolist()
    return summary


def _macro(rows: list[ClassMetrics], key: str) -> float | None:
    values = [getattr(row, key) for row in rows if row.support]
    values = [value or 0.0 for value in values if value is not None or key == "precision"]
    return statistics.fmean(values) if values else None


def _scores(lengths: ArrayLike) -> np.ndarray:
    scores = as_array(lengths)
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"scores must be (N, J) with at least one example and one class, got shape {scores.shape}")
    scores = scores.astype(np.float64, copy=False)
    if np.isnan(scores).any():
        raise ValueError(f"scores hold NaN in {int(np.isnan(scores).any(axis=1).sum())} of {len(scores)} rows")
    return scores


def multi_hot(targets: ArrayLike, N: int, J: int) -> np.ndarray:
    """Targets, (N,) class numbers or (N, J) zeros and ones, checked, as bool (N, J)."""
    if as_array(targets).ndim == 1:
        return _labels(targets, N, J)[:, None] == np.arange(J)
    return _hot(targets, N, J)


def _labels(targets: ArrayLike, N: int, J: int, what: str = "label") -> np.ndarray:
    labels = as_array(targets)
    if labels.shape != (N,) or not N:
        hint = "; for several classes per example use exact_match" if labels.ndim == 2 else ""
        raise ValueError(f"expected one {what} for each of N = {N} examples, N >= 1, got shape {labels.shape}{hint}")
    wrong = (labels < 0) | (labels >= J) | (labels != np.floor(labels))
    if wrong.any():
        raise ValueError(f"{what}s must be whole numbers from 0 to {J - 1}, got {labels[wrong][0]}")
    return labels.astype(np.int64)


def _hot(targets: ArrayLike, N: int, J: int) -> np.ndarray:
    truth = as_array(targets)
    if truth.shape != (N, J):
        raise ValueError(f"multi-hot targets must be (N, J) = {(N, J)} like the scores, got shape {truth.shape}")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("multi-hot targets must hold only 0 and 1")
    return truth.astype(bool)
