"""Primary capsules: the lowest level, a convolution whose channels are grouped into vectors [Section 4]."""

import torch
from torch import Tensor, nn

from capsnet import kernels
from capsnet.functional import get_squash


class PrimaryCaps(nn.Module):
    """A convolution to ``types`` x ``dim`` channels, read as a grid of squashed ``dim``-dimensional capsules.

    Channels move last *before* they are grouped, so that the numbers of one capsule come from one position and
    different channels: channel = type * dim + d. Grouping without the move mixes positions, the commonest bug in
    re-implementations.

    The convolution takes the fast path of ``capsnet.kernels`` where that pays; its parameters are an ordinary
    convolution's either way.

    ``scale`` multiplies the convolution's output before the squash. The authors' code treats this layer as one
    iteration of routing over ``types`` zero logits, which divides by ``types``; the paper's text does not.
    ``squash`` is one of ``functional.get_squash``.

    ``layer(images, after=conv)`` is ``layer(relu(conv(images)))``, in one piece where that is faster. With
    ``presence=True`` the answer is (capsules, act), as the next layer takes them: act (B, I) says how present each
    capsule is where the squash keeps that apart from the pose (``unit``), and is None where the length says it.

    Shapes: (B, C, H, W) -> (B, H' * W' * types, dim), children ordered (y, x, type).
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
    ) -> None:
        super().__init__()
        self.squash = squash
        self._squash = get_squash(squash)
        self.types = types
        self.dim = dim
        self.scale = scale
        self.conv = nn.Conv2d(in_channels, types * dim, kernel_size, stride)
        self._memory = kernels.Memory()  # scratch: never the only copy of anything, not in the state_dict

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """(H', W', types) of the capsules that an H x W map gives."""
        (kernel, _), (stride, _) = self.conv.kernel_size, self.conv.stride
        return (height - kernel) // stride + 1, (width - kernel) // stride + 1, self.types

    def forward(
        self, x: Tensor, after: nn.Conv2d | None = None, *, presence: bool = False
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        maps = None if after is None else self._in_one_piece(after, x)
        if maps is None:
            maps = self._convolve(x if after is None else torch.relu(after(x)))
        capsules, act = self._squash(self._group(maps))
        if not presence:
            return capsules
        return capsules, act if self.squash == "unit" else None

    def _in_one_piece(self, first: nn.Conv2d, images: Tensor) -> Tensor | None:
        """The maps of both convolutions with a ReLU between them, or None: do it step by step."""
        if first.stride != (1, 1) or first.bias is None or self.conv.bias is None:
            return None
        if not (untouched(first) and untouched(self.conv)):
            return None
        return kernels.conv_relu_conv(
            images, first.weight, first.bias, self.conv.weight, self.conv.bias, self._stride(), memory=self._memory
        )

    def _convolve(self, x: Tensor) -> Tensor:
        if not untouched(self.conv):
            return self.conv(x)
        return kernels.conv2d(x, self.conv.weight, self.conv.bias, self._stride(), memory=self._memory)

    def _stride(self) -> tuple[int, int]:
        return self.conv.stride[0], self.conv.stride[1]

    def _group(self, maps: Tensor) -> Tensor:
        """Maps (B, types * dim, H', W') -> capsules (B, I, dim) before their squash."""
        maps = maps.movedim(1, -1)  # (B, H', W', types * dim)
        B, H, W, _ = maps.shape
        capsules = maps.reshape(B, H * W * self.types, self.dim)
        return capsules if self.scale == 1 else self.scale * capsules


def untouched(conv: nn.Conv2d) -> bool:
    """Whether calling ``conv`` does nothing but convolve: no hooks to fire, no parametrisation, no padding."""
    hooks = (conv._forward_hooks, conv._forward_pre_hooks, conv._backward_hooks, conv._backward_pre_hooks)
    ordinary = conv.groups == 1 and conv.dilation == (1, 1) and conv.padding == (0, 0)
    return type(conv) is nn.Conv2d and ordinary and not any(hooks)
