"""The base of models with class capsules: a decoder of the chosen capsules, and the paper's loss."""

from typing import Any

import torch
from torch import Tensor, nn

from capsnet import functional as F
from capsnet.layers import Capsules
from capsnet.layers.capsules import presences
from capsnet.models._placing import wanted_parents
from capsnet.models.base import Loss, Margins, Model, Output
from capsnet.routing import divided


class DecodingModel(Model):
    """A model whose class capsules are decoded to pictures, all but the chosen ones masked.

    Subclasses define ``forward_features`` and set ``classes`` (the layer of class capsules), ``decoder`` (None for
    none), ``grid`` of the children and ``reconstruction_weight``, the factor of the summed squared error. Where
    ``coupling_weight`` is not 0, children that lie on an object are taught to go to its capsule.
    """

    classes: Any  # a capsule layer
    grid: tuple[int, int, int]
    decoder: nn.Module | None
    reconstruction_weight: float
    coupling_weight: float = 0.0
    margins: Margins = Margins()

    @property
    def draws(self) -> bool:
        return self.decoder is not None

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        """Without labels each example's most present capsule is decoded."""
        return self.forward_head(self.forward_features(images), labels, trace)

    def forward_head(self, features: Capsules, labels: Tensor | None = None, trace: bool = False) -> Output:
        """The rest of ``forward``, after ``forward_features``: class capsules and decoder."""
        taught = self.training and self.coupling_weight > 0
        poses, lengths, history = self.classes(*features, trace=trace or taught)
        drawn = None
        if self.decoder is not None:
            drawn = self.draw(F.mask_capsules(poses, lengths.argmax(dim=1) if labels is None else labels))
        grid = None if history is None else history._replace(grid=self.grid)
        output = Output(lengths=lengths, poses=poses, reconstruction=drawn, trace=grid)
        return output._replace(labels=labels, presence=presences(features).flatten(1)) if taught else output

    def loss(
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        """Margin loss plus, where there is a decoder, the scaled-down reconstruction error [Section 4.1], plus, with a
        ``coupling_weight`` and in training, ``functional.coupling_loss``."""
        parts = {"margin": F.margin_loss(output.lengths, targets, **self.margins._asdict(), weights=weights)}
        if output.reconstruction is not None:
            parts["reconstruction"] = F.reconstruction_loss(
                output.reconstruction, images, self.reconstruction_weight, weights=weights
            )
        if self.training and self.coupling_weight and output.trace is not None:
            assert self.class_routing is not None
            couplings = divided(output.trace, self.class_routing)[-1]
            parents = wanted_parents(self, output, images)
            parts["coupling"] = self.coupling_weight * F.coupling_loss(
                couplings, parents, output.presence, weights=weights
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
