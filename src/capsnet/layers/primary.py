"""Primary capsules: the lowest level, a convolution whose channels are grouped into vectors [Section 4]."""

import torch
from torch import Tensor, nn

from capsnet import kernels
from capsnet.functional import get_squash
from capsnet.layers.capsules import Capsules, squash_capsules


class PrimaryCaps(nn.Module):
    """A convolution to ``types`` x ``dim`` channels, read as a grid of squashed ``dim``-dimensional capsules.

    Channels move last *before* they are grouped, so that the numbers of one capsule come from one position and
    different channels: channel = type * dim + d. Grouping without the move mixes positions, a common bug.

    The convolution uses ``capsnet.kernels`` where that is faster. ``memory`` is its scratch, not in the state_dict.

    Args:
        in_channels, types, dim, kernel_size, stride: of the convolution and the capsules.
        scale: factor of the convolution, not of its bias. The authors' code treats this layer as one iteration of
            routing over ``types`` zero logits, which divides the convolution by ``types``; the paper's text does not.
        squash: one of ``functional.get_squash``.
        flatten: False keeps the grid, as ``ConvCaps`` takes it.

    Shapes: (B, C, H, W) -> ``Capsules`` with pose (B, H' * W' * types, dim), children ordered (y, x, type), or
    (B, H', W', types, dim) with ``flatten=False``. ``act`` has the same shape without ``dim`` if the squash separates
    presence from pose (``unit``), and is None if the presence is the length.
    """

    def __init__(
        self,
        in_channels: int,
        types: int = 32,
        dim: int = 8,
        kernel_size: int = 9,
        stride: int = 2,
        scale: float = 1.0,
        squash: str = "paper",
        flatten: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.squash = get_squash(squash)
        self.types, self.dim, self.scale, self.flatten = types, dim, scale, flatten
        self.conv = nn.Conv2d(in_channels, types * dim, kernel_size, stride, device=device, dtype=dtype)
        self.memory = kernels.Memory()

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """(H', W', types) of the capsules that an H x W map gives."""
        (kernel, _), (stride, _) = self.conv.kernel_size, self.conv.stride
        return (height - kernel) // stride + 1, (width - kernel) // stride + 1, self.types

    def forward(self, x: Tensor) -> Capsules:
        if not only_convolves(self.conv):
            return self.group(self.conv(x))
        stride = (self.conv.stride[0], self.conv.stride[1])
        return self.group(kernels.conv2d(x, self.conv.weight, self.conv.bias, stride, memory=self.memory))

    def group(self, maps: Tensor) -> Capsules:
        """Maps (B, types * dim, H', W') of the convolution, with its bias, as squashed capsules."""
        channels = maps.movedim(1, -1)  # (B, H', W', types * dim)
        if self.scale != 1:
            channels = self.scale * channels
            if self.conv.bias is not None:
                channels = channels + (1 - self.scale) * self.conv.bias
        B, H, W, _ = channels.shape
        places = (H * W * self.types,) if self.flatten else (H, W, self.types)
        return squash_capsules(channels.reshape(B, *places, self.dim), self.squash)

    def extra_repr(self) -> str:
        return f"types={self.types}, dim={self.dim}, scale={self.scale:g}, squash={self.squash.name!r}"


def only_convolves(conv: nn.Conv2d) -> bool:
    """Whether calling ``conv`` does nothing but convolve: no hooks, no parametrisation, no padding."""
    ordinary = type(conv) is nn.Conv2d and conv.groups == 1 and conv.dilation == (1, 1) and conv.padding == (0, 0)
    return ordinary and not has_hooks(conv)


def has_hooks(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)
