"""A model from outside the package: one convolution, primary capsules, class capsules."""

import math
from typing import Any

from torch import Tensor, nn

from capsnet import functional as F
from capsnet import models
from capsnet.layers import Capsules, DenseCaps, PrimaryCaps
from capsnet.models import Loss, Margins, Model, Output, ReceptiveField
from capsnet.routing import get


class TwoLayerCapsNet(Model):
    """The smallest capsule network: images of at least 9 x 9."""

    def __init__(
        self,
        image_size: tuple[int, int] = (28, 28),
        in_channels: int = 1,
        num_classes: int = 10,
        routing: str = "dynamic",
        iterations: int | None = None,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.conv = nn.Conv2d(in_channels, 8, 5, stride=2)
        self.primary = PrimaryCaps(8, types=2, dim=4, kernel_size=3, stride=2)
        self.grid = self.primary.grid(*((side - 5) // 2 + 1 for side in image_size))
        self.pose_dim, self.margins = 8, Margins()
        self.receptive_field = ReceptiveField.of_windows((5, 2), (3, 2))
        options: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
        self.classes = DenseCaps(math.prod(self.grid), num_classes, 4, self.pose_dim, get(routing, **options))

    def forward_features(self, images: Tensor) -> Capsules:
        return self.primary(self.conv(images).relu())

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        self.check_images(images)
        poses, lengths, history = self.classes(self.forward_features(images), trace=trace)
        trace_on_grid = history and history._replace(grid=self.grid)
        return Output(lengths=lengths, poses=poses, trace=trace_on_grid)

    def loss(
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        margin = F.margin_loss(output.lengths, targets, weights=weights)
        return Loss(margin, {"margin": margin})


models.register("two-layer", TwoLayerCapsNet, "one convolution, primary capsules, class capsules")
