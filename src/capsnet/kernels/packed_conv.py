"""Convolution of one or two images: the native one, with the weights kept in its own order.

For a single image the native convolution spends more than a third of its time on reordering 21 MB of weights, at every
call. At inference they are reordered once. The reference is ``torch.nn.functional.conv2d``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels._memory import Memory, fingerprint

_QUICK = 1 << 19  # number of weights up to which reading all of them, to detect changes, takes little time


def available() -> bool:
    """Whether this PyTorch has oneDNN and its two operators (those that compiled models use)."""
    ops = ("_reorder_convolution_weight", "_convolution_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, op) for op in ops)


def packed_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int], memory: Memory
) -> Tensor:
    """``torch.nn.functional.conv2d`` without gradients; ``memory`` keeps the packed weights until they change."""
    sizes = list(padding), list(stride), [1, 1], 1
    key = fingerprint(weight, sampled=weight.numel() > _QUICK)
    if key is None:
        return F.conv2d(x, weight, bias, stride, padding)
    with torch.no_grad(), memory.exclusive() as memory:
        key = (key, tuple(x.shape), stride, padding)
        if not memory.holds("packed", key):
            with torch.inference_mode(False):
                reorder = torch.ops.mkldnn._reorder_convolution_weight
                memory.put("packed", reorder(weight.detach(), *sizes, list(x.shape)), key)
        return torch.ops.mkldnn._convolution_pointwise(x, memory.get("packed"), bias, *sizes, "none", [], "")
