"""A convolutional network of complex numbers (Trabelsi et al., *Deep Complex Networks*, ICLR 2018)."""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from capsnet.layers.complex import ComplexBatchNorm2d, ComplexConv2d, CReLU, ModReLU, ZReLU, magnitude
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Side

Activation = Literal["modrelu", "zrelu", "crelu"]


class ComplexCNN(ScoringModel):
    """Complex convolutions of stride 2 with complex BatchNorm, then the magnitudes of all channels to class scores.

    An image is the real part of the input; its imaginary part is zero.

    Args:
        image_size, in_channels, num_classes: any.
        channels: complex channels of the 3x3 convolutions.
        activation: ``modrelu`` keeps the angle, ``zrelu`` the first quadrant, ``crelu`` acts on both parts apart.
        width: of the hidden linear layer.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
        real: the twin of real numbers, with ReLU: sqrt(2) times as many channels, because a complex weight is two
            numbers, and a hidden layer as wide as it takes to have about as many parameters.
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: tuple[Count, ...] = (24, 48, 96),
        activation: Activation = "crelu",
        width: Count = 128,
        multi_label: bool = False,
        real: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.multi_label, self.real = multi_label, real
        rows, columns = (-(-size // 2 ** len(channels)) for size in self.image_size)
        sizes = (in_channels, *channels)
        self.features = nn.Sequential(*_complex_blocks(sizes, activation))
        if real:
            aim = _count(self.features) + _head_size(sizes[-1] * rows * columns, width, num_classes)
            sizes = (in_channels, *(round(math.sqrt(2) * count) for count in channels))
            self.features = nn.Sequential(*_real_blocks(sizes))
            inputs = sizes[-1] * rows * columns
            width = max(1, round((aim - _count(self.features) - num_classes) / (inputs + 1 + num_classes)))
        flat = sizes[-1] * rows * columns
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(flat, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward_features(self, images: Tensor) -> Tensor:
        """The magnitudes of the last complex maps, or the last real maps."""
        self.check_images(images)
        if self.real:
            return self.features(images)
        return magnitude(self.features(torch.cat([images, torch.zeros_like(images)], dim=1)))


def _complex_blocks(sizes: tuple[int, ...], activation: Activation) -> list[nn.Module]:
    blocks: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        act = {"modrelu": ModReLU(outputs), "zrelu": ZReLU(), "crelu": CReLU()}[activation]
        blocks += [ComplexConv2d(inputs, outputs, 3, 2, 1), ComplexBatchNorm2d(outputs), act]
    return blocks


def _real_blocks(sizes: tuple[int, ...]) -> list[nn.Module]:
    blocks: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        blocks += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return blocks


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _head_size(inputs: int, width: int, classes: int) -> int:
    """Parameters of a hidden and an output layer."""
    return (inputs + 1) * width + (width + 1) * classes
