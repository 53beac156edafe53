"""Kernels under autocast, which would otherwise replace operations inside them one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def has_bf16() -> bool:
    """Whether this CPU has products of bfloat16 (AVX-512 BF16, AMX or ARM's) and this PyTorch uses them.

    PyTorch computes bfloat16 on any CPU, but on others more slowly than float32. The environment variable CAPSNET_BF16
    overrides the detection: 1 to use bfloat16 all the same, 0 not to use it.
    """
    wanted = os.environ.get("CAPSNET_BF16", "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"CAPSNET_BF16 must be 0 or 1, got {wanted!r}")
    if wanted:
        return wanted == "1"
    if not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # an older PyTorch
        return torch.cpu._is_avx512_bf16_supported()
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))


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
