"""Use a trained model: evaluate it, predict with it, measure its capsules."""

from capsnet.inference.attributions import grad_cam, integrated_gradients
from capsnet.inference.binding import binding_scores
from capsnet.inference.coupling import coupling_shares
from capsnet.inference.evaluation import (
    OFFSETS,
    Evaluation,
    answers,
    check_fit,
    check_kind,
    evaluate,
    measure,
    pick_device,
    sweep_dimensions,
)
from capsnet.inference.explanation import Explanation, explain
from capsnet.inference.int8 import to_int8
from capsnet.inference.prediction import (
    PRESENT,
    Prediction,
    evaluating,
    predict,
    predictions,
    preprocessing_of,
    words_of,
)

__all__ = [
    "OFFSETS",
    "PRESENT",
    "Evaluation",
    "Explanation",
    "Prediction",
    "answers",
    "binding_scores",
    "check_fit",
    "check_kind",
    "coupling_shares",
    "evaluate",
    "evaluating",
    "explain",
    "grad_cam",
    "integrated_gradients",
    "measure",
    "pick_device",
    "predict",
    "predictions",
    "preprocessing_of",
    "sweep_dimensions",
    "to_int8",
    "words_of",
]
