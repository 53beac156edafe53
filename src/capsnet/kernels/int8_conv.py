"""Convolution with 8-bit numbers: four times as many products per instruction, a quarter of the weights' memory.

Every filter has its own scale, w = scale * q with q in -127..127. Every image has its own scale and offset,
x = low + scale * q with q in 0..255, measured at each call: no calibration is needed, and an image's result does not
depend on the others of its batch. Sums are exact (int32); a result is off by the two roundings.

The reference is ``plain``: the same roundings in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels._memory import Memory, fingerprint

_IMAGES = 8  # that are rounded at a time: the copies of more would not stay in the cache
_LEAST = torch.finfo(torch.float32).tiny


class Filters(NamedTuple):
    """Quantised weights (O, C, kh, kw), the scale of each filter (O,), and the sum of each filter's weights (O,)."""

    weight: Tensor
    scale: Tensor
    total: Tensor


def available() -> bool:
    """Whether oneDNN is there and the CPU adds 8-bit products without saturation (VNNI)."""
    return (
        torch.backends.mkldnn.is_available()
        and torch.cpu._is_vnni_supported()
        and hasattr(torch.ops.onednn, "qconv2d_pointwise")
    )


def quantise_filters(weight: Tensor) -> Filters:
    """Each filter rounded to 255 steps, symmetric around zero."""
    scale = (weight.abs().amax((1, 2, 3)) / 127).clamp_min(_LEAST)
    rounded = (weight / scale.view(-1, 1, 1, 1)).round_().to(torch.int8)
    return Filters(rounded, scale, rounded.sum((1, 2, 3), dtype=torch.float32) * scale)


def quantise_images(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each image rounded to 256 steps from its least to its greatest value: (q uint8, scale (B,), low (B,))."""
    low, high = x.flatten(1).amin(1), x.flatten(1).amax(1)  # aminmax is ten times slower
    scale = ((high - low) / 255).clamp_min(_LEAST)
    steps = (x - _each(low)).mul_(_each(1 / scale)).round_()
    return steps.clamp_(0, 255).to(torch.uint8, memory_format=torch.channels_last), scale, low


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The definition: a convolution of the rounded image with the rounded weights."""
    filters = quantise_filters(weight)
    steps, scale, low = quantise_images(_pad(x, padding))
    rounded = _each(low) + _each(scale) * steps
    return F.conv2d(rounded, filters.weight * filters.scale.view(-1, 1, 1, 1), bias, stride)


def int8_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int], memory: Memory
) -> Tensor:
    """``plain`` in integers; ``memory`` keeps the packed weights until they change.

    Shapes: x (B, C, H, W), weight (O, C, kh, kw), bias (O,) -> (B, O, H', W'), laid out channels last.
    """
    x, sizes = _pad(x, padding), (list(stride), [0, 0], [1, 1], 1)
    key = fingerprint(weight, sampled=True)
    with torch.no_grad(), memory.exclusive() as memory:
        if not memory.holds("int8", key):
            with torch.inference_mode(False):
                filters = quantise_filters(weight.detach())
                shape = [1, *x.shape[1:]]  # one order of the weights for all sizes of batches
                packed = torch.ops.onednn.qconv_prepack(filters.weight, filters.scale, 1.0, 0, *sizes, shape)
                for name, value in (("int8", packed), ("int8 scale", filters.scale), ("int8 total", filters.total)):
                    memory.put(name, value, key)
        packed, scales, totals = (memory.get(name) for name in ("int8", "int8 scale", "int8 total"))
    zeros = torch.zeros(len(scales), dtype=torch.int64)

    def convolve(x: Tensor) -> Tensor:
        steps, scale, low = quantise_images(x)
        y = torch.ops.onednn.qconv2d_pointwise(
            steps, 1.0, 0, packed, scales, zeros, None, *sizes, 1.0, 0, torch.float32, "none", [], ""
        )
        offset = low[:, None] * totals if bias is None else torch.addcmul(bias, low[:, None], totals)  # (B, O)
        return torch.addcmul(offset[:, :, None, None], y, _each(scale))

    parts = [convolve(part) for part in x.split(_IMAGES)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _each(values: Tensor) -> Tensor:
    """(B,) -> (B, 1, 1, 1)"""
    return values.view(-1, 1, 1, 1)


def _pad(x: Tensor, padding: tuple[int, int]) -> Tensor:
    return F.pad(x, (padding[1], padding[1], padding[0], padding[0])) if any(padding) else x
