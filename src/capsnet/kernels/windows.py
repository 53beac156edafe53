"""Windows of a grid of capsules, with a backward pass that adds each tap of the window once.

The derivative of ``unfold`` adds number by number. Here each of the kernel * kernel taps is one strided addition of
whole rows of capsules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from capsnet.kernels.cost import current_path, ordinary


def windows(grid: Tensor, kernel: int, stride: int) -> Tensor:
    """(B, H, W, T, D) -> (B, H', W', K, K, T, D): the children of each position's window."""
    if current_path() != "plain" and grid.requires_grad and torch.is_grad_enabled() and ordinary(grid):
        return _Windows.apply(grid, kernel, stride)
    return _view(grid, kernel, stride)


def _view(grid: Tensor, kernel: int, stride: int) -> Tensor:
    return grid.unfold(1, kernel, stride).unfold(2, kernel, stride).permute(0, 1, 2, 5, 6, 3, 4)


class _Windows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grid: Tensor, kernel: int, stride: int) -> Tensor:
        ctx.shape, ctx.kernel, ctx.stride = grid.shape, kernel, stride
        return _view(grid, kernel, stride).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (d,), s = gradients, ctx.stride
        result = d.new_zeros(ctx.shape)
        down, right = s * (d.shape[1] - 1) + 1, s * (d.shape[2] - 1) + 1
        for y in range(ctx.kernel):
            for x in range(ctx.kernel):
                result[:, y : y + down : s, x : x + right : s] += d[:, :, :, y, x]
        return result, None, None
