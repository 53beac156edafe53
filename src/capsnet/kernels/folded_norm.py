"""Convolutions, each followed by ReLU and BatchNorm, without ever normalising a map.

BatchNorm is ``scale * r + shift`` with one scale and one shift per channel. The next convolution has no padding, so it
can contain both:

    conv(scale * r + shift, w, b) = conv(r, w * scale) + b + sum(w * shift)

and so can the last layer, one weighted sum over the map of each channel. At inference nothing is left of BatchNorm. In
training a map is read once more, for its mean and variance, and changed once on the way back: the gradients of scale
and shift follow from those of the folded weights, without reading the map, and become ``a * r + c`` per channel, which
is added to the gradient together with the ReLU's derivative, in pieces that stay in the cache.

The reference is ``plain``. Under autocast, maps and folded weights have the lower precision; moments, scales, the last
layer and all gradients of parameters are float32.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels._autocast import autocast_dtype
from capsnet.kernels._parallel import each, slots
from capsnet.kernels._procedure import differentiable
from capsnet.kernels.cost import choose_folding
from capsnet.kernels.packed_conv import available

_PIECE = 1 << 18  # numbers of a map that are changed at once, so that the next pass over them reads the cache


class Stage(NamedTuple):
    """A convolution without padding, ReLU, BatchNorm."""

    weight: Tensor  # (O, C, h, w)
    bias: Tensor  # (O,)
    gain: Tensor  # (O,), the weight of BatchNorm
    offset: Tensor  # (O,), its bias
    mean: Tensor  # (O,), running; updated in training
    var: Tensor  # (O,), as well
    stride: tuple[int, ...]
    training: bool
    momentum: float = 0.1
    eps: float = 1e-5


def plain(x: Tensor, stages: Sequence[Stage], weight: Tensor, bias: Tensor) -> Tensor:
    """The definition; ``weight`` (C, 1, H, W) is a depthwise convolution as large as the last map."""
    for w, b, gain, offset, mean, var, stride, training, momentum, eps in stages:
        x = torch.relu(F.conv2d(x, w, b, stride))
        x = F.batch_norm(x, mean, var, gain, offset, training, momentum, eps)
    return F.conv2d(x, weight, bias, groups=len(weight)).flatten(1)


def conv_relu_norm(x: Tensor, stages: Sequence[Stage], weight: Tensor, bias: Tensor) -> Tensor | None:
    """``plain``, with every BatchNorm folded into the layer after it, or None where that is not faster.

    Shapes: x (B, C, H, W), weight (C', 1, H', W') with the size of the last map -> (B, C')
    """
    parameters = [t for stage in stages for t in stage[:4]]
    if not choose_folding(x, *parameters, weight, bias):
        return None
    dtype = autocast_dtype() or x.dtype
    return _Folded.apply(x, stages, dtype, *parameters, weight, bias)


class _Fold(NamedTuple):
    """BatchNorm of a map as ``scale * r + shift``."""

    mean: Tensor
    inverse: Tensor  # of the standard deviation
    scale: Tensor
    shift: Tensor

    @classmethod
    def of(cls, r: Tensor, stage: Stage) -> _Fold:
        mean, var = stage.mean, stage.var
        if stage.training:
            count, (mean, var) = r.numel() // len(mean), _moments(r, mean.dtype)
            stage.mean.lerp_(mean, stage.momentum)
            stage.var.lerp_(var * (count / (count - 1)), stage.momentum)
        inverse = (var + stage.eps).rsqrt()
        scale = stage.gain * inverse
        return cls(mean, inverse, scale, stage.offset - mean * scale)


class _Folded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stages: Sequence[Stage], dtype: torch.dtype, *parameters: Tensor) -> Tensor:
        *_, weight, bias = parameters
        maps, folds, fold = [_channels_last(x.to(dtype))], [], None
        with torch.autocast("cpu", enabled=False):
            for stage in stages:
                b = stage.bias if fold is None else stage.bias + stage.weight.sum((2, 3)) @ fold.shift
                maps.append(_conv_relu(maps[-1], _folded_weight(stage.weight, fold, dtype), b.to(dtype), stage.stride))
                fold = _Fold.of(maps[-1], stage)
                folds.append(fold)
                if not any(ctx.needs_input_grad):
                    del maps[:-1]
            assert fold is not None
            sums = _sums(maps[-1], weight)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, sums, *parameters, *maps, *(t for fold in folds for t in fold))
            ctx.dtype, ctx.running = dtype, [(stage.mean, stage.var) for stage in stages]
            ctx.options = [stage[6:] for stage in stages]
        return sums * fold.scale + (bias + weight.sum((1, 2, 3)) * fold.shift)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), count = gradients, len(ctx.options)
        x, sums, *saved = ctx.saved_tensors
        parameters, maps, folds = saved[: 4 * count + 2], saved[4 * count + 2 : 5 * count + 3], saved[5 * count + 3 :]
        needed = (ctx.needs_input_grad[0], *ctx.needs_input_grad[3:])
        if torch.is_grad_enabled():  # derivatives of derivatives
            first, *rest = differentiable(functools.partial(_again, ctx), (x, *parameters), needed, gradient)
            return first, None, None, *rest
        with torch.autocast("cpu", enabled=False):
            first, rest = _backward(ctx, gradient, sums, parameters, maps, folds, needed[0])
        return None if first is None else first.to(x.dtype), None, None, *rest


def _backward(
    ctx: Any,
    gradient: Tensor,
    sums: Tensor,
    parameters: list[Tensor],
    maps: list[Tensor],
    folds: list[Tensor],
    need_x: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """The gradients of x and of the parameters, from the last layer to the first."""
    weight, fold = parameters[-2], _Fold(*folds[-4:])
    total = gradient.sum(0)  # (C,)
    d_scale, d_shift = (gradient * sums).sum(0), total * weight.sum((1, 2, 3))
    results = [_sums_gradient(gradient, maps[-1], fold, total).reshape(weight.shape), total]
    g = _spread(gradient * fold.scale, weight, ctx.dtype)
    for k in reversed(range(len(ctx.options))):
        (w, _, gain, _), (stride, training, *_) = parameters[4 * k : 4 * k + 4], ctx.options[k]
        d_scale = d_scale - fold.mean * d_shift  # shift = offset - mean * scale
        d_gain, d_offset = d_scale * fold.inverse, d_shift
        a = c = None
        if training:  # the variance's gradient, times 2 / n, and the mean's
            n = maps[k + 1].numel() // len(gain)
            a = -d_gain * fold.scale * fold.inverse / n
            c = -(fold.scale * d_shift / n + a * fold.mean)
        g = _through(g, maps[k + 1], a, c)
        before = _Fold(*folds[4 * k - 4 : 4 * k]) if k else None
        g, dw, db = torch.ops.aten.convolution_backward(
            g,
            maps[k],
            _folded_weight(w, before, ctx.dtype),
            [len(w)],
            stride,
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
            [k > 0 or need_x, True, True],
        )
        dw, db = dw.to(w.dtype), db.to(w.dtype)
        if before is not None:
            fold, d_scale, d_shift = before, (dw * w).sum((0, 2, 3)), db @ w.sum((2, 3))
            dw = dw * fold.scale[:, None, None] + db[:, None, None, None] * fold.shift[:, None, None]
        results = [dw, db, d_gain, d_offset, *results]
    return g, results


def _again(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
    """The plain form, without a second update of the running statistics."""
    stages = []
    for k, ((mean, var), options) in enumerate(zip(ctx.running, ctx.options, strict=True)):
        weight, bias, gain, offset = parameters[4 * k : 4 * k + 4]
        stages.append(Stage(weight, bias, gain, offset, mean.clone(), var.clone(), *options))
    return plain(x, stages, parameters[-2], parameters[-1])


def _channels_last(x: Tensor) -> Tensor:
    """The same with strides that say channels last, also for one channel, where both layouts are the same memory."""
    _, C, H, W = x.shape
    x = x.contiguous(memory_format=torch.channels_last)
    return x.as_strided(x.shape, (H * W * C, 1, W * C, C))


def _conv_relu(x: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, ...]) -> Tensor:
    """relu(conv2d(x, weight, bias, stride)), channels last; oneDNN applies the ReLU while a result is in a register."""
    if available() and x.dtype in (torch.float32, torch.bfloat16):
        sizes = [0, 0], list(stride), [1, 1], 1
        r = torch.ops.mkldnn._convolution_pointwise(x, weight, bias, *sizes, "relu", [], "")
    else:
        r = torch.conv2d(x, weight, bias, stride).relu_()
    return r.contiguous(memory_format=torch.channels_last)


def _folded_weight(weight: Tensor, fold: _Fold | None, dtype: torch.dtype) -> Tensor:
    folded = weight if fold is None else weight * fold.scale[:, None, None]
    return folded.to(dtype).contiguous(memory_format=torch.channels_last)


def _rows(maps: Tensor) -> Tensor:
    """Maps (B, C, H, W), channels last in memory, as (B * H * W, C)."""
    return maps.permute(0, 2, 3, 1).view(-1, maps.shape[1])


def _pieces(rows: int, width: int) -> list[slice]:
    step = max(1, _PIECE // width)
    return [slice(start, start + step) for start in range(0, rows, step)]


def _moments(maps: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Mean and biased variance (C,) of maps (B, C, H, W), channels last in memory.

    The native operator adds up all numbers of a channel one after another, so each column of the maps is given to it
    as a channel of its own: the sums are shorter, and their rounding errors a tenth.
    """
    B, C, H, W = maps.shape
    columns = maps.as_strided((1, W * C, B * H, 1), (maps.numel(), 1, W * C, W * C))
    unused = torch.zeros(W * C, dtype=dtype)  # running statistics, which also state the dtype
    means, variances = (t.view(W, C) for t in torch.batch_norm_update_stats(columns, unused, unused, 0.0))
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)


