"""What metrics take: NumPy arrays, torch tensors or lists."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

ArrayLike: TypeAlias = np.ndarray | torch.Tensor | Sequence


def as_array(values: ArrayLike) -> np.ndarray:
    """An array, a tensor on any device and of any dtype, or a list as NumPy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()  # NumPy has no bfloat16
    return np.asarray(values)
