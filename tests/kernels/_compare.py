"""The error bound of fast paths, against a float64 reference."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Function = Callable[..., Tensor]


def run(
    function: Function, arguments: Sequence[Tensor | None], dtype: torch.dtype, leaves: Sequence[int]
) -> list[Tensor]:
    """Output and the gradients of the arguments numbered in ``leaves``, in ``dtype``, for a fixed random cotangent."""
    cast = [None if a is None else a.detach().to(dtype).requires_grad_(i in leaves) for i, a in enumerate(arguments)]
    y = function(*cast)
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(y.dtype)
    inputs = [t for i, t in enumerate(cast) if i in leaves and t is not None]
    return [y.detach(), *torch.autograd.grad(y, inputs, cotangent)]


def error(value: Tensor, reference: Tensor) -> float:
    return float((value.double() - reference).abs().max())


def assert_as_good(fast: Function, plain: Function, arguments: Sequence[Tensor | None], leaves: Sequence[int]) -> None:
    """Outputs and gradients: at most twice plain PyTorch's error, or 5e-6 of the largest value, whichever is larger."""
    reference = run(plain, arguments, torch.float64, leaves)
    usual = run(plain, arguments, torch.float32, leaves)
    tested = run(fast, arguments, torch.float32, leaves)
    for name, t, u, r in zip(["output", *map(str, leaves)], tested, usual, reference, strict=True):
        assert t.shape == r.shape
        allowed = max(2 * error(u, r), 5e-6 * float(r.abs().max()), 1e-30)
        assert error(t, r) <= allowed, f"{name}: error {error(t, r):.2e}, allowed {allowed:.2e}"


def assert_as_good_in_bf16(
    fast: Function, plain: Function, arguments: Sequence[Tensor | None], leaves: Sequence[int]
) -> None:
    """Outputs and gradients under autocast to bfloat16: the root of the mean square error is at most twice plain
    PyTorch's, or 2^-7 (two roundings) of that of the values, whichever is larger. Both passes run under autocast."""
    reference = run(plain, arguments, torch.float64, leaves)
    with torch.autocast("cpu", torch.bfloat16):
        usual = run(plain, arguments, torch.float32, leaves)
        tested = run(fast, arguments, torch.float32, leaves)
    for name, t, u, r in zip(["output", *map(str, leaves)], tested, usual, reference, strict=True):
        assert t.shape == r.shape
        assert t.dtype == torch.float32
        # in this order a NaN of PyTorch's own convolution, seen with AMX and odd numbers of channels, does not count
        allowed = max(2**-7 * _mean_error(torch.zeros_like(r), r), 2 * _mean_error(u, r))
        assert _mean_error(t, r) <= allowed, f"{name}: mean error {_mean_error(t, r):.2e}, allowed {allowed:.2e}"


def _mean_error(value: Tensor, reference: Tensor) -> float:
    return float((value.double() - reference).square().sum().sqrt()) / max(1, reference.numel()) ** 0.5
