"""Convolution by transforms: fewer multiplications than direct summation, as large matrix products.

The reference is ``torch.nn.functional.conv2d``. ``_bases.py`` has the mathematics, ``_tiles.py`` the cut,
``_spectral.py`` the arithmetic, ``cost.py`` the decision; this file makes them one differentiable function.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.functional import without_autocast
from capsnet.kernels._autocast import in_single
from capsnet.kernels._memory import Memory
from capsnet.kernels._spectral import Fill, Run, Spectral
from capsnet.kernels._tiles import Plan
from capsnet.kernels.cost import choose, choose_packed
from capsnet.kernels.packed_conv import packed_conv2d

_ROWS = 256  # rows of the matrix products at inference: more only cost memory


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    *,
    memory: Memory | None = None,
) -> Tensor:
    """``torch.nn.functional.conv2d`` (groups = dilation = 1), by transforms where ``cost.choose`` expects a gain, else
    that itself.

    ``memory``, kept by the caller from call to call, saves allocations, and at inference the transform of the weight,
    which is recomputed when the weight changes. Under autocast to bfloat16 the products are in bfloat16, and the result
    of the fast path is in float32.

    Shapes: x (B, C, H, W), weight (O, C, kh, kw), bias (O,) -> (B, O, H', W'), which may be laid out channels last.
    """
    stride, padding = _pair(stride), _pair(padding)
    plan = choose(x, weight, bias, stride, padding, cached=_spectrum_cached(x, weight, memory))
    if plan is None:
        if memory is not None and (dtype := choose_packed(x, weight, bias, stride, padding)) is not None:
            return packed_conv2d(x, weight, bias, stride, padding, memory, dtype)
        return F.conv2d(x, weight, bias, stride, padding)
    memory = memory or Memory()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        with without_autocast(x):
            return _Conv2d.apply(x, weight, bias, plan, memory)
    with torch.no_grad(), without_autocast(x), memory.exclusive() as memory:
        step = max(1, _ROWS // plan.tiles)
        parts = [_forward(part, weight, plan, memory) for part in x.split(step)]
        return _add_bias(torch.cat(parts) if len(parts) > 1 else parts[0], bias)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _spectrum_cached(x: Tensor, weight: Tensor, memory: Memory | None) -> bool:
    """Whether the weight's transform is kept from call to call: at inference with a memory."""
    return memory is not None and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))


def _add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y.add_(bias.view(1, -1, 1, 1))


def _gather(x: Tensor, plan: Plan) -> Fill:
    windows = plan.windows(plan.pad(x))

    def fill(slot: int, run: Run, pieces: Tensor) -> Tensor:
        part = windows[:, :, run[0] : run[1]]
        pieces.view(part.shape).copy_(part)
        return pieces

    return fill


def _forward(x: Tensor, weight: Tensor, plan: Plan, memory: Memory) -> Tensor:
    work = Spectral(plan, x.shape[1], weight.shape[0], memory)
    weights = work.weight_spectrum(weight)
    inputs = work.input_spectrum(x.shape[0], _gather(x, plan))
    return plan.assemble(work.output(inputs, weights), x.shape[0])


class _Conv2d(torch.autograd.Function):
    """x, weight, bias -> y. Backward takes what it needs besides x and weight from memory, or recomputes it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, plan: Plan, memory: Memory) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.plan, ctx.memory, ctx.ticket = plan, memory, object()
        with memory.exclusive() as block:
            y = _forward(x, weight, plan, block)
            block.remember("input", ctx.ticket)
        return _add_bias(y, bias)

    @staticmethod
    @in_single
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (x, weight, bias), plan = gradients, ctx.saved_tensors, ctx.plan
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # derivatives of derivatives: the native operator has them
            stride, padding = [plan.rows.stride, plan.columns.stride], [plan.rows.padding, plan.columns.padding]
            sizes = None if bias is None else list(bias.shape)
            results = torch.ops.aten.convolution_backward(
                gradient,
                x.to(gradient.dtype),
                weight,
                sizes,
                stride,
                padding,
                [1, 1],
                False,
                [0, 0],
                1,
                [need_x, need_weight, need_bias],
            )
            return *results, None, None
        dx = dw = None
        with ctx.memory.exclusive() as memory:
            work = Spectral(plan, x.shape[1], weight.shape[0], memory)
            inputs = None
            if need_weight:
                kept = memory.holds("input", ctx.ticket)
                inputs = (
                    work.kept_input_spectrum(x.shape[0]) if kept else work.input_spectrum(x.shape[0], _gather(x, plan))
                )
            if need_x or need_weight:
                weights = work.weight_spectrum(weight) if need_x else None
                d_inputs, d_weights = work.products_backward(inputs, weights, work.output_spectrum(gradient))
                dw = None if d_weights is None else work.weight_gradient(d_weights, weight)
                dx = None if d_inputs is None else _scatter(work, d_inputs, x)
        return dx, dw, gradient.sum((0, 2, 3)) if need_bias else None, None, None


def _scatter(work: Spectral, gradient: Tensor, x: Tensor) -> Tensor:
    """Input spectrum's gradient -> x's."""
    plan = work.plan
    shape = (*x.shape[:2], plan.rows.span, plan.columns.span)
    padded = torch.empty(shape, dtype=work.dtype) if plan.tiles == 1 else torch.zeros(shape, dtype=work.dtype)

    def take(slot: int, run: Run, pieces: Tensor) -> None:
        part = padded[run[0] : run[1]]
        plan.scatter(pieces.view(plan.windows(part).shape), part)

    work.input_gradient(gradient, take)
    return plan.unpad(padded, tuple(x.shape)).to(x.dtype)
