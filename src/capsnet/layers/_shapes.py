"""Inputs of another shape are refused in one sentence."""

from torch import Tensor


def check_shape(x: Tensor, *sizes: int | str) -> None:
    """``check_shape(x, "B", 3, "H", "W")``: a letter stands for any size, "..." at the end for any further axes."""
    axes = sizes[:-1] if sizes[-1] == "..." else sizes
    fits = x.ndim == len(axes) or (x.ndim > len(axes) and axes != sizes)
    if not fits or any(isinstance(size, int) and x.shape[k] != size for k, size in enumerate(axes)):
        raise ValueError(f"expected an input of shape ({', '.join(map(str, sizes))}), got {tuple(x.shape)}")
