"""The plain twin of the capsule network for photographs: the same stem, pooling and linear layers."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from capsnet.layers import ResidualStem
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Side
from capsnet.models.image import ImageCapsNet


class ImageCNN(ScoringModel):
    """The stem of ``ImageCapsNet``, average pooling over the map, linear layers, class scores.

    Args:
        image_size, in_channels, num_classes: any.
        width: channels of the stem's last map, as in ``ImageCapsNet``.
        widths: of the hidden linear layers; None: two of one width, such that the network has as many parameters as
            the ``ImageCapsNet`` of this width without its decoder.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (64, 64),
        in_channels: Count = 3,
        num_classes: Count = 2,
        width: Count = 128,
        widths: tuple[Count, ...] | None = None,
        multi_label: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.multi_label = multi_label
        self.stem = ResidualStem(in_channels, *self.image_size, width)
        if widths is None:
            with torch.device("meta"):  # only to be counted: no memory, no random numbers
                twin = ImageCapsNet(image_size, in_channels, num_classes, decoder=False, width=width)
            spare = twin.num_parameters() - sum(weight.numel() for weight in self.stem.parameters())
            widths = (equal_width(spare, width, num_classes),) * 2
        sizes = (width, *widths)
        hidden = [m for i, o in pairwise(sizes) for m in (nn.Linear(i, o), nn.ReLU())]
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *hidden, nn.Linear(sizes[-1], num_classes))

    def forward_features(self, images: Tensor) -> Tensor:
        """The maps of the stem."""
        self.check_images(images)
        return self.stem(images)


def equal_width(parameters: int, inputs: int, outputs: int) -> int:
    """The width w of two hidden layers that have about so many parameters: w² + (inputs + 2 + outputs) w + outputs."""
    half = (inputs + 2 + outputs) / 2
    return max(1, round(math.sqrt(half**2 + parameters - outputs) - half))
