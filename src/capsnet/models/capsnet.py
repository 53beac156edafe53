"""The network of *Dynamic Routing Between Capsules* [Figures 1 and 2], with its widths as parameters."""

from typing import Any

import torch
from torch import Tensor, nn

from capsnet import functional as F
from capsnet.layers import DenseCaps, DenseDecoder, PrimaryCaps
from capsnet.models.base import Count, Loss, Model, Output, Positive, Share
from capsnet.routing import get


class CapsNet(Model):
    """Convolution, primary capsules, one capsule per class, and a decoder that draws what the class capsule says.

    The defaults are the paper's: conv 9x9x256, 32 types of 8-D capsules from a 9x9 stride-2 convolution, classes as
    16-D capsules, decoder 512-1024-pixels; 8,215,568 parameters at 28 x 28, 6,804,224 of them before the decoder.

    Args:
        image_size, in_channels, num_classes: any; the two 9x9 convolutions need images of at least 17 x 17.
        routing: name of the routing between primary and class capsules.
        iterations: its number of iterations; None leaves the routing's own default.
        routing_options: the routing's other hyper-parameters, e.g. ``{"gradient": "last"}``.
        decoder: whether to build the reconstruction network.
        reconstruction_weight: factor of the *summed* squared error in the loss.
        primary_scale: factor before the primary capsules' squash; the authors' code has 1 / primary_types there.
    """

    def __init__(
        self,
        image_size: tuple[Count, Count] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        routing: str = "dynamic",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
        decoder: bool = True,
        reconstruction_weight: Share = 0.0005,
        conv_channels: Count = 256,
        kernel_size: Count = 9,
        primary_types: Count = 32,
        primary_dim: Count = 8,
        primary_scale: Positive = 1.0,
        pose_dim: Count = 16,
        decoder_widths: tuple[Count, ...] = (512, 1024),
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.reconstruction_weight = reconstruction_weight
        self.conv = nn.Conv2d(in_channels, conv_channels, kernel_size)
        self.primary = PrimaryCaps(conv_channels, primary_types, primary_dim, kernel_size, 2, primary_scale)
        height, width = self.image_size
        least = 2 * kernel_size - 1
        if min(height, width) < least:
            raise ValueError(
                f"images of {height} x {width} are too small for two {kernel_size}x{kernel_size} convolutions: "
                f"at least {least} x {least} are needed"
            )
        self.grid = self.primary.grid(height - kernel_size + 1, width - kernel_size + 1)  # (H', W', types)
        children = self.grid[0] * self.grid[1] * self.grid[2]
        options = dict(routing_options or {}) | ({} if iterations is None else {"iterations": iterations})
        self.classes = DenseCaps(children, num_classes, primary_dim, pose_dim, get(routing, **options))
        self.decoder = (
            DenseDecoder(num_classes, pose_dim, in_channels, height, width, decoder_widths) if decoder else None
        )

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        self.check_images(images)
        children = self.primary.after(self.conv, images)  # (B, I, 8)
        poses, lengths, history = self.classes(children, trace=trace)  # (B, J, 16), (B, J)
        drawn = None if self.decoder is None else self.draw(F.mask_capsules(poses, labels))
        return Output(
            lengths=lengths,
            poses=poses,
            reconstruction=drawn,
            trace=None if history is None else history._replace(grid=self.grid),
        )

    def loss(self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None) -> Loss:
        """Margin loss plus, where there is a decoder, the scaled-down reconstruction error [Section 4.1]."""
        parts = {"margin": F.margin_loss(output.lengths, targets, weights=weights)}
        if output.reconstruction is not None:
            parts["reconstruction"] = F.reconstruction_loss(
                output.reconstruction, images, self.reconstruction_weight, weights=weights
            )
        return Loss(torch.stack(list(parts.values())).sum(), parts)

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        if self.decoder is None:
            return super().decode(poses, classes)
        if classes.ndim not in (1, 2) or classes.shape[0] != poses.shape[0]:
            B = poses.shape[0]
            raise ValueError(f"classes must have shape ({B},) or ({B}, K), got {tuple(classes.shape)}")
        chosen = F.multi_hot(classes.reshape(-1), self.num_classes).reshape(*classes.shape, self.num_classes)
        return self.draw(F.mask_capsules(poses, chosen))

    def draw(self, masked: Tensor) -> Tensor:
        """Masked capsules (B, J, D) or (B, K, J, D) as pictures (B, C, H, W) or (B, K, C, H, W)."""
        assert self.decoder is not None
        if masked.ndim == 3:
            return self.decoder(masked)
        return self.decoder(masked.flatten(0, 1)).unflatten(0, masked.shape[:2])
