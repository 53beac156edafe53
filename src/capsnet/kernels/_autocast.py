"""Kernels under autocast, which would otherwise replace operations inside them one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P, R = ParamSpec("P"), TypeVar("R")


def autocast_dtype() -> torch.dtype | None:
    """The dtype to which autocast lowers products on the CPU; None outside of it."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def in_single(function: Callable[P, R]) -> Callable[P, R]:
    """Compute in float32 under CPU autocast: half-precision arguments are converted, and autocast is off inside."""

    def single(value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
        return value.float() if half else value

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling() or autocast_dtype() is None:
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return function(*map(single, args), **{name: single(value) for name, value in kwargs.items()})  # type: ignore[arg-type]

    return call
