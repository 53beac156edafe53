"""Layers of oscillators: Miyato et al., *Artificial Kuramoto Oscillatory Neurons*, ICLR 2025.

Each position of a map has C oscillators, unit vectors with n components. A stimulus c, made from the image, and their
neighbours pull them:

    y = J x + c;    x <- unit(x + gamma (Omega x + tangent_x(y)))        T times

J is a convolution or attention. The result is read as lengths |W x| + b, the stimulus of the next layer.

Shapes: x and c (B, C, n, H, W).
"""

from contextlib import nullcontext
from numbers import Integral
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from capsnet.functional import full_precision, without_autocast
from capsnet.layers._shapes import check_counts, check_shape
from capsnet.oscillators import magnitude, random_phases, rotate, tangent, unit
from capsnet.oscillators.checks import check_components, check_positive


class Oscillation(NamedTuple):
    """The oscillators after the last step, and with ``trace=True`` after each: (T, B, C, n, H, W), with energies."""

    x: Tensor
    steps: Tensor | None = None
    energy: Tensor | None = None


def _fixed_phases(C: int, n: int, H: int, W: int, seed: int) -> Tensor:
    return random_phases(C, H, W, n, seed=seed, dtype=torch.float64).movedim(-1, 1)  # (C, n, H, W)


# Compilers and exporters cannot trace a generator. This is what ``torch.compiler.assume_constant_result`` does, without
# importing the compiler, which takes a second.
_fixed_phases._dynamo_marked_constant = True  # type: ignore[attr-defined]


