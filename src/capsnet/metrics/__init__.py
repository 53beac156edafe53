"""Metrics: accuracy, exact match and half credit with intervals; precision, recall, AUC; calibration; groupings.

Training, ``evaluate`` and every experiment use these functions. All are pure, take NumPy arrays or torch tensors, and
return plain Python numbers or NumPy arrays.

*Shapes* throughout: ``lengths`` (N, J) is any score per class that is larger when the class is more present (capsule
lengths, EM activations, probabilities, logits); ``targets`` are (N,) class numbers or (N, J) multi-hot.
Equal scores: the lower class number wins, as in ``argmax``.
"""

from capsnet.metrics._arrays import ArrayLike, as_array
from capsnet.metrics._classes import (
    ClassMetrics,
    accuracy,
    auc,
    calibration_error,
    confusion_matrix,
    exact_match,
    half_credit,
    multi_hot,
    per_class,
    summarise,
    top_k,
)
from capsnet.metrics._groupings import adjusted_rand_index, mean_best_overlap
from capsnet.metrics._intervals import (
    Measure,
    Proportion,
    compare,
    difference,
    effective_number,
    mean_interval,
    wilson_interval,
)

__all__ = [
    "ArrayLike",
    "ClassMetrics",
    "Measure",
    "Proportion",
    "accuracy",
    "adjusted_rand_index",
    "as_array",
    "auc",
    "calibration_error",
    "compare",
    "confusion_matrix",
    "difference",
    "effective_number",
    "exact_match",
    "half_credit",
    "mean_best_overlap",
    "mean_interval",
    "multi_hot",
    "per_class",
    "summarise",
    "top_k",
    "wilson_interval",
]
