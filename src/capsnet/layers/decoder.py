"""Decoders: from capsules back to pixels. They regularise the poses and make them visible."""

import functools
import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from capsnet.layers._pyramid import pyramid, strides


class DenseDecoder(nn.Module):
    """Fully connected 512, 1024, pixels; ReLU, ReLU, sigmoid [Figure 2].

    Its input is all parents' poses with all but the chosen ones zeroed (``functional.mask_capsules``).

    Shapes: masked poses (B, J, D) -> pictures (B, C, H, W) in [0, 1].
    """

    def __init__(
        self,
        parents: int,
        dim: int,
        channels: int,
        height: int,
        width: int,
        widths: Sequence[int] = (512, 1024),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.picture = (channels, height, width)
        sizes = [parents * dim, *widths]
        linear = functools.partial(nn.Linear, device=device, dtype=dtype)
        hidden = [m for i, o in pairwise(sizes) for m in (linear(i, o), nn.ReLU())]
        self.layers = nn.Sequential(*hidden, linear(sizes[-1], math.prod(self.picture)), nn.Sigmoid())

    def forward(self, poses: Tensor) -> Tensor:
        return self.layers(poses.flatten(1)).unflatten(1, self.picture)

    def extra_repr(self) -> str:
        return f"picture={self.picture}"


class ConvDecoder(nn.Module):
    """A small map from the poses, then convolutions and upsampling by two, up to the picture.

    The dense decoder has a weight for each pixel and hidden unit: 154 million at 224 x 224 x 3. Here the number of
    weights grows with the *logarithm* of the size. Upsampling repeats the nearest neighbour: a transposed convolution,
    whose strides overlap, leaves chequerboards (Odena, Dumoulin, Olah, Distill 2016). The last doubling is a sub-pixel
    convolution (Shi et al. 2016, arXiv 1609.05158), because convolving a full-sized map to three colours took most of
    the time at 224 x 224.

    ``maps`` is the number of channels of the smallest map; it is halved with each doubling of the size, down to an
    eighth. ``hidden`` units between poses and map limit the number of weights.

    Shapes: masked poses (B, J, D) -> pictures (B, C, H, W) in [0, 1].
    """

    def __init__(
        self,
        parents: int,
        dim: int,
        channels: int,
        height: int,
        width: int,
        hidden: int = 128,
        maps: int = 64,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        linear, conv = (functools.partial(kind, device=device, dtype=dtype) for kind in (nn.Linear, nn.Conv2d))
        sizes = pyramid(height, width, largest=8)[::-1]  # the smallest first
        self.picture = (channels, height, width)
        self.start = (maps, *sizes[0])
        self.dense = nn.Sequential(
            linear(parents * dim, hidden), nn.ReLU(), linear(hidden, math.prod(self.start)), nn.ReLU()
        )
        before = sizes[-2] if len(sizes) > 1 else sizes[-1]  # the last map, which the picture is made of
        self.pixels = strides(sizes[-1], before)  # of the picture per position of that map, along y and x
        counts = [max(maps >> step, maps // 8, 1) for step in range(max(len(sizes) - 1, 1))]
        blocks: list[nn.Module] = []
        for size, (inputs, outputs) in zip(sizes[1:-1], pairwise(counts), strict=True):
            blocks += [conv(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Upsample(size)]
        self.layers = nn.Sequential(*blocks, conv(counts[-1], channels * math.prod(self.pixels), 3, padding=1))

    def forward(self, poses: Tensor) -> Tensor:
        C, H, W = self.picture
        small = self.dense(poses.flatten(1)).unflatten(1, self.start)  # (B, maps, h, w)
        small = small.contiguous(memory_format=torch.channels_last)  # faster
        parts = self.layers(small).unflatten(1, (C, *self.pixels))  # (B, C, p, q, h, w)
        drawn = parts.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)  # (B, C, h * p, w * q)
        return torch.sigmoid(drawn[:, :, :H, :W])

    def extra_repr(self) -> str:
        return f"picture={self.picture}, start={self.start}"
