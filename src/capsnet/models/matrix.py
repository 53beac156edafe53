"""Matrix capsules: Hinton, Sabour, Frosst, *Matrix capsules with EM routing*, ICLR 2018 [its Figure 1]."""

from typing import Any

import torch
from torch import Tensor, nn

from capsnet.functional import spread_loss, spread_margin
from capsnet.layers import ClassCaps, ConvCaps
from capsnet.models.base import Count, Loss, Model, Output, ReceptiveField, build_routing

LEAST = 17  # pixels: 17 -> 7 -> 7 -> 3 -> 1 positions


class MatrixCapsNet(Model):
    """Convolution, primary capsules with a 4x4 pose and an activation, two convolutional capsule layers, classes.

    Conv 5x5 stride 2, ReLU -> 1x1 convolutions to poses and activations -> 3x3 stride 2 -> 3x3 stride 1 -> one capsule
    per class with weights shared over positions and the position added to the votes. All routing is competition
    between *all* parents of a child, across positions. A class is as present as its capsule is active.

    The loss is the spread loss, whose margin grows from 0.2 to 0.9. How far it has grown is part of the weights (the
    buffer ``steps``), so that a resumed run goes on exactly.

    Args:
        image_size, in_channels, num_classes: any; images of at least 17 x 17.
        widths: channels of the convolution, and types of primary, first and second convolutional capsules.
        routing: name of the routing, the same in all three places.
        iterations: its number of iterations; None leaves the routing's own default.
        routing_options: the routing's other hyper-parameters, e.g. ``{"inverse_temperature": 0.01}``.
        margin_steps: over how many training steps the margin grows.
    """

    steps: Tensor
    pose_dim = 16
    receptive_field = ReceptiveField.of_windows((5, 2), (3, 2), (3, 1))

    def __init__(
        self,
        image_size: tuple[Count, Count] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        widths: tuple[Count, Count, Count, Count] = (32, 32, 32, 32),
        routing: str = "em",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
        margin_steps: Count = 2000,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        height, width = self.image_size
        if min(height, width) < LEAST:
            raise ValueError(
                f"images of {height} x {width} are too small for a 5x5 and two 3x3 windows with strides 2, 2 and 1: "
                f"at least {LEAST} x {LEAST} are needed"
            )
        channels, primary, first, second = widths
        self.margin_steps = margin_steps
        self.primary_types = primary
        self.conv = nn.Conv2d(in_channels, channels, 5, stride=2)
        self.poses = nn.Conv2d(channels, primary * 16, 1)  # channel = type * 16 + d
        self.presence = nn.Conv2d(channels, primary, 1)
        route = build_routing(routing, iterations, None, routing_options)
        self.first = ConvCaps(primary, first, 3, 2, pose="matrix", routing=route)
        self.second = ConvCaps(first, second, 3, 1, pose="matrix", routing=route)
        self.classes = ClassCaps(second, num_classes, pose="matrix", routing=route)
        positions = self.first.grid(*((size - 5) // 2 + 1 for size in self.image_size))[:2]
        self.grid = self.second.grid(*positions)  # (H', W', types) of the classes' children
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        self.check_images(images)
        maps = torch.relu(self.conv(images))  # (B, A, H, W)
        poses = self.poses(maps).movedim(1, -1).unflatten(-1, (self.primary_types, 16))  # (B, H, W, T, 16)
        presence = self.presence(maps).movedim(1, -1).sigmoid()  # (B, H, W, T)
        poses, presence, _ = self.first(poses, presence)
        poses, presence, _ = self.second(poses, presence)
        poses, presence, history = self.classes(poses, presence, trace=trace)  # (B, J, 16), (B, J)
        return Output(lengths=presence, poses=poses, trace=history)

    def loss(self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None) -> Loss:
        """Spread loss. In training mode each call counts as one step of the margin's growth."""
        margin = spread_margin((self.steps / self.margin_steps).clamp_max(1))
        if self.training:
            self.steps.add_(1)
        total = spread_loss(output.lengths, targets, margin, weights=weights)
        return Loss(total, {"spread": total})
