"""Decoupled convolution: length and angle apart (Liu et al., *Decoupled Networks*, CVPR 2018, arXiv 1804.08071).

A convolution is w . x = |w| |x| cos(theta) at each position, where x is the patch under the kernel. Here it becomes
h(|x|) g(theta): how strong the patch is and how well it fits the filter, each by its own function, with filters of
length 1.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from capsnet._names import check_name
from capsnet.functional import full_precision, without_autocast
from capsnet.layers._shapes import check_counts, check_shape

Length = Literal["sphere", "ball", "tanh", "linear", "segmented", "logarithmic"]
Angle = Literal["cosine", "linear", "squared"]

LENGTHS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    # of the patch's length and rho, the length at which a bounded function saturates
    "sphere": lambda x, rho: torch.ones_like(x * rho),
    "ball": lambda x, rho: torch.minimum(x, rho) / rho,
    "tanh": lambda x, rho: torch.tanh(x / rho),
    "linear": lambda x, rho: x * torch.ones_like(rho),
    "segmented": lambda x, rho: torch.minimum(x, rho) + 0.5 * torch.relu(x - rho),
    "logarithmic": lambda x, rho: torch.log1p(x) * torch.ones_like(rho),
}
ANGLES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "cosine": lambda cosine: cosine,
    "linear": lambda cosine: 1 - 2 / math.pi * _arccos(cosine),
    "squared": lambda cosine: cosine * cosine.abs(),
}


def _arccos(cosine: Tensor) -> Tensor:
    """The angle, with a gradient that stays finite at 0 and pi."""
    edge = 1 - 1e-6
    return torch.acos(cosine.clamp(-edge, edge))


class DecoupledConv2d(nn.Module):
    """h(|x|) g(theta) instead of w . x, for a patch x and filters w.

    ``h`` of the length: ``sphere`` 1, ``ball`` min(|x|, rho) / rho, ``tanh`` tanh(|x| / rho), ``linear`` |x|,
    ``segmented`` |x| up to rho and half as steep beyond, ``logarithmic`` log(1 + |x|). ``g`` of the angle: ``cosine``,
    ``linear`` 1 - 2 theta / pi, ``squared`` sign(cos) cos^2. rho = (r^2 + 1e-4) times the running mean of |x|, with one
    learned r per filter, as in the authors' code. ``linear`` and ``cosine`` together are a convolution with filters of
    length 1.

    Shapes: (B, inputs, H, W) -> (B, outputs, H', W').
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        h: Length = "tanh",
        g: Angle = "cosine",
        momentum: float = 0.1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_counts(inputs=inputs, outputs=outputs, kernel_size=kernel_size, stride=stride)
        check_name("function h of the length", h, get_args(Length))
        check_name("function g of the angle", g, get_args(Angle))
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be from 0 to 1, got {momentum!r}")
        self.stride, self.padding, self.h, self.g, self.momentum = stride, padding, h, g, momentum
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel_size, kernel_size, device=device, dtype=dtype))
        self.radius = nn.Parameter(torch.ones(outputs, device=device, dtype=dtype))
        self.mean_length: Tensor
        self.register_buffer("mean_length", torch.ones((), device=device, dtype=dtype))
        nn.init.kaiming_normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        check_shape(x, "B", self.weight.shape[1], "H", "W")
        filters = self.weight / (self.weight.square().sum(dim=(1, 2, 3), keepdim=True) + 1e-12).sqrt()
        fit = full_precision(nn.functional.conv2d(x, filters, None, self.stride, self.padding))  # |x| cos(theta)
        ones = torch.ones_like(self.weight[:1])
        squares = full_precision(x).square()
        with without_autocast(x):
            square = nn.functional.conv2d(squares, ones, None, self.stride, self.padding)
        length = (square.clamp_min(0) + 1e-8).sqrt()  # (B, 1, H', W')
        if self.training:
            with torch.no_grad():
                self.mean_length.lerp_(length.mean().to(self.mean_length.dtype), self.momentum)
            mean = length.mean()
        else:
            mean = self.mean_length
        rho = ((self.radius.square() + 1e-4) * mean)[:, None, None]
        return LENGTHS[self.h](length, rho) * ANGLES[self.g](fit / length)

    def extra_repr(self) -> str:
        outputs, inputs, kernel, _ = self.weight.shape
        size = f"{inputs} -> {outputs}, kernel_size={kernel}, stride={self.stride}, padding={self.padding}"
        return f"{size}, h={self.h}, g={self.g}"
