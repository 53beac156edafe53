"""A residual convolutional stem: from images of any size to a small map for capsules.

The cost of capsules grows with the map, so photographs are first reduced to a few positions by residual blocks (He et
al. 2016, arXiv 1512.03385), as in other capsule networks for photographs (Tsai et al. 2020, arXiv 2002.04764).

The stem gets each image twice: as it is, since colour may distinguish the classes, and standardised channel by channel
by its mean and contrast, since few images are not enough to learn that light and background do not.
"""

import functools
from itertools import pairwise

import torch
from torch import Tensor, nn

from capsnet.layers._pyramid import pyramid, strides

LARGEST = 10  # positions per side of the final map; longer sides are halved, to 6 to 10
FAINT = 1e-3  # added to the variance of a channel, so that the noise of a blank image is not amplified
ENTRY = 80  # pixels; the first convolution has stride 2 for larger images


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut: relu(x + f(x)), each convolution followed by BatchNorm.

    The second BatchNorm starts at zero, so a new block passes its input on and a deep stem trains like a shallow one.
    The shortcut averages before its 1x1 convolution, which with a stride would ignore three pixels of four (He et al.
    2019, arXiv 1812.01187), and whose strided gradient in oneDNN writes past its workspace for few channels, channels
    last (oneDNN issue 6035).

    Shapes: (B, C, H, W) -> (B, outputs, H / stride, W / stride), rounded up.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: tuple[int, int],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        conv = functools.partial(nn.Conv2d, bias=False, device=device, dtype=dtype)
        norm = functools.partial(nn.BatchNorm2d, outputs, device=device, dtype=dtype)
        self.conv1 = conv(inputs, outputs, 3, stride, padding=1)
        self.norm1 = norm()
        self.conv2 = conv(outputs, outputs, 3, padding=1)
        self.norm2 = norm()
        nn.init.zeros_(self.norm2.weight)
        self.shortcut = nn.Sequential(nn.AvgPool2d(stride, ceil_mode=True), conv(inputs, outputs, 1), norm())

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


class ResidualStem(nn.Module):
    """A convolution of both views, then one residual block per halving until the longer side has at most 10 positions.

    The last map has ``channels`` channels; each earlier one half as many, down to an eighth. ``windows`` are those of
    its convolutions, (size, stride, padding) each, from the image up; None where the strides of the two axes differ.

    Shapes: (B, C, H, W) -> (B, channels, *grid), ``grid`` = (h, w).
    """

    def __init__(
        self,
        in_channels: int,
        height: int,
        width: int,
        channels: int = 128,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        sizes = pyramid(height, width, LARGEST)
        stages = sizes[1:] if max(height, width) > ENTRY else sizes
        counts = [max(channels >> step, channels // 8, 1) for step in range(len(stages))][::-1]
        self.grid = stages[-1]
        first, *later = [strides(*shrink) for shrink in pairwise([sizes[0], *stages])]
        self.windows = _windows(first, later)
        self.entry = nn.Sequential(
            nn.Conv2d(2 * in_channels, counts[0], 3, first, padding=1, bias=False, **options),
            nn.BatchNorm2d(counts[0], **options),
            nn.ReLU(),
        )
        steps = zip(pairwise(counts), later, strict=True)
        self.blocks = nn.Sequential(*(Block(*outer, stride, **options) for outer, stride in steps))

    def forward(self, images: Tensor) -> Tensor:
        views = both_views(images)
        return self.blocks(self.entry(views.contiguous(memory_format=torch.channels_last)))  # faster on a CPU

    def extra_repr(self) -> str:
        return f"grid={self.grid}"


def _windows(first: tuple[int, int], later: list[tuple[int, int]]) -> list[tuple[int, int, int]] | None:
    """See ``ResidualStem``. The shortcut of a block averages pixels that its convolutions see, too."""
    if any(rows != columns for rows, columns in (first, *later)):
        return None
    return [(3, first[0], 1), *(window for stride, _ in later for window in ((3, stride, 1), (3, 1, 1)))]


def both_views(images: Tensor) -> Tensor:
    """Images in [0, 1] centred, then standardised: (B, C, H, W) -> (B, 2 * C, H, W)."""
    variance, mean = torch.var_mean(images, dim=(2, 3), correction=0, keepdim=True)
    return torch.cat([images - 0.5, (images - mean) * (variance + FAINT).rsqrt()], dim=1)
