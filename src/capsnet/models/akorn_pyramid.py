"""Oscillators at several scales, from coarse to fine, after Miyato et al., ICLR 2025.

Which digit a stroke belongs to is known where features see whole digits; where the stroke ends, where they see few
pixels. So oscillators settle on the last map of a residual stem first. They hand their phases down to the next finer
map, where they settle again under what that map shows, and so on.
"""

from typing import Any

from torch import Tensor, nn

from capsnet.layers.oscillating import KuramotoLayer, Oscillation, Readout
from capsnet.models.akorn import OscillatorModel, enlarged
from capsnet.models.base import Count, Few, NonNegative, Positive, Share, Side
from capsnet.models.residual import Blocks, Channels, residual_stem


class AKOrNPyramid(OscillatorModel):
    """A residual stem, and a layer of oscillators on each of its three maps, the coarsest first.

    A layer starts from the phases of the coarser one, and its stimulus is what its own map shows and the coarser layer
    reads out. The coarsest couples all positions by attention, the others neighbours by convolution. Phases of the
    finest, a position for 2 x 2 pixels, bind pixels to objects (``bind``). The stem is that of ``residual-cnn``, so
    training may start from its weights.

    Args:
        image_size, in_channels, num_classes: any.
        channels: oscillators per position.
        n: components of each.
        steps: T of each layer; gamma: the size of a step.
        heads: of the attention, a divisor of ``channels`` times ``n``.
        kernel_size: of the coupling between neighbours, odd.
        stem, blocks: ``channels`` and ``blocks`` of ``residual-cnn``.
        redraw: whether the last readout is also drawn, by one convolution.
        hidden: share of the pixels that are set to 0 in training, as in a denoising autoencoder.
        class_weight: of the classes in the loss, beside the squared error of the picture.
        mask_weight: of the loss that tells the phases what to bind, where the data has each object alone.
        supervised: whether the classes train the oscillators too. If not, the classifier only reads them.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: Count = 16,
        n: Count = 4,
        steps: Few = 4,
        gamma: Positive = 1.0,
        heads: Count = 4,
        kernel_size: Count = 3,
        stem: Channels = (32, 64, 256),
        blocks: Blocks = (1, 2),
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
        self.channels, self.n, self.stride = channels, n, 2
        size, options = channels * n, {"steps": steps, "gamma": gamma}
        self.features = nn.ModuleList(residual_stem(in_channels, stem, blocks))  # named as that of residual-cnn
        self.ends = (blocks[0], blocks[0] + 1 + blocks[1], len(self.features) - 1)  # the last module of each scale
        self.stimuli = nn.ModuleList(nn.Conv2d(maps, size, 1) for maps in reversed(stem))
        kinds: list[dict[str, Any]] = [{"coupling": "attention", "heads": heads}, *2 * [{"kernel_size": kernel_size}]]
        self.layers = nn.ModuleList(
            KuramotoLayer(channels, n, **kind, **options, seed=k) for k, kind in enumerate(kinds)
        )
        self.readouts = nn.ModuleList(Readout(channels, size, n) for _ in kinds)
        self.add_ends(redraw)

    def oscillate(self, images: Tensor, trace: bool = False) -> list[Oscillation]:
        self.check_images(images)
        maps, history = [], []
        for k, module in enumerate(self.features):
            images = module(images)
            if k in self.ends:
                maps.insert(0, images)
        for k, (shown, layer) in enumerate(zip(maps, self.layers, strict=True)):
            stimulus, start = self.stimuli[k](shown), None
            if history:
                size = shown.shape[2:]
                start = enlarged(history[-1].x, 2, *size)
                stimulus = stimulus + enlarged(self.readouts[k - 1](history[-1].x), 2, *size)
            history.append(layer(stimulus.unflatten(1, (self.channels, self.n)), start, trace=trace))
        return history
