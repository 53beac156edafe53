"""A convolutional network of complex numbers (Trabelsi et al., *Deep Complex Networks*, ICLR 2018)."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from capsnet.layers.complex import ComplexBatchNorm2d, ComplexConv2d, CReLU, ModReLU, ZReLU, magnitude
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count

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
    """

    def __init__(
        self,
        image_size: tuple[Count, Count] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: tuple[Count, ...] = (24, 48, 96),
        activation: Activation = "crelu",
        width: Count = 128,
        multi_label: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.multi_label = multi_label
        rows, columns = self.image_size
        blocks: list[nn.Module] = []
        for inputs, outputs in pairwise((in_channels, *channels)):
            act = {"modrelu": ModReLU(outputs), "zrelu": ZReLU(), "crelu": CReLU()}[activation]
            blocks += [ComplexConv2d(inputs, outputs, 3, 2, 1), ComplexBatchNorm2d(outputs), act]
            rows, columns = -(-rows // 2), -(-columns // 2)
        self.features = nn.Sequential(*blocks)
        size = (channels[-1] if channels else in_channels) * rows * columns
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward_features(self, images: Tensor) -> Tensor:
        """The magnitudes of the last complex maps."""
        self.check_images(images)
        return magnitude(self.features(torch.cat([images, torch.zeros_like(images)], dim=1)))
