"""Capsules on a residual stem for small pictures, and the plain network on the same stem.

The blocks are those of He et al. 2016 (arXiv 1512.03385). Primary capsules describe whole feature maps, and are routed
by self-attention, as in Mazzia et al. 2021 (arXiv 2101.12491).
"""

from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from capsnet._limits import MOST_REPEATS
from capsnet.functional import get_squash
from capsnet.layers import Capsules, DenseCaps, DenseDecoder
from capsnet.layers.capsules import squash_capsules
from capsnet.models._decoding import DecodingModel
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, NonNegative, ReceptiveField, Side, build_routing

Channels = tuple[Count, Count, Count]
Repeats = Annotated[int, Field(ge=0, le=MOST_REPEATS)]
Blocks = tuple[Repeats, Repeats]


class ResidualCapsNet(DecodingModel):
    """Residual stem, primary capsules, class capsules with any routing, decoder.

    Three convolutions of stride 2 with residual blocks between them reduce an image to an eighth, rounded up: 4 x 4
    positions at 28 x 28, 5 x 5 at 36 x 36 and 40 x 40. There the channels are grouped into capsules:

    - ``primary="whole"``: a depthwise convolution as large as the map makes each channel one number, so that a capsule
      describes the whole image (32 children with the default widths);
    - ``primary="grid"``: each position has its own capsules, which can go to different parents.

    Args:
        image_size, in_channels, num_classes: any.
        routing: name of the routing between primary and class capsules.
        iterations: its number of iterations; None leaves the routing's own default (self-attention has none).
        routing_options: the routing's other hyper-parameters.
        decoder: whether to build the reconstruction network.
        reconstruction_weight: factor of the *summed* squared error in the loss.
        coupling_weight: factor of ``functional.coupling_loss``, which teaches children that lie on an object to go to
            its capsule. For ``primary="grid"``, and data of one object or with each object alone.
        squash: of primary and class capsules, see ``functional.get_squash``.
        channels: of the three convolutions; the last one's are grouped into capsules of ``primary_dim``.
        blocks: the number of residual blocks after the first and after the second convolution.
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
        channels: Channels = (32, 64, 256),
        blocks: Blocks = (1, 2),
        primary: Literal["whole", "grid"] = "whole",
        primary_dim: Count = 8,
        pose_dim: Count = 16,
        decoder_widths: tuple[Count, ...] = (512, 1024),
        coupling_weight: NonNegative = 0.0,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        if coupling_weight and primary == "whole":
            raise ValueError('coupling_weight needs children that lie somewhere in the image: choose primary="grid"')
        if channels[-1] % primary_dim:
            raise ValueError(
                f"the last of channels {channels} must be a multiple of primary_dim, {primary_dim}, to be grouped"
            )
        self.reconstruction_weight, self.coupling_weight = reconstruction_weight, coupling_weight
        self.primary_dim, self.pose_dim = primary_dim, pose_dim
        self.squash = get_squash(squash)
        self.features = residual_stem(in_channels, channels, blocks)
        height, width = final_map(self.image_size)
        self.depthwise = depthwise(channels[-1], height, width) if primary == "whole" else None
        types = channels[-1] // primary_dim
        self.grid = (1, 1, types) if primary == "whole" else (height, width, types)
        if primary == "grid" or height == width:
            self.receptive_field = field(blocks, height if primary == "whole" else 1)
        route = build_routing(routing, iterations, squash, routing_options)
        children = self.grid[0] * self.grid[1] * types
        self.classes = DenseCaps(children, num_classes, primary_dim, pose_dim, route)
        self.decoder = (
            DenseDecoder(num_classes, pose_dim, in_channels, *self.image_size, decoder_widths) if decoder else None
        )

    def forward_features(self, images: Tensor) -> Capsules:
        self.check_images(images)
        maps = self.features(images.contiguous(memory_format=torch.channels_last))
        if self.depthwise is not None:
            maps = self.depthwise(maps)
        children = maps.movedim(1, -1).flatten(1).unflatten(1, (-1, self.primary_dim))  # (B, I, D), types last
        return squash_capsules(children, self.squash)


class ResidualCNN(ScoringModel):
    """The plain twin of ``ResidualCapsNet``: the same stem, linear layers instead of capsules.

    With the default width it has as many parameters as the capsule network without its decoder, to 0.1 %.

    Args:
        image_size, in_channels, num_classes: any.
        channels, blocks: as those of ``ResidualCapsNet``.
        widths: of the hidden linear layers.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: Channels = (32, 64, 256),
        blocks: Blocks = (1, 2),
        widths: tuple[Count, ...] = (155,),
        multi_label: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.multi_label = multi_label
        self.features = residual_stem(in_channels, channels, blocks)
        sizes = (channels[-1], *widths)
        hidden = [m for i, o in pairwise(sizes) for m in (nn.Linear(i, o), nn.ReLU())]
        whole = depthwise(channels[-1], *final_map(self.image_size))
        self.head = nn.Sequential(whole, nn.Flatten(), nn.ReLU(), *hidden, nn.Linear(sizes[-1], num_classes))

    def forward_features(self, images: Tensor) -> Tensor:
        """The maps of the stem."""
        self.check_images(images)
        return self.features(images.contiguous(memory_format=torch.channels_last))


class ResidualBlock(nn.Module):
    """relu(x + f(x)) with two 3x3 convolutions in f, each followed by BatchNorm; f starts at zero.

    Shapes: (B, C, H, W) -> (B, C, H, W).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        nn.init.zeros_(self.norm2.weight)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))).relu()


def downsample(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """A convolution that halves each side, rounded up, BatchNorm and ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride=2, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def residual_stem(in_channels: int, channels: Channels, blocks: Blocks) -> nn.Sequential:
    """(B, in_channels, H, W) -> (B, channels[-1], H / 8, W / 8), rounded up."""
    first, second, third = channels
    return nn.Sequential(
        downsample(in_channels, first, 5),
        *(ResidualBlock(first) for _ in range(blocks[0])),
        downsample(first, second, 3),
        *(ResidualBlock(second) for _ in range(blocks[1])),
        downsample(second, third, 3),
    )


def final_map(image_size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of the stem's output."""
    height, width = (-(-side // 8) for side in image_size)
    return height, width


def depthwise(channels: int, height: int, width: int) -> nn.Conv2d:
    """One number for each channel of a whole map: (B, C, H, W) -> (B, C, 1, 1)."""
    return nn.Conv2d(channels, channels, (height, width), groups=channels)


def field(blocks: Blocks, side: int) -> ReceptiveField:
    """What a square of ``side`` x ``side`` positions of the stem's output sees."""
    block = [(3, 1, 1), (3, 1, 1)]
    return ReceptiveField.of_windows((5, 2, 2), *block * blocks[0], (3, 2, 1), *block * blocks[1], (3, 2, 1), (side, 1))
