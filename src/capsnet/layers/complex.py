"""Complex-valued layers on pairs of real numbers (Trabelsi et al., *Deep Complex Networks*, ICLR 2018).

A tensor of C complex channels is a real one of 2 C channels, real parts first, then imaginary parts. Pairs of reals
work with every device, precision and exporter, and their gradients are finite at zero.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from capsnet import oscillators
from capsnet.functional import full_precision
from capsnet.layers._shapes import check_counts, check_shape
from capsnet.oscillators.checks import check_positive


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part: (B, 2 C, ...) -> 2 x (B, C, ...)."""
    if x.shape[1] % 2:
        raise ValueError(f"complex channels are pairs: expected an even number of channels, got {x.shape[1]}")
    real, imaginary = x.chunk(2, dim=1)
    return real, imaginary


def magnitude(x: Tensor) -> Tensor:
    """|z| of each complex channel, with a finite gradient at 0: (B, 2 C, ...) -> (B, C, ...)."""
    return oscillators.magnitude(torch.stack(split(full_precision(x))), dim=0)


class _ComplexWeights(nn.Module):
    """Weights A + i B with |w| drawn from Rayleigh(1 / sqrt(fan_in)) and angles at random, as in the paper.

    That gives E|w|^2 = 2 / fan_in, He's criterion. The authors' code has Rayleigh(1 / fan_in) instead.
    """

    def __init__(self, shape: tuple[int, ...], fan_in: int, bias: bool, **options: Any) -> None:
        super().__init__()
        self.real = nn.Parameter(torch.empty(shape, **options))
        self.imaginary = nn.Parameter(torch.empty(shape, **options))
        self.bias = nn.Parameter(torch.zeros(2 * shape[0], **options)) if bias else None
        with torch.no_grad():
            uniform = torch.rand(shape)
            length = (-2 * torch.log1p(-uniform)).sqrt() / math.sqrt(fan_in)
            angle = 2 * math.pi * torch.rand(shape)
            self.real.copy_(length * angle.cos())
            self.imaginary.copy_(length * angle.sin())

    def block(self) -> Tensor:
        """The real matrix [[A, -B], [B, A]] that multiplies pairs as A + i B multiplies complex numbers."""
        above = torch.cat([self.real, -self.imaginary], dim=1)
        return torch.cat([above, torch.cat([self.imaginary, self.real], dim=1)])


class ComplexConv2d(_ComplexWeights):
    """A convolution with complex weights: one real convolution with [[A, -B], [B, A]].

    Shapes: (B, 2 inputs, H, W) -> (B, 2 outputs, H', W').
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_counts(inputs=inputs, outputs=outputs, kernel_size=kernel_size)
        shape = (outputs, inputs, kernel_size, kernel_size)
        super().__init__(shape, inputs * kernel_size**2, bias, device=device, dtype=dtype)
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, "B", 2 * self.real.shape[1], "H", "W")
        return nn.functional.conv2d(x, self.block(), self.bias, self.stride, self.padding)

    def extra_repr(self) -> str:
        outputs, inputs, kernel, _ = self.real.shape
        return f"{inputs} -> {outputs}, kernel_size={kernel}, stride={self.stride}, padding={self.padding}"


class ComplexLinear(_ComplexWeights):
    """A linear layer with complex weights. Shapes: (B, 2 inputs) -> (B, 2 outputs)."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_counts(inputs=inputs, outputs=outputs)
        super().__init__((outputs, inputs), inputs, bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, "B", 2 * self.real.shape[1])
        return nn.functional.linear(x, self.block(), self.bias)

    def extra_repr(self) -> str:
        return f"{self.real.shape[1]} -> {self.real.shape[0]}"


class ComplexBatchNorm2d(nn.Module):
    """Whitens each complex channel: mean 0, and the 2 x 2 covariance of real and imaginary part becomes I / 2.

    With s = sqrt(det V) and t = sqrt(tr V + 2 s), V^(-1/2) = [[V_ii + s, -V_ri], [-V_ri, V_rr + s]] / (s t). Then a
    learned symmetric 2 x 2 matrix, at first I / sqrt(2) so that E|z|^2 = 1, and a learned shift.

    Shapes: (B, 2 C, H, W) -> (B, 2 C, H, W).
    """

    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_counts(channels=channels)
        check_positive("eps", eps)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.eps, self.momentum = eps, momentum
        self.gain = nn.Parameter(torch.zeros(3, channels, **options))  # rr, ri, ii
        self.gain.data[::2].fill_(math.sqrt(0.5))
        self.shift = nn.Parameter(torch.zeros(2, channels, **options))
        self.mean: Tensor
        self.covariance: Tensor
        self.register_buffer("mean", torch.zeros(2, channels, **options))
        self.register_buffer("covariance", torch.zeros(3, channels, **options))
        self.covariance[::2].fill_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, "B", 2 * self.shift.shape[1], "H", "W")
        pair = torch.stack(split(full_precision(x)))  # (2, B, C, H, W)
        if self.training:
            mean = pair.mean(dim=(1, 3, 4))  # (2, C)
            real, imaginary = pair - mean[:, None, :, None, None]
            products = torch.stack([real * real, real * imaginary, imaginary * imaginary])
            covariance = products.mean(dim=(1, 3, 4))  # (3, C)
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.covariance.lerp_(covariance, self.momentum)
        else:
            mean, covariance = self.mean, self.covariance
            real, imaginary = pair - mean[:, None, :, None, None]
        rr, ri, ii = covariance[0] + self.eps, covariance[1], covariance[2] + self.eps
        s = (rr * ii - ri * ri).clamp_min(self.eps**2).sqrt()
        scale = 1 / (s * (rr + ii + 2 * s).sqrt())
        whiten = torch.stack([(ii + s) * scale, -ri * scale, (rr + s) * scale])  # (3, C)
        # both symmetric matrices at once: gain @ whiten
        g, w = self.gain, whiten
        matrix = [
            g[0] * w[0] + g[1] * w[1],
            g[0] * w[1] + g[1] * w[2],
            g[1] * w[0] + g[2] * w[1],
            g[1] * w[1] + g[2] * w[2],
        ]
        a, b, c, d = (entry[:, None, None] for entry in matrix)
        shift = self.shift[:, :, None, None]
        return torch.cat([a * real + b * imaginary + shift[0], c * real + d * imaginary + shift[1]], dim=1)

    def extra_repr(self) -> str:
        return f"{self.shift.shape[1]}, eps={self.eps}, momentum={self.momentum}"


class ModReLU(nn.Module):
    """ReLU(|z| + b) z / |z|, with a learned b per channel: keeps the angle (Arjovsky et al. 2016).

    Shapes: (B, 2 C, ...) -> the same.
    """

    def __init__(
        self, channels: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        check_counts(channels=channels)
        self.bias = nn.Parameter(torch.zeros(channels, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, "B", 2 * len(self.bias), "...")
        length = magnitude(x)
        bias = self.bias.reshape(-1, *[1] * (x.ndim - 2))
        factor = torch.relu(length + bias) / torch.where(length > 0, length, 1)
        return torch.cat([part * factor for part in split(x)], dim=1)

    def extra_repr(self) -> str:
        return f"{len(self.bias)}"


class ZReLU(nn.Module):
    """z where both parts are positive, else 0 (Guberman 2016). Shapes: (B, 2 C, ...) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        real, imaginary = split(x)
        inside = ((real > 0) & (imaginary > 0)).to(x.dtype)
        return torch.cat([real * inside, imaginary * inside], dim=1)


class CReLU(nn.Module):
    """ReLU of real and imaginary part apart. Shapes: (B, 2 C, ...) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)
