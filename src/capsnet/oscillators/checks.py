"""Oscillators, and numbers about them, that cannot be used are refused in one sentence."""

import math
from numbers import Integral, Real

import torch
from torch import Tensor


def check_components(n: int) -> None:
    """An oscillator has at least two components: on a line there is no phase."""
    if not isinstance(n, Integral | torch.SymInt | Tensor):  # the last two: sizes of a tracer
        raise ValueError(f"n, the components of an oscillator, must be a whole number, got {n!r}")
    if n < 2:
        raise ValueError(f"oscillators have at least 2 components, got n = {n}")


def check_count(what: str, value: int) -> None:
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, got {value!r}")


def check_finite(what: str, values: Tensor) -> None:
    if not values.isfinite().all():
        raise ValueError(f"{what} must be finite, got {float(values[~values.isfinite()][0])}")


def check_weights(weights: Tensor) -> None:
    check_finite("weights", weights)
    if (weights < 0).any():
        raise ValueError(f"weights must be at least 0, got {float(weights.min()):g}")


def check_positive(what: str, value: float) -> None:
    if not isinstance(value, Real | Tensor) or not 0 < value < math.inf:
        raise ValueError(f"{what} must be positive and finite, got {value!r}")