class KuramotoLayer(nn.Module):
    """T steps of coupled oscillators under a stimulus.

    Args:
        channels: C, oscillators per position.
        n: components of each, at least 2.
        coupling: ``"conv"`` with nearby positions, or ``"attention"`` with all.
        kernel_size: of the convolution, odd.
        heads: of the attention; they divide C n.
        symmetric: J_ij = J_ji, so that without frequencies and with small steps the energy never rises (see
            ``oscillators.energy``). For the convolution only: attention depends on x and is not symmetric.
        frequencies: learn natural frequencies, n (n - 1) / 2 for each channel.
        steps: T.
        gamma: the size of a step.

    In evaluation oscillators start at phases of a fixed ``seed``, so that answers repeat. In training they start at
    random, anew in each step, by PyTorch's generator: the trainer seeds it for each step, as for dropout.
    """

    def __init__(
        self,
        channels: int,
        n: int = 4,
        coupling: Literal["conv", "attention"] = "conv",
        kernel_size: int = 3,
        heads: int = 4,
        symmetric: bool = False,
        frequencies: bool = False,
        steps: int = 8,
        gamma: float = 1.0,
        seed: int = 0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        check_components(n)
        check_counts(channels=channels, steps=steps, heads=heads)
        check_positive("gamma", gamma)
        if coupling not in ("conv", "attention"):
            raise ValueError(f'coupling must be "conv" or "attention", got {coupling!r}')
        if symmetric and coupling == "attention":
            raise ValueError('attention depends on the phases and cannot be symmetric: set coupling="conv"')
        if not isinstance(kernel_size, Integral) or kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and at least 1, got {kernel_size!r}")
        self.channels, self.n, self.symmetric = channels, n, symmetric
        self.steps, self.gamma, self.seed = steps, gamma, seed
        self.norm = nn.GroupNorm(channels, channels * n, **options)  # of the stimulus, one group per oscillator
        self.conv = self.attention = None
        if coupling == "conv":
            kind = SymmetricConv2d if symmetric else nn.Conv2d
            self.conv = kind(
                channels * n, channels * n, kernel_size, padding=kernel_size // 2, bias=not symmetric, **options
            )
        else:
            self.attention = SelfAttention2d(channels * n, heads, **options)
        rates = channels, n * (n - 1) // 2
        self.rates = nn.Parameter(0.1 * torch.randn(rates, **options)) if frequencies else None

    def couple(self, x: Tensor) -> Tensor:
        """J x."""
        coupling = self.conv if self.attention is None else self.attention
        assert coupling is not None
        return full_precision(coupling(x.flatten(1, 2))).unflatten(1, (self.channels, self.n))

    def start(self, like: Tensor) -> Tensor:
        """The first phases: at random in training, else the same for all images and calls."""
        if self.training:
            return unit(torch.randn_like(like), dim=2)
        B, C, n, H, W = like.shape
        phases = _fixed_phases(C, n, H, W, self.seed).to(like.device, like.dtype)
        return phases.expand(B, -1, -1, -1, -1)

    def forward(self, stimulus: Tensor, x: Tensor | None = None, trace: bool = False) -> Oscillation:
        """``stimulus`` (B, C, n, H, W); ``x`` are the phases to start from, by default ``start``."""
        check_shape(stimulus, "B", self.channels, self.n, "H", "W")
        if x is not None:
            check_shape(x, *stimulus.shape)
        c = full_precision(self.norm(stimulus.flatten(1, 2))).unflatten(1, (self.channels, self.n))
        x = self.start(c) if x is None else unit(x, dim=2)
        steps, energies = [], []
        for _ in range(self.steps):
            coupled = self.couple(x)
            if trace:
                energies.append(-(x * (0.5 * coupled + c)).flatten(1).sum(dim=1))
            velocity = tangent(x, coupled + c, dim=2)
            if self.rates is not None:
                turned = rotate(x.movedim(2, -1), self.rates[:, None, None, :])
                velocity = velocity + turned.movedim(-1, 2)
            x = unit(x + self.gamma * velocity, dim=2)
            if trace:
                steps.append(x)
        if not trace:
            return Oscillation(x)
        return Oscillation(x, torch.stack(steps), torch.stack(energies))

    def extra_repr(self) -> str:
        return f"{self.channels} x {self.n}D, steps={self.steps}, gamma={self.gamma}, symmetric={self.symmetric}"


class SymmetricConv2d(nn.Conv2d):
    """A convolution whose matrix is symmetric: its kernel is averaged with the transposed, mirrored one."""

    def forward(self, input: Tensor) -> Tensor:
        weight = 0.5 * (self.weight + self.weight.transpose(0, 1).flip(2, 3))
        return self._conv_forward(input, weight, self.bias)


class Readout(nn.Module):
    """|W x| + b: what oscillators say whatever their common phase. (B, C, n, H, W) -> (B, outputs, H, W)."""

    def __init__(
        self,
        channels: int,
        outputs: int,
        n: int = 4,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_components(n)
        check_counts(channels=channels, outputs=outputs)
        self.n = n
        self.conv = nn.Conv2d(channels * n, outputs * n, 1, bias=False, device=device, dtype=dtype)
        self.bias = nn.Parameter(torch.zeros(outputs, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, "B", self.conv.in_channels // self.n, self.n, "H", "W")
        z = full_precision(self.conv(x.flatten(1, 2))).unflatten(1, (-1, self.n))
        return magnitude(z, dim=2) + self.bias[:, None, None]

    def extra_repr(self) -> str:
        return f"{self.conv.in_channels // self.n} x {self.n}D -> {len(self.bias)}"


class SelfAttention2d(nn.Module):
    """Multi-head attention between all positions of a map: (B, C, H, W) -> (B, C, H, W)."""

    def __init__(
        self, channels: int, heads: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        if heads < 1 or channels % heads:
            raise ValueError(f"{heads} heads cannot divide {channels} channels: set heads to a divisor of {channels}")
        self.heads = heads
        self.project = nn.Conv2d(channels, 3 * channels, 1, device=device, dtype=dtype)
        self.join = nn.Conv2d(channels, channels, 1, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        H, W = x.shape[2:]
        projected = self.project(x).flatten(2).unflatten(1, (3, self.heads, -1)).transpose(-2, -1)
        projected = projected.contiguous()  # PyTorch's fast kernel, which does not store the scores, asks for it
        exact = x.device.type == "cpu"  # where that kernel is up to eight times slower in bfloat16 than in float32
        query, key, value = (full_precision(projected) if exact else projected).unbind(1)
        with without_autocast(x) if exact else nullcontext():
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)  # (B, heads, H W, C / heads)
        return self.join(mixed.transpose(-2, -1).flatten(1, 2).unflatten(2, (H, W)))
