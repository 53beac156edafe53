"""An autoencoder of rotating features: Löwe et al. 2023 (arXiv 2306.00600); with n = 2 a complex autoencoder (Löwe et
al. 2022, arXiv 2204.02075)."""

import torch
from torch import Tensor, nn

from capsnet.layers.rotating import RotatingConv2d, RotatingConvTranspose2d, RotatingLinear, add_rotation
from capsnet.models._binding import Binding, BindingModel
from capsnet.models.base import Count, Few, NonNegative, Share, Side
from capsnet.oscillators import magnitude, unit


class RotatingAutoencoder(BindingModel):
    """Convolutions that halve the picture, a linear layer, and the same way back; lengths of the middle tell the class.

    Every activation is a vector of n components. The picture is the length of the last ones, and their directions bind
    pixels to objects (``bind``).

    Args:
        image_size, in_channels, num_classes: any.
        channels: of each level, which halves the picture.
        kernel_size: of all convolutions, odd.
        per_level: convolutions of a level, the first one of stride 2 and the others of stride 1; 2 in the papers.
        latent: units of the linear layer in the middle.
        n: components of a vector; more objects need more.
        hidden: share of the pixels that are set to 0 in training, as in a denoising autoencoder.
        supervised: whether the classes train the features too. If not, the classifier only reads them.
        class_weight: of the classes in the loss, beside the squared error of the picture.
        mask_weight: of the loss that tells the phases what to bind, where the data has each object alone.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: tuple[Count, ...] = (32, 64),
        kernel_size: Count = 5,
        per_level: Few = 1,
        latent: Count = 128,
        n: Count = 4,
        hidden: Share = 0.0,
        supervised: bool = True,
        class_weight: NonNegative = 10.0,
        mask_weight: NonNegative = 0.0,
        multi_label: bool = False,
    ) -> None:
        super().__init__(
            image_size, in_channels, num_classes, hidden, supervised, class_weight, mask_weight, multi_label
        )
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}")
        self.n = n
        widths, sides, reach = (in_channels, *channels), [self.image_size], kernel_size // 2
        self.encoder, self.decoder = nn.Sequential(), nn.Sequential()
        for before, width in zip(widths, channels, strict=False):
            self.encoder.append(RotatingConv2d(before, width, kernel_size, 2, reach, n=n))
            self.encoder.extend(RotatingConv2d(width, width, kernel_size, 1, reach, n=n) for _ in range(per_level - 1))
            sides.append((-(-sides[-1][0] // 2), -(-sides[-1][1] // 2)))
        self.shape = (widths[-1], *sides[-1])
        units = widths[-1] * sides[-1][0] * sides[-1][1]
        self.middle, self.widen = RotatingLinear(units, latent, n), RotatingLinear(latent, units, n)
        for level in reversed(range(len(channels))):
            rows, columns = sides[level]
            extra = (1 - rows % 2, 1 - columns % 2)  # an even side lost nothing on the way down
            inputs, outputs = channels[level], widths[level]
            self.decoder.extend(
                RotatingConv2d(inputs, inputs, kernel_size, 1, reach, n=n) for _ in range(per_level - 1)
            )
            self.decoder.append(RotatingConvTranspose2d(inputs, outputs, kernel_size, 2, reach, extra, n=n))
        # as if a length of 1 were half white; from 0 the offset would need thousands of steps
        self.scale = nn.Parameter(torch.full((in_channels, 1, 1), 4.0))
        self.offset = nn.Parameter(torch.full((in_channels, 1, 1), -4.0))
        self.head = nn.Sequential(nn.BatchNorm1d(latent), nn.Linear(latent, num_classes))

    def encode(self, images: Tensor) -> Tensor:
        """Vectors of the middle: (B, n, latent)."""
        return self.middle(self.encoder(add_rotation(images, self.n)).flatten(2))

    def read(self, state: Tensor) -> Tensor:
        """Their lengths."""
        return magnitude(state, dim=1)

    def bind_state(self, state: Tensor) -> Binding:
        drawn = self.decoder(self.widen(state).unflatten(2, self.shape))  # (B, n, C, H, W)
        lengths = magnitude(drawn, dim=1)
        picture = (self.scale * lengths + self.offset).sigmoid()
        return Binding(unit(drawn, dim=1).transpose(1, 2), picture, lengths)
