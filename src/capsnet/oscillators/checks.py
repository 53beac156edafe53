"""Oscillators that cannot be used are refused in one sentence."""

from torch import Tensor


def check_components(n: int) -> None:
    """An oscillator has at least two components: on a line there is no phase."""
    if n < 2:
        raise ValueError(f"oscillators have at least 2 components, got n = {n}")


def check_finite(what: str, values: Tensor) -> None:
    if not values.isfinite().all():
        raise ValueError(f"{what} must be finite, got {float(values[~values.isfinite()][0])}")
