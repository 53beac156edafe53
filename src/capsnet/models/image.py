"""A capsule network for photographs: a residual stem below the capsules, a convolutional decoder above them."""

from typing import Any

from torch import Tensor

from capsnet.layers import Capsules, ConvDecoder, DenseCaps, PrimaryCaps, ResidualStem
from capsnet.models._decoding import DecodingModel
from capsnet.models.base import Count, NonNegative, ReceptiveField, Side, build_routing

PIXELS = 784  # of the images that the paper's reconstruction weight was chosen for


class ImageCapsNet(DecodingModel):
    """Capsules for photographs, grey or colour, from 32 to 224 pixels.

    At 224 x 224 the 2017 network would have 350,000 children and as many matrices per class. Here a residual stem
    reduces any image to a map of 6 to 10 positions a side first (``layers.stem``), and the decoder is convolutional, so
    that the number of parameters hardly depends on the size.

    The squared error grows with the number of pixels, so the summed error of an image of C x H x W is multiplied by
    ``reconstruction_weight * 784 / (C * H * W)``; 784 is the size of the paper's images.

    Args:
        image_size, in_channels, num_classes: any.
        routing: name of the routing between primary and class capsules.
        iterations: its number of iterations; None leaves the routing's own default.
        routing_options: the routing's other hyper-parameters, e.g. ``{"gradient": "last"}``.
        decoder: whether to build the reconstruction network.
        reconstruction_weight: factor of the squared error, summed as if an image had 784 numbers.
        width: channels of the stem's last map; earlier maps have fewer. Twice the width is four times the work.
        kernel_size: of the primary capsules' convolution over the stem's map, unpadded.
        squash: one of ``functional.get_squash`` for primary and class capsules; None leaves each its own default.
        decoder_width: channels of the decoder's smallest map.
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (64, 64),
        in_channels: Count = 3,
        num_classes: Count = 2,
        routing: str = "dynamic",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
        decoder: bool = True,
        reconstruction_weight: NonNegative = 0.0005,
        width: Count = 128,
        kernel_size: Count = 1,
        primary_types: Count = 8,
        primary_dim: Count = 8,
        squash: str | None = None,
        pose_dim: Count = 16,
        decoder_width: Count = 64,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        rows, columns = self.image_size
        self.pose_dim = pose_dim
        self.reconstruction_weight = reconstruction_weight * PIXELS / (in_channels * rows * columns)
        self.stem = ResidualStem(in_channels, rows, columns, width)
        if min(self.stem.grid) < kernel_size:
            raise ValueError(
                f"images of {rows} x {columns} leave a map of {self.stem.grid[0]} x {self.stem.grid[1]}, too small for "
                f"primary capsules of kernel_size {kernel_size}: use larger images or a smaller kernel_size"
            )
        self.primary = PrimaryCaps(width, primary_types, primary_dim, kernel_size, 1, squash=squash or "paper")
        self.grid = self.primary.grid(*self.stem.grid)  # (H', W', types)
        if self.stem.windows is not None:
            self.receptive_field = ReceptiveField.of_windows(*self.stem.windows, (kernel_size, 1))
        children = self.grid[0] * self.grid[1] * self.grid[2]
        route = build_routing(routing, iterations, squash, routing_options)
        self.classes = DenseCaps(children, num_classes, primary_dim, pose_dim, route)
        self.decoder = (
            ConvDecoder(num_classes, pose_dim, in_channels, rows, columns, maps=decoder_width) if decoder else None
        )

    def forward_features(self, images: Tensor) -> Capsules:
        self.check_images(images)
        return self.primary(self.stem(images))
