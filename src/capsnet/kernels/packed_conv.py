"""Convolution of one or two images as one matrix product, with the weights kept in the library's own order.

For a single image a convolution with many weights is a product of a few rows (the windows) with all weights: the
arithmetic of 36 rows takes little longer than reading 21 MB. The native convolution spends more than a third of its
time on reordering the weights at every call, and even with weights that are reordered once it takes a quarter longer
than this product. At inference the weights are reordered once, and under autocast converted to bfloat16 once.

The reference is ``torch.nn.functional.conv2d``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels._memory import Memory, fingerprint

_QUICK = 1 << 19  # number of weights up to which reading all of them, to detect changes, takes little time


def available() -> bool:
    """Whether this PyTorch has oneDNN and its two operators (those that compiled models use)."""
    ops = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, op) for op in ops)


def packed_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    memory: Memory,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """``torch.nn.functional.conv2d`` without gradients; ``memory`` keeps the packed weights until they change.

    ``dtype``: that of the products, float32 or bfloat16; sums, arguments and result are float32.

    Shapes: x (B, C, H, W), weight (O, C, kh, kw), bias (O,) -> (B, O, H', W'), laid out channels last.
    """
    key = fingerprint(weight, sampled=weight.numel() > _QUICK)
    if key is None:
        return F.conv2d(x, weight, bias, stride, padding)
    with torch.no_grad(), torch.autocast("cpu", enabled=False), memory.exclusive() as memory:
        rows = windows(x.to(dtype), (weight.shape[2], weight.shape[3]), stride, padding)  # (B, H', W', kh*kw*C)
        count = rows[..., 0].numel()
        key = (key, count, dtype)
        if not memory.holds("packed", key):
            with torch.inference_mode(False):
                matrix = weight.detach().permute(0, 2, 3, 1).flatten(1).to(dtype)  # (O, kh*kw*C)
                memory.put("packed", torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), count), key)
        packed = memory.get("packed")
        y = torch.ops.mkldnn._linear_pointwise(rows.flatten(0, 2), packed, None, "none", [], "").float()
        y = y if bias is None else y.add_(bias)
        return y.view(*rows.shape[:3], -1).permute(0, 3, 1, 2)


def windows(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The values under each position of the kernel: (B, C, H, W) -> (B, H', W', kh*kw*C).

    Channels are last, so that what is copied are whole runs of them.
    """
    padded = F.pad(x, (padding[1], padding[1], padding[0], padding[0])) if any(padding) else x
    last = padded.permute(0, 2, 3, 1).contiguous()
    parts = last.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1])  # (B, H', W', C, kh, kw)
    return parts.permute(0, 1, 2, 4, 5, 3).flatten(3)
