"""Efficient-CapsNet: Mazzia, Salvetti, Chiaberge 2021 (arXiv 2101.12491). A capsule network of 161,824 parameters."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from capsnet.functional import get_squash
from capsnet.layers import Capsules, DenseCaps, DenseDecoder
from capsnet.layers.capsules import squash_capsules
from capsnet.layers.whole_map import whole_map_features
from capsnet.models._decoding import DecodingModel
from capsnet.models.base import Count, NonNegative, ReceptiveField, Side, build_routing

KERNELS, STRIDES = (5, 3, 3, 3), (1, 1, 1, 2)
MAP = 2  # least side of the final map: BatchNorm cannot train on the single number of a 1 x 1 map


class EfficientCapsNet(DecodingModel):
    """Four convolutions, capsules of entire feature maps, and routing by self-attention in one pass.

    Most weights of the 2017 network are in its 9x9 convolutions and in one matrix per child and class. Here a depthwise
    convolution as large as the final map makes each channel one number, so that there are 16 children, not 1152.

    The defaults are the paper's: convolutions 5x5x32, 3x3x64, 3x3x64, 3x3x128 of stride 2 (each with a bias, ReLU, then
    BatchNorm, unpadded), depthwise 9x9 at 28 x 28, 16 capsules of 8 numbers, 10 of 16: 161,824 parameters before the
    decoder. Its reconstruction loss, 0.392 times the *mean* squared error, is 0.0005 times the sum at 784 pixels.

    Args:
        image_size, in_channels, num_classes: any; images of at least 13 x 13 (with other strides: more).
        routing: name of the routing between primary and class capsules.
        iterations: its number of iterations; None leaves the routing's own default (self-attention has none).
        routing_options: the routing's other hyper-parameters.
        decoder: whether to build the reconstruction network.
        reconstruction_weight: factor of the *summed* squared error in the loss.
        squash: of primary and class capsules, see ``functional.get_squash``.
        channels: of the four convolutions; the last one's are grouped into capsules of ``primary_dim``.
        strides: of the four convolutions; (1, 2, 1, 2) makes a picture of 40 x 40 four times as cheap.
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        routing: str = "self-attention",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
        decoder: bool = True,
        reconstruction_weight: NonNegative = 0.0005,
        squash: str = "exp",
        channels: tuple[Count, Count, Count, Count] = (32, 64, 64, 128),
        strides: tuple[Count, Count, Count, Count] = STRIDES,
        primary_dim: Count = 8,
        pose_dim: Count = 16,
        decoder_widths: tuple[Count, ...] = (512, 1024),
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        if channels[-1] % primary_dim:
            raise ValueError(
                f"the last of channels {channels} must be a multiple of primary_dim, {primary_dim}, to be grouped"
            )
        self.reconstruction_weight, self.pose_dim = reconstruction_weight, pose_dim
        self.primary_dim = primary_dim
        self.squash = get_squash(squash)
        height, width = map_size(*self.image_size, strides)
        blocks: list[nn.Module] = []
        for (i, o), kernel, stride in zip(pairwise((in_channels, *channels)), KERNELS, strides, strict=True):
            conv = nn.Conv2d if blocks else ChannelsLast
            blocks += [conv(i, o, kernel, stride), nn.ReLU(), nn.BatchNorm2d(o)]
        self.features = nn.Sequential(*blocks)
        self.depthwise = nn.Conv2d(channels[-1], channels[-1], (height, width), groups=channels[-1])
        children = channels[-1] // primary_dim
        self.grid = (1, 1, children)
        if height == width:
            self.receptive_field = ReceptiveField.of_windows(*zip(KERNELS, strides, strict=True), (height, 1))
        route = build_routing(routing, iterations, squash, routing_options)
        self.classes = DenseCaps(children, num_classes, primary_dim, pose_dim, route)
        self.decoder = (
            DenseDecoder(num_classes, pose_dim, in_channels, *self.image_size, decoder_widths) if decoder else None
        )
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward_features(self, images: Tensor) -> Capsules:
        self.check_images(images)
        features = whole_map_features(self.features, self.depthwise, images)  # (B, C)
        return squash_capsules(features.unflatten(1, (-1, self.primary_dim)), self.squash)  # (B, I, 8)


class ChannelsLast(nn.Conv2d):
    """A convolution whose output is channels last, so that the following layers are faster on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).contiguous(memory_format=torch.channels_last)


def map_size(height: int, width: int, strides: tuple[int, ...] = STRIDES) -> tuple[int, int]:
    """Height and width of the last convolution's map."""
    least = MAP
    for kernel, stride in zip(reversed(KERNELS), reversed(strides), strict=True):
        least = (least - 1) * stride + kernel
    if min(height, width) < least:
        raise ValueError(
            f"images of {height} x {width} are too small for four convolutions without padding: "
            f"at least {least} x {least} are needed"
        )
    for kernel, stride in zip(KERNELS, strides, strict=True):
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return height, width
