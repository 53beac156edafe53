"""Two convolutions with a ReLU between them, without transpositions.

The second convolution, done by transforms, needs its input as (position, batch, phase, channel). The first is one
matrix product over gathered windows, and gives its output in the order in which the windows are gathered: so they are
gathered in that order. This is also faster than the direct form, which with one input channel reaches a sixth of the
machine's peak.

The reference is ``plain``: two calls of ``torch.nn.functional.conv2d``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.functional import without_autocast
from capsnet.kernels._autocast import in_single
from capsnet.kernels._memory import Memory
from capsnet.kernels._parallel import slots
from capsnet.kernels._procedure import differentiable
from capsnet.kernels._spectral import Run, Spectral
from capsnet.kernels._tiles import Plan
from capsnet.kernels.cost import choose_stem, product_dtype

_ROWS = 256  # rows of the matrix products at inference: more only cost memory


def plain(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, stride: tuple[int, int]) -> Tensor:
    """The definition: convolution, ReLU, strided convolution."""
    return F.conv2d(torch.relu(F.conv2d(x, w1, b1)), w2, b2, stride)


def conv_relu_conv(
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    stride: int | tuple[int, int] = 1,
    *,
    memory: Memory | None = None,
) -> Tensor | None:
    """conv2d(relu(conv2d(x, w1, b1)), w2, b2, stride), or None where fusing them is not faster.

    The first convolution has stride 1, neither has padding. None also where x needs a gradient. After None the caller
    uses two convolutions, each of which may take its own fast path. Under autocast to bfloat16 the products are in
    bfloat16, the result is in float32.

    Shapes: x (B, C, H, W), w1 (C1, C, h1, k1), w2 (O, C1, h2, k2) -> (B, O, H', W'), laid out channels last.
    """
    stride = (stride, stride) if isinstance(stride, int) else (stride[0], stride[1])
    if product_dtype(x, w1, b1, w2, b2) is None:
        return None
    backward = torch.is_grad_enabled() and any(t.requires_grad for t in (w1, b1, w2, b2))
    plan = choose_stem(x, w1, w2, stride, backward=backward, cached=memory is not None and not backward)
    if plan is None:
        return None
    memory = memory or Memory()
    if backward:
        with without_autocast(x):
            return _Stem.apply(x, w1, b1, w2, b2, plan, memory)
    with torch.no_grad(), without_autocast(x), memory.exclusive() as memory:
        step = max(1, _ROWS // plan.tiles)
        parts = [_forward(part, w1, b1, w2, plan, memory, keep=False) for part in x.split(step)]
        return (torch.cat(parts) if len(parts) > 1 else parts[0]).add_(b2.view(1, -1, 1, 1))


class _Windows:
    """Windows of the first convolution, gathered as (position, image, tile, phase) rows of (C*h*k values, 1)."""

    def __init__(self, x: Tensor, w1: Tensor, plan: Plan, memory: Memory) -> None:
        self.memory, self.dtype = memory, plan.dtype
        self.depth = w1[0].numel() + 1  # the 1 multiplies the bias
        r, c = plan.rows, plan.columns
        height, width = r.span + w1.shape[2] - 1, c.span + w1.shape[3] - 1
        padded = F.pad(x, (0, width - x.shape[3], 0, height - x.shape[2])).contiguous()
        b, ch, dy, dx = padded.stride()
        size = (r.inputs, c.inputs, x.shape[0], r.tiles, c.tiles, r.stride, c.stride, *w1.shape[1:])
        steps = (
            r.stride * dy,
            c.stride * dx,
            b,
            r.stride * r.outputs * dy,
            c.stride * c.outputs * dx,
            dy,
            dx,
            ch,
            dy,
            dx,
        )
        self.view = padded.as_strided(size, steps)

    def rows(self, slot: int, run: Run) -> Tensor:
        part = self.view[:, :, run[0] : run[1]]
        count = part[..., 0, 0, 0].numel()
        rows = self.memory.block(f"windows {slot}", (count, self.depth), self.dtype)
        rows[:, :-1].unflatten(1, part.shape[-3:]).unflatten(0, part.shape[:-3]).copy_(part)
        rows[:, -1] = 1
        return rows


def _matrix(w1: Tensor, b1: Tensor, dtype: torch.dtype) -> Tensor:
    """Weight and bias as one (C*h*k + 1, C1) matrix."""
    return torch.cat([w1.flatten(1), b1[:, None]], dim=1).t().to(dtype).contiguous()


def _hidden(work: Spectral, batch: int) -> tuple[int, int]:
    return batch, work.plan.inputs * work.plan.tiles * work.depth


def _lowered(work: Spectral, slot: int, pieces: Tensor) -> Tensor:
    """A buffer like ``pieces`` in the dtype of the products: ``pieces`` itself if that is its own."""
    same = pieces.dtype == work.plan.dtype
    return pieces if same else work.memory.block(f"lowered {slot}", tuple(pieces.shape), work.plan.dtype)


def _forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, plan: Plan, memory: Memory, keep: bool) -> Tensor:
    work = Spectral(plan, w1.shape[0], w2.shape[0], memory)
    weights = work.weight_spectrum(w2)
    inputs = _input_spectrum(work, x, w1, b1, keep)
    return plan.assemble(work.output(inputs, weights), x.shape[0])


def _input_spectrum(work: Spectral, x: Tensor, w1: Tensor, b1: Tensor, keep: bool) -> Tensor:
    """The spectrum of the ReLU's output; ``keep``: the output itself too, chunk after chunk, for the ReLU's
    derivative."""
    windows, matrix = _Windows(x, w1, work.plan, work.memory), _matrix(w1, b1, work.plan.dtype)
    hidden = work.memory.block("hidden", _hidden(work, x.shape[0]), work.plan.dtype) if keep else None

    def fill(slot: int, run: Run, pieces: Tensor) -> Tensor:
        into = _lowered(work, slot, pieces) if hidden is None else hidden[run[0] : run[1]].view(pieces.shape)
        torch.mm(windows.rows(slot, run), matrix, out=into.view(-1, w1.shape[0]))
        into.clamp_min_(0)
        return into if into.dtype == pieces.dtype else pieces.copy_(into)

    return work.input_spectrum(x.shape[0], fill)


class _Stem(torch.autograd.Function):
    """As in fft_conv: only arguments are saved; everything else is in memory, or recomputed."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, plan: Plan, memory: Memory
    ) -> Tensor:
        ctx.save_for_backward(x, w1, b1, w2, b2)
        ctx.plan, ctx.memory, ctx.ticket = plan, memory, object()
        with memory.exclusive() as block:
            y = _forward(x, w1, b1, w2, plan, block, keep=True)
            for name in ("input", "hidden"):
                block.remember(name, ctx.ticket)
        return y.add_(b2.view(1, -1, 1, 1))

    @staticmethod
    @in_single
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (x, w1, b1, w2, b2), plan = gradients, ctx.saved_tensors, ctx.plan
        needed = ctx.needs_input_grad[1:5]
        if torch.is_grad_enabled():  # derivatives of derivatives
            stride = (plan.rows.stride, plan.columns.stride)
            grads = differentiable(
                lambda w1, b1, w2, b2: plain(x, w1, b1, w2, b2, stride), (w1, b1, w2, b2), needed, gradient
            )
            return None, *grads, None, None
        need_first, need_weight = needed[0] or needed[1], needed[2]
        dw1 = db1 = dw2 = None
        with ctx.memory.exclusive() as memory:
            work = Spectral(plan, w1.shape[0], w2.shape[0], memory)
            if need_first or need_weight:
                kept = memory.holds("input", ctx.ticket) and memory.holds("hidden", ctx.ticket)
                inputs = work.kept_input_spectrum(x.shape[0]) if kept else _input_spectrum(work, x, w1, b1, keep=True)
                weights = work.weight_spectrum(w2) if need_first else None
                d_inputs, d_weights = work.products_backward(
                    inputs if need_weight else None, weights, work.output_spectrum(gradient)
                )
                dw2 = None if d_weights is None else work.weight_gradient(d_weights, w2)
                if d_inputs is not None:
                    dw1, db1 = _first_gradient(work, d_inputs, x, w1)
        return None, dw1, db1, dw2, gradient.sum((0, 2, 3)) if needed[3] else None, None, None


def _first_gradient(work: Spectral, gradient: Tensor, x: Tensor, w1: Tensor) -> tuple[Tensor, Tensor]:
    """Input spectrum's gradient -> (w1's, b1's): back through the transform, the ReLU and the matrix product."""
    windows = _Windows(x, w1, work.plan, work.memory)
    hidden = work.memory.content("hidden", _hidden(work, x.shape[0]), work.plan.dtype)
    totals = torch.zeros(slots(x.shape[0]), windows.depth, w1.shape[0], dtype=work.dtype)  # one for each thread

    def take(slot: int, run: Run, pieces: Tensor) -> None:
        relu = hidden[run[0] : run[1]].view(pieces.shape)
        kept = _lowered(work, slot, pieces)
        if kept is not pieces:
            kept.copy_(pieces)
        torch.ops.aten.threshold_backward.grad_input(kept, relu, 0, grad_input=kept)
        totals[slot] += torch.mm(windows.rows(slot, run).t(), kept.view(-1, w1.shape[0]))

    work.input_gradient(gradient, take)
    total = totals.sum(0)
    return total[:-1].t().reshape(w1.shape), total[-1]
