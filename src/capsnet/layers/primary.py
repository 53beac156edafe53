"""Primary capsules: the lowest level, a convolution whose channels are grouped into vectors [Section 4]."""

from torch import Tensor, nn

from capsnet.functional import squash


class PrimaryCaps(nn.Module):
    """A convolution to ``types`` x ``dim`` channels, read as a grid of squashed ``dim``-dimensional capsules.

    Channels move last *before* they are grouped, so that the numbers of one capsule come from one position and
    different channels: channel = type * dim + d. Grouping without the move mixes positions, the commonest bug in
    re-implementations.

    Shapes: (B, C, H, W) -> (B, H' * W' * types, dim), children ordered (y, x, type).
    """

    def __init__(self, in_channels: int, types: int = 32, dim: int = 8, kernel_size: int = 9, stride: int = 2) -> None:
        super().__init__()
        self.types = types
        self.dim = dim
        self.conv = nn.Conv2d(in_channels, types * dim, kernel_size, stride)

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """(H', W', types) of the capsules that an H x W map gives."""
        (kernel, _), (stride, _) = self.conv.kernel_size, self.conv.stride
        return (height - kernel) // stride + 1, (width - kernel) // stride + 1, self.types

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).movedim(1, -1)  # (B, H', W', types * dim)
        B, H, W, _ = x.shape
        return squash(x.reshape(B, H * W * self.types, self.dim))
