"""Inputs of another shape, and sizes below 1, are refused in one sentence."""

from numbers import Integral

from torch import Tensor


def check_shape(x: Tensor, *sizes: int | str) -> None:
    """``check_shape(x, "B", 3, "H", "W")``: a letter stands for any size, "..." at the end for any further axes."""
    axes = sizes[:-1] if sizes[-1] == "..." else sizes
    fits = x.ndim == len(axes) or (x.ndim > len(axes) and axes != sizes)
    if not fits or any(isinstance(size, int) and x.shape[k] != size for k, size in enumerate(axes)):
        raise ValueError(f"expected an input of shape ({', '.join(map(str, sizes))}), got {tuple(x.shape)}")


def check_counts(**sizes: int) -> None:
    """``check_counts(channels=0)`` raises "channels must be at least 1, got 0"."""
    for what, value in sizes.items():
        if not isinstance(value, Integral):
            raise ValueError(f"{what} must be a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{what} must be at least 1, got {value}")
