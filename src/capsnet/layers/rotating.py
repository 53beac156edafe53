"""Rotating features: Löwe et al. 2023 (arXiv 2306.00600). Activations are vectors; their length says *what*, their
direction *to which object*.

With f a linear layer or convolution without bias, applied to each of the n components alike:

    psi = f(z),   chi = f(|z|)                       vectors that point in one direction add up, opposite ones cancel
    m   = ReLU(norm(|psi| / 2 + chi / 2))            inputs in phase with a feature count more than those out of phase
    z'  = m (psi + b) / |psi + b|

An image enters as the first component. Shapes: (B, n, C, H, W), linear: (B, n, C).
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from capsnet.functional import full_precision
from capsnet.layers._shapes import check_counts, check_shape
from capsnet.oscillators import magnitude, unit
from capsnet.oscillators.checks import check_components


def add_rotation(images: Tensor, n: int) -> Tensor:
    """Images as the first of n components, the others zero: (B, C, H, W) -> (B, n, C, H, W)."""
    check_components(n)
    zeros = images.new_zeros(images.shape[0], n - 1, *images.shape[1:])  # len() would fix the size of an export
    return torch.cat([images.unsqueeze(1), zeros], dim=1)


def _check_sizes(n: int, inputs: int, outputs: int, kernel_size: int = 1) -> None:
    check_components(n)
    check_counts(inputs=inputs, outputs=outputs, kernel_size=kernel_size)


class _Rotating(nn.Module):
    """``layer`` with ``inputs`` channels applied to rotating features, ``norm`` to their lengths."""

    def __init__(self, layer: nn.Module, norm: nn.Module, bias: Tensor, inputs: int, fan_in: int) -> None:
        super().__init__()
        self.layer, self.norm, self.inputs = layer, norm, inputs
        self.bias = nn.Parameter(bias)
        nn.init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def forward(self, z: Tensor) -> Tensor:
        check_shape(z, "B", len(self.bias), self.inputs, *"HW"[: self.bias.ndim - 2])
        B, n = z.shape[:2]
        # |z| as one more "component", so that one call of the layer computes psi and chi
        both = torch.cat([z, magnitude(z, dim=1).unsqueeze(1)], dim=1)
        done = full_precision(self.layer(both.flatten(0, 1))).unflatten(0, (B, n + 1))
        psi, chi = done[:, :n], done[:, n]
        strength = torch.relu(self.norm(0.5 * magnitude(psi, dim=1) + 0.5 * chi))
        return unit(psi + self.bias, dim=1) * strength.unsqueeze(1)

    def extra_repr(self) -> str:
        return f"n={len(self.bias)}"


class RotatingConv2d(_Rotating):
    """A convolution of rotating features, with BatchNorm of their lengths. (B, n, C, H, W) -> (B, n, C', H', W')."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        n: int = 8,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sizes(n, inputs, outputs, kernel_size)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        conv = nn.Conv2d(inputs, outputs, kernel_size, stride, padding, bias=False, **options)
        bias = torch.empty(n, outputs, 1, 1, **options)
        super().__init__(conv, nn.BatchNorm2d(outputs, **options), bias, inputs, inputs * kernel_size**2)


class RotatingConvTranspose2d(_Rotating):
    """The transposed convolution of rotating features. (B, n, C, H, W) -> (B, n, C', H', W')."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int | tuple[int, int] = 0,
        n: int = 8,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sizes(n, inputs, outputs, kernel_size)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        conv = nn.ConvTranspose2d(inputs, outputs, kernel_size, stride, padding, output_padding, bias=False, **options)
        bias = torch.empty(n, outputs, 1, 1, **options)
        super().__init__(conv, nn.BatchNorm2d(outputs, **options), bias, inputs, outputs * kernel_size**2)


class RotatingLinear(_Rotating):
    """A linear layer of rotating features, with LayerNorm of their lengths. (B, n, C) -> (B, n, C')."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        n: int = 8,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_sizes(n, inputs, outputs)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        linear = nn.Linear(inputs, outputs, bias=False, **options)
        super().__init__(linear, nn.LayerNorm(outputs, **options), torch.empty(n, outputs, **options), inputs, inputs)
