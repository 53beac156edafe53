"""Convolution of one or two images: the native one, with the weights kept in the order that it computes in.

For a single image the native convolution spends more than a third of its time on bringing 21 MB of weights into its own
order, at every call. oneDNN can be given weights in that order, so at inference they are brought there once. The slow
twin is ``torch.nn.functional.conv2d``, of which this is the second half.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels._memory import Memory, fingerprint

_QUICK = 1 << 19  # weights up to which the call does not notice that all of them are read to see whether they changed


def available() -> bool:
    """Whether this PyTorch has oneDNN and its two operators (those that compiled models use)."""
    ops = ("_reorder_convolution_weight", "_convolution_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, op) for op in ops)


def packed_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    memory: Memory,
) -> Tensor:
    """``torch.nn.functional.conv2d`` without gradients; the packed weights stay in ``memory`` while the weight does."""
    sizes = list(padding), list(stride), [1, 1], 1
    key = fingerprint(weight, sampled=weight.numel() > _QUICK)
    if key is None:
        return F.conv2d(x, weight, bias, stride, padding)
    with torch.no_grad(), memory.exclusive() as held:
        wanted = (key, tuple(x.shape), stride, padding)
        if not held.holds("packed", wanted):
            with torch.inference_mode(False):
                order = torch.ops.mkldnn._reorder_convolution_weight
                held.put("packed", order(weight.detach(), *sizes, list(x.shape)), wanted)
        return torch.ops.mkldnn._convolution_pointwise(x, held.get("packed"), bias, *sizes, "none", [], "")
