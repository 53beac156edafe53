"""A model from outside the package: one convolution, primary capsules, class capsules."""

from typing import Any

from torch import Tensor, nn

from capsnet import functional as F
from capsnet import models
from capsnet.layers import DenseCaps, PrimaryCaps
from capsnet.models import Loss, Model, Output
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
        height, width, types = self.primary.grid(*((side - 5) // 2 + 1 for side in image_size))
        options: dict[str, Any] = {} if iterations is None else {"iterations": iterations}
        self.classes = DenseCaps(height * width * types, num_classes, 4, 8, get(routing, **options))

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        self.check_images(images)
        poses, lengths, history = self.classes(self.primary(self.conv(images).relu()), trace=trace)
        return Output(lengths=lengths, poses=poses, trace=history)

    def loss(
        self,
        output: Output,
        targets: Tensor,
        images: Tensor,
        weights: Tensor | None = None,
        *,
        step: int | None = None,
    ) -> Loss:
        margin = F.margin_loss(output.lengths, targets, weights=weights)
        return Loss(margin, {"margin": margin})


models.register("two-layer", TwoLayerCapsNet, "one convolution, primary capsules, class capsules")
