"""The base of networks whose phases bind pixels to objects: they redraw their input, and classify it."""

from typing import NamedTuple

import torch
from torch import Tensor

from capsnet import functional as F
from capsnet.models._placing import INK
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Loss, NonNegative, Output, Share
from capsnet.oscillators import magnitude, unit


class Binding(NamedTuple):
    """A picture as a network sees it.

    ``phases`` has unit vectors, C oscillators of n components for each pixel: pixels of one object are to have equal
    ones. ``picture`` is what the network draws, None if it does not. ``lengths`` says how strongly each oscillates,
    None if all do alike.
    """

    phases: Tensor  # (B, C, n, H, W)
    picture: Tensor | None = None  # (B, C, H, W) in [0, 1]
    lengths: Tensor | None = None  # (B, C, H, W)


class BindingModel(ScoringModel):
    """A model that redraws its input, and whose ``head`` scores the classes.

    Subclasses define ``encode`` (the state that everything else is made of), ``read`` (that state as the input of
    ``head``) and ``bind_state``.

    Args:
        hidden: share of the pixels that are set to 0 in training, as in a denoising autoencoder.
        supervised: whether the classes train the features too. If not, ``head`` only reads them.
        class_weight: of the classes in the loss, beside the squared error, which is summed over a picture.
        mask_weight: of ``mask_loss``, where the data has each object alone: the phases are told what to bind.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    def __init__(
        self,
        image_size: tuple[Count, Count],
        in_channels: Count,
        num_classes: Count,
        hidden: Share,
        supervised: bool,
        class_weight: NonNegative,
        mask_weight: NonNegative,
        multi_label: bool,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        self.hidden, self.supervised, self.multi_label = hidden, supervised, multi_label
        self.class_weight, self.mask_weight = class_weight, mask_weight

    def encode(self, images: Tensor) -> Tensor:
        """The state of the network for images (B, C, H, W)."""
        raise NotImplementedError

    def read(self, state: Tensor) -> Tensor:
        """A state as the input of ``head``."""
        raise NotImplementedError

    def bind_state(self, state: Tensor) -> Binding:
        """The phases of all pixels, and the picture, that a state stands for."""
        raise NotImplementedError

    def bind(self, images: Tensor) -> Binding:
        """To which object each pixel belongs, as phases, and the picture that the network draws."""
        self.check_images(images)
        return self.bind_state(self.encode(images))

    def forward_features(self, images: Tensor) -> Tensor:
        """What the head reads."""
        self.check_images(images)
        return self.read(self.encode(images))

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        self.check_images(images)
        if self.training and self.hidden:
            images = images * (torch.rand_like(images) >= self.hidden)
        state = self.encode(images)
        features = self.read(state)
        logits = F.full_precision(self.head(features if self.supervised else features.detach()))  # (B, J)
        lengths = logits.sigmoid() if self.multi_label else logits.softmax(dim=1)
        binding = self.bind_state(state)
        return Output(lengths, reconstruction=binding.picture, logits=logits, phases=binding.phases)

    def loss(
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        """Squared error of the picture, cross-entropy, and the loss of the masks if ``images`` are objects alone."""
        scores = super().loss(output, targets, images, weights, step=step).total
        parts = {"cross_entropy": self.class_weight * scores}
        if output.reconstruction is not None:
            whole = images.sum(dim=1).clamp(max=1) if images.ndim == 5 else images
            parts["reconstruction"] = F.reconstruction_loss(output.reconstruction, whole, 1.0, weights=weights)
        if self.mask_weight and images.ndim == 5 and output.phases is not None:
            parts["masks"] = self.mask_weight * F.weighted_mean(mask_loss(output.phases, images), weights)
        return Loss(torch.stack(list(parts.values())).sum(), parts)


def mask_loss(phases: Tensor, alone: Tensor) -> Tensor:
    """How far the phases are from one direction per object, and the directions from being as far apart as possible.

    After KomplexNet (arXiv 2502.21077): 1 - |m_k|, averaged over the objects, plus half the squared distance of the
    cosines of the mean phases m_k, m_l from -1 / (K - 1), those of a simplex. Pixels of several objects do not count.

    Shapes: phases (B, C, n, H, W) of unit length, alone (B, K, channels, H, W) -> (B,)
    """
    C, K = phases.shape[1], alone.shape[1]
    inked = alone.amax(dim=2) >= INK  # (B, K, H, W)
    own = (inked & (inked.sum(dim=1, keepdim=True) == 1)).flatten(2).to(phases.dtype)  # (B, K, N)
    vectors = phases.flatten(3).flatten(1, 2) * C**-0.5  # (B, C n, N), of length 1
    means = own @ vectors.transpose(1, 2) / own.sum(dim=2, keepdim=True).clamp_min(1)  # (B, K, C n)
    spread = 1 - magnitude(means).mean(dim=1)
    if K == 1:
        return spread
    directions = unit(means)
    cosines = directions @ directions.transpose(1, 2)  # (B, K, K)
    others = ~torch.eye(K, dtype=torch.bool, device=cosines.device)
    return spread + 0.5 * (cosines[:, others] + 1 / (K - 1)).square().mean(dim=1)
