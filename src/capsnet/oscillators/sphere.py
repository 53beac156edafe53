"""Oscillators as unit vectors with n components: the circle for n = 2, a sphere for n > 2.

The Kuramoto model in n dimensions (Miyato et al., *Artificial Kuramoto Oscillatory Neurons*, ICLR 2025):

    dx_i/dt = Omega_i x_i + tangent_{x_i}(y_i),    y_i = sum_j J_ij x_j + c_i

Each oscillator is pulled towards y_i, the sum of the others and of a stimulus c_i, along the sphere. For n = 2 this is
Kuramoto's model: the tangent part of x_j is sin(theta_j - theta_i).
"""

from numbers import Integral
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from capsnet.oscillators.checks import check_components, check_count, check_positive


def unit(x: Tensor, dim: int = -1) -> Tensor:
    """Vectors scaled to length 1. Those too short for a finite gradient stay as they are: zero, and lengths up to the
    cube root of the precision's smallest normal number, 2.3e-13 in float32 and 2.8e-103 in float64. Those whose squared
    length overflows, from 1.8e19 in float32 on, become zero.

    The squared sum is many times faster than ``torch.linalg.vector_norm`` over a short axis. The backward pass needs
    only what is returned, and one number for each vector.
    """
    if x.requires_grad and torch.is_grad_enabled() and not _transformed():
        return cast("tuple[Tensor, Tensor]", _Unit.apply(x, dim))[0]
    return x * _inverse_length(x, dim)


def _transformed() -> bool:
    """Whether something else than autograd follows the computation: it needs the plain operations."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def _inverse_length(x: Tensor, dim: int) -> Tensor:
    square = x.square().sum(dim=dim, keepdim=True)
    least = torch.finfo(x.dtype).tiny ** (2 / 3)  # the derivative, square^(-3/2), of smaller ones is not finite
    return torch.where(square > least, square, 1).rsqrt()


class _Unit(torch.autograd.Function):
    """``unit`` without x in memory: dx = r (dy - (y . dy) y) - dr r^2 y, for y = r x.

    r is returned too, so that autograd knows what the derivatives of this derivative depend on.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        r = _inverse_length(x, dim)
        y = x * r
        ctx.save_for_backward(y, r)
        ctx.dim = dim
        return y, r

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (y, r), (dy, dr) = ctx.saved_tensors, gradients
        along = (y * dy).sum(dim=ctx.dim, keepdim=True) + r * dr
        return r * (dy - along * y), None


def magnitude(x: Tensor, dim: int = -1) -> Tensor:
    """The length of vectors, with gradient 0 at 0. Faster than ``vector_norm`` over an axis that is not the last."""
    square = x.square().sum(dim=dim)
    nonzero = square != 0  # true of NaN, which stays NaN
    return torch.where(nonzero, torch.where(nonzero, square, 1).sqrt(), 0)


def tangent(x: Tensor, y: Tensor, dim: int = -1) -> Tensor:
    """The part of y that is orthogonal to the unit vectors x: how y moves x along the sphere. Zero vectors x stay."""
    return y - (x * y).sum(dim=dim, keepdim=True) * x


def rotate(x: Tensor, rates: Tensor) -> Tensor:
    """The velocity Omega x of vectors that rotate by themselves: their natural frequencies.

    Omega is antisymmetric; ``rates`` (..., n (n - 1) / 2) are its entries above the diagonal, row by row. For n = 2
    it is one number, the frequency: positive is counter-clockwise.

    Shapes: x (..., n), rates broadcast with it -> (..., n).
    """
    n = x.shape[-1]
    check_components(n)
    if rates.shape[-1] != n * (n - 1) // 2:
        raise ValueError(f"oscillators with {n} components have {n * (n - 1) // 2} rates, got {rates.shape[-1]}")
    row, column = torch.triu_indices(n, n, 1, device=x.device)
    result = torch.zeros_like(x + rates[..., :1])
    result = result.index_add(-1, row, -rates * x[..., column])
    return result.index_add(-1, column, rates * x[..., row])


def step(x: Tensor, force: Tensor, gamma: float = 1.0, rates: Tensor | None = None) -> Tensor:
    """One step of size ``gamma``: unit(x + gamma (Omega x + tangent_x(force))). Shapes: (..., n) -> (..., n)."""
    check_components(x.shape[-1])
    check_positive("gamma", gamma)
    velocity = tangent(x, force)
    if rates is not None:
        velocity = velocity + rotate(x, rates)
    return unit(x + gamma * velocity)


def energy(x: Tensor, coupled: Tensor, stimulus: Tensor | None = None) -> Tensor:
    """-1/2 sum_i x_i . (J x)_i - sum_i x_i . c_i, for ``coupled`` = J x and ``stimulus`` = c.

    Steps without natural frequencies never raise it if J is symmetric and gamma (|J| + max |c_i|) is less than 1.

    Shapes: (..., N, n) -> (...).
    """
    total = -0.5 * (x * coupled).sum(dim=(-2, -1))
    return total if stimulus is None else total - (x * stimulus).sum(dim=(-2, -1))


def order_parameter(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The length of the mean of N oscillators: 1 if all point in one direction, about 1 / sqrt(N) if at random.

    Shapes: x (..., N, n), weights (..., N) -> (...).
    """
    if weights is None:
        mean = x.mean(dim=-2)
    else:
        total = weights.sum(dim=-1, keepdim=True)
        mean = (x * weights.unsqueeze(-1)).sum(dim=-2) / torch.where(total > 0, total, 1)
    return magnitude(mean)


def simplex(count: int, dim: int | None = None, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """``count`` unit vectors as far apart as possible: every inner product of two is -1 / (count - 1).

    They need ``count`` - 1 dimensions; the default is at least 3, where vectors can pass around each other.

    Shapes: -> (count, dim).
    """
    if not isinstance(count, Integral | torch.SymInt | Tensor):  # the last two: sizes of a tracer
        raise ValueError(f"a simplex has a whole number of corners, got {count!r}")
    count = int(count)
    if count < 1:
        raise ValueError(f"a simplex has at least 1 corner, got {count}")
    dim = max(3, count - 1) if dim is None else dim
    check_count("dim", dim)
    if dim < count - 1:
        raise ValueError(f"{count} corners of a simplex need at least {count - 1} dimensions, got {dim}")
    # Cholesky's factor of the inner products. In direction k corner k has the rest of its length, and all later ones
    # the same number. Made by numpy, so that exporters see a constant.
    k = np.minimum(np.arange(dim, dtype=np.float64), count - 1)
    own = np.sqrt(1 - k / (max(1, count - 1) * (count - k)))
    later = -own / np.maximum(1, count - 1 - k)
    return torch.as_tensor(np.eye(count, dim) * own + np.tri(count, dim, -1) * later).to(dtype)


def random_phases(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unit vectors in directions at random, the same for the same seed and shape. Shapes: -> (..., n).

    Drawn by numpy, so that exporters see a constant.
    """
    check_components(shape[-1] if shape else 0)
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(drawn / np.sqrt(np.square(drawn).sum(axis=-1, keepdims=True))).to(dtype)
