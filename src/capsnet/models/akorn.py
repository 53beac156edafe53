"""A network of oscillators: Miyato et al., *Artificial Kuramoto Oscillatory Neurons*, ICLR 2025."""

from typing import Literal

from torch import Tensor, nn

from capsnet.layers.oscillating import KuramotoLayer, Oscillation, Readout
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Positive


class AKOrN(ScoringModel):
    """A stem, layers of coupled oscillators with readouts between them, and class scores.

    The stem makes a stimulus of C x n numbers per position; each layer lets C oscillators of n components settle under
    it, and reads their lengths as the next stimulus. Phases of the last layer bind positions to objects (``phases``).

    Args:
        image_size, in_channels, num_classes: any.
        channels: oscillators per position.
        n: components of each.
        depth: number of layers.
        steps: T of each layer; gamma: the size of a step.
        coupling: ``conv`` or ``attention``.
        stride: of the stem's convolution, 1 keeps a position per pixel.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Count, Count] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: Count = 16,
        n: Count = 4,
        depth: Count = 2,
        steps: Count = 4,
        gamma: Positive = 1.0,
        coupling: Literal["conv", "attention"] = "conv",
        kernel_size: Count = 5,
        stride: Count = 2,
        multi_label: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.multi_label, self.channels, self.n = multi_label, channels, n
        size = channels * n
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, size, 5, stride, padding=2, bias=False),
            nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1),
        )
        self.layers = nn.ModuleList(
            KuramotoLayer(channels, n, coupling, kernel_size, steps=steps, gamma=gamma, seed=k) for k in range(depth)
        )
        self.readouts = nn.ModuleList(Readout(channels, size, n) for _ in range(depth))
        self.head = nn.Sequential(
            nn.BatchNorm2d(size), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(4 * size, num_classes)
        )

    def oscillate(self, images: Tensor, trace: bool = False) -> tuple[Tensor, list[Oscillation]]:
        """The last readout (B, C n, H, W), and what happened in each layer."""
        self.check_images(images)
        stimulus, history = self.stem(images), []
        for layer, readout in zip(self.layers, self.readouts, strict=True):
            oscillation = layer(stimulus.unflatten(1, (self.channels, self.n)), trace=trace)
            history.append(oscillation)
            stimulus = readout(oscillation.x)
        return stimulus, history

    def phases(self, images: Tensor) -> Tensor:
        """The oscillators of the last layer: (B, C, n, H, W)."""
        return self.oscillate(images)[1][-1].x

    def forward_features(self, images: Tensor) -> Tensor:
        """The last readout."""
        return self.oscillate(images)[0]
