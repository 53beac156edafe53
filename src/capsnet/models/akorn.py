"""A network of oscillators: Miyato et al., *Artificial Kuramoto Oscillatory Neurons*, ICLR 2025."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from capsnet import functional as F
from capsnet.layers.oscillating import KuramotoLayer, Oscillation, Readout
from capsnet.models._binding import Binding, BindingModel
from capsnet.models.base import Count, Few, NonNegative, Positive, Share, Side


class OscillatorModel(BindingModel):
    """What networks of oscillators have in common: the phases of their last layer bind positions to objects, and its
    readout is classified and drawn. Subclasses define ``oscillate`` and set ``channels``, ``n``, ``stride`` and
    ``readouts``."""

    channels: int
    n: int
    stride: int  # pixels per side of a position of the last layer
    readouts: nn.ModuleList

    def add_ends(self, redraw: bool) -> None:
        """Make the classifier and, with ``redraw``, the decoder."""
        size = self.channels * self.n
        self.head = nn.Sequential(
            nn.BatchNorm2d(size), nn.ReLU(), Quarters(), nn.Flatten(), nn.Linear(4 * size, self.num_classes)
        )
        self.decoder = None
        if redraw:
            drawn = nn.Conv2d(size, self.in_channels * self.stride**2, 3, padding=1)
            self.decoder = nn.Sequential(nn.BatchNorm2d(size), nn.ReLU(), drawn, nn.PixelShuffle(self.stride))

    def oscillate(self, images: Tensor, trace: bool = False) -> list[Oscillation]:
        """What happens in each layer, in the order in which they settle."""
        raise NotImplementedError

    def encode(self, images: Tensor) -> Tensor:
        """The oscillators of the last layer: (B, C, n, H, W)."""
        return self.oscillate(images)[-1].x

    def read(self, state: Tensor) -> Tensor:
        """Their readout: (B, C n, H, W)."""
        return self.readouts[-1](state)

    def bind_state(self, state: Tensor) -> Binding:
        height, width = self.image_size
        phases = enlarged(state, self.stride, height, width)
        if self.decoder is None:
            return Binding(phases)
        drawn = F.full_precision(self.decoder(self.read(state)))[..., :height, :width]
        return Binding(phases, torch.sigmoid(drawn))


class Quarters(nn.Module):
    """The largest value of each channel in each quarter of a map: ``nn.AdaptiveMaxPool2d(2)``, which ONNX does not have
    for odd sides. The middle row and column of odd sides count twice.

    Shapes: (B, C, H, W) -> (B, C, 2, 2).
    """

    def forward(self, x: Tensor) -> Tensor:
        quarters = [part.amax(dim=(2, 3)) for rows in halves(x, 2) for part in halves(rows, 3)]
        return torch.stack(quarters, dim=2).unflatten(2, (2, 2))


def halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Both halves of an axis; the middle of an odd one is in both."""
    size = x.shape[dim]
    return x.narrow(dim, 0, (size + 1) // 2), x.narrow(dim, size // 2, (size + 1) // 2)


def enlarged(maps: Tensor, factor: int, height: int, width: int) -> Tensor:
    """Each position of maps (..., h, w) as ``factor`` x ``factor`` equal ones, cut to (..., height, width)."""
    return maps.repeat_interleave(factor, -2).repeat_interleave(factor, -1)[..., :height, :width]


class AKOrN(OscillatorModel):
    """A stem, layers of coupled oscillators with readouts between them, and class scores.

    The stem makes a stimulus of C x n numbers per position; each layer lets C oscillators of n components settle under
    it, and reads their lengths as the next stimulus. Phases of the last layer bind positions to objects (``bind``).

    Args:
        image_size, in_channels, num_classes: any.
        channels: oscillators per position.
        n: components of each.
        depth: number of layers.
        steps: T of each layer; gamma: the size of a step.
        coupling: ``conv`` or ``attention``; heads: of the attention, a divisor of ``channels`` times ``n``.
        symmetric: couple each pair alike in both directions, so that small steps never raise the energy; ``conv`` only.
        frequencies: learn natural frequencies: oscillators also rotate by themselves.
        stride: of the stem's convolution, 1 keeps a position per pixel.
        redraw: whether the last readout is also drawn, by one convolution.
        hidden: share of the pixels that are set to 0 in training, as in a denoising autoencoder.
        supervised: whether the classes train the oscillators too. If not, the classifier only reads them.
        class_weight: of the classes in the loss, beside the squared error of the picture.
        mask_weight: of the loss that tells the phases what to bind, where the data has each object alone.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: Count = 16,
        n: Count = 4,
        depth: Few = 2,
        steps: Few = 4,
        gamma: Positive = 1.0,
        coupling: Literal["conv", "attention"] = "conv",
        heads: Count = 4,
        symmetric: bool = False,
        frequencies: bool = False,
        kernel_size: Count = 5,
        stride: Count = 2,
        redraw: bool = False,
        hidden: Share = 0.0,
        supervised: bool = True,
        class_weight: NonNegative = 1.0,
        mask_weight: NonNegative = 0.0,
        multi_label: bool = False,
    ) -> None:
        super().__init__(
            image_size, in_channels, num_classes, hidden, supervised, class_weight, mask_weight, multi_label
        )
        self.channels, self.n, self.stride = channels, n, stride
        size = channels * n
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, size, 5, stride, padding=2, bias=False),
            nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1),
        )
        options: dict[str, Any] = {"symmetric": symmetric, "frequencies": frequencies, "steps": steps, "gamma": gamma}
        self.layers = nn.ModuleList(
            KuramotoLayer(channels, n, coupling, kernel_size, heads, **options, seed=k) for k in range(depth)
        )
        self.readouts = nn.ModuleList(Readout(channels, size, n) for _ in range(depth))
        self.add_ends(redraw)

    def oscillate(self, images: Tensor, trace: bool = False) -> list[Oscillation]:
        self.check_images(images)
        stimulus, history = self.stem(images), []
        for k, layer in enumerate(self.layers):
            if k:
                stimulus = self.readouts[k - 1](history[-1].x)
            history.append(layer(stimulus.unflatten(1, (self.channels, self.n)), trace=trace))
        return history
