"""The network of *Dynamic Routing Between Capsules* [Figures 1 and 2], with its widths as parameters."""

from typing import Any

import torch
from torch import Tensor, nn

from capsnet import kernels
from capsnet.layers import Capsules, DenseCaps, DenseDecoder, PrimaryCaps
from capsnet.layers.primary import has_hooks, only_convolves
from capsnet.models._decoding import DecodingModel
from capsnet.models.base import Count, Finite, NonNegative, Positive, ReceptiveField, Side, build_routing


class CapsNet(DecodingModel):
    """Convolution, primary capsules, one capsule per class, and a decoder.

    The defaults are the paper's: conv 9x9x256, 32 types of 8-D capsules from a 9x9 stride-2 convolution, classes as
    16-D capsules, decoder 512-1024-pixels; 8,215,568 parameters at 28 x 28, 6,804,224 of them before the decoder.

    Args:
        image_size, in_channels, num_classes: any; the two 9x9 convolutions need images of at least 17 x 17.
        routing: name of the routing between primary and class capsules.
        iterations: its number of iterations; None leaves the routing's own default.
        routing_options: the routing's other hyper-parameters, e.g. ``{"gradient": "last"}``.
        decoder: whether to build the reconstruction network.
        reconstruction_weight: factor of the *summed* squared error in the loss.
        primary_scale: factor of the primary capsules' convolution, not of its bias; the authors' code has
            1 / primary_types there.
        squash: one of ``functional.get_squash`` for primary and class capsules; None leaves each its own default. With
            ``unit`` the routing also gets the presence of each primary capsule.
        bias_start: the start value of every bias; the authors' code has 0.1. None leaves PyTorch's.
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        routing: str = "dynamic",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
        decoder: bool = True,
        reconstruction_weight: NonNegative = 0.0005,
        conv_channels: Count = 256,
        kernel_size: Count = 9,
        primary_types: Count = 32,
        primary_dim: Count = 8,
        primary_scale: Positive = 1.0,
        squash: str | None = None,
        pose_dim: Count = 16,
        decoder_widths: tuple[Count, ...] = (512, 1024),
        bias_start: Finite | None = None,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.reconstruction_weight, self.pose_dim = reconstruction_weight, pose_dim
        self.conv = nn.Conv2d(in_channels, conv_channels, kernel_size)
        self.primary = PrimaryCaps(
            conv_channels, primary_types, primary_dim, kernel_size, 2, primary_scale, squash or "paper"
        )
        height, width = self.image_size
        least = 2 * kernel_size - 1
        if min(height, width) < least:
            raise ValueError(
                f"images of {height} x {width} are too small for two {kernel_size}x{kernel_size} convolutions: "
                f"at least {least} x {least} are needed"
            )
        self.grid = self.primary.grid(height - kernel_size + 1, width - kernel_size + 1)  # (H', W', types)
        self.receptive_field = ReceptiveField.of_windows((kernel_size, 1), (kernel_size, 2))
        children = self.grid[0] * self.grid[1] * self.grid[2]
        route = build_routing(routing, iterations, squash, routing_options)
        self.classes = DenseCaps(children, num_classes, primary_dim, pose_dim, route)
        self.decoder = (
            DenseDecoder(num_classes, pose_dim, in_channels, height, width, decoder_widths) if decoder else None
        )
        if bias_start is not None:
            for name, parameter in self.named_parameters():
                if name.endswith(".bias"):
                    nn.init.constant_(parameter, bias_start)

    def forward_features(self, images: Tensor) -> Capsules:
        """The primary capsules. The two convolutions are fused where that is faster."""
        self.check_images(images)
        maps = self._fused_stem(images)
        return self.primary(torch.relu(self.conv(images))) if maps is None else self.primary.group(maps)

    def _fused_stem(self, images: Tensor) -> Tensor | None:
        """The maps of both convolutions with a ReLU between them, or None if they cannot be fused."""
        first, second = self.conv, self.primary.conv
        if has_hooks(self.primary) or not (only_convolves(first) and only_convolves(second)):
            return None
        if first.stride != (1, 1) or first.bias is None or second.bias is None:
            return None
        stride = (second.stride[0], second.stride[1])
        return kernels.conv_relu_conv(
            images, first.weight, first.bias, second.weight, second.bias, stride, memory=self.primary.memory
        )