def _through(gradient: Tensor, r: Tensor, a: Tensor | None, c: Tensor | None) -> Tensor:
    """gradient + a r + c where r > 0, else 0; in place."""
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    g, r = _rows(gradient), _rows(r)

    def work(_: int, piece: slice) -> None:
        into, ink = g[piece], r[piece]
        if a is not None and c is not None:
            into.addcmul_(ink, a.to(g.dtype)).add_(c.to(g.dtype))
        torch.ops.aten.threshold_backward.grad_input(into, ink, 0, grad_input=into)

    each(_pieces(*g.shape), work)
    return gradient


def _sums(r: Tensor, weight: Tensor) -> Tensor:
    """The sum over positions of maps (B, C, H, W) times weight (C, 1, H, W): (B, C)."""
    rows, taps = r.permute(0, 2, 3, 1).flatten(1, 2), weight.flatten(1).t().contiguous()  # (B, P, C), (P, C)
    out = torch.empty(len(rows), len(weight), dtype=weight.dtype)

    def work(_: int, piece: slice) -> None:
        torch.sum(rows[piece] * taps, 1, out=out[piece])

    each(_pieces(len(rows), taps.numel()), work)
    return out


def _sums_gradient(gradient: Tensor, r: Tensor, fold: _Fold, total: Tensor) -> Tensor:
    """That of the weight, (C, P)."""
    rows = r.permute(0, 2, 3, 1).flatten(1, 2)  # (B, P, C)
    pieces = _pieces(len(rows), rows[0].numel())
    sums = torch.zeros(slots(len(pieces)), *rows.shape[1:], dtype=gradient.dtype)

    def work(slot: int, piece: slice) -> None:
        sums[slot] += (rows[piece] * gradient[piece, None]).sum(0)

    each(pieces, work)
    return (sums.sum(0) * fold.scale + total * fold.shift).t()


def _spread(gradient: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """That of the maps (B, C, H, W), channels last: gradient (B, C) times weight (C, 1, H, W)."""
    taps = weight[:, 0].permute(1, 2, 0).to(dtype).contiguous()  # (H, W, C)
    return (gradient.to(dtype)[:, None, None] * taps).permute(0, 3, 1, 2)
