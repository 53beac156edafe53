"""What models of class capsules share: the decoder that sees all but the chosen ones masked, and the paper's loss."""

import torch
from torch import Tensor, nn

from capsnet import functional as F
from capsnet.models.base import Loss, Margins, Model, Output
from capsnet.routing import Routed


class DecodingModel(Model):
    """A model whose class capsules are decoded to pictures, all but the chosen ones masked.

    Subclasses set ``decoder`` (None for none), ``grid`` of the children and ``reconstruction_weight``, the factor of
    the summed squared error, and end their ``forward`` with ``answer``.
    """

    decoder: nn.Module | None
    reconstruction_weight: float
    margins = Margins()

    @property
    def draws(self) -> bool:
        return self.decoder is not None

    def answer(self, routed: Routed, labels: Tensor | None) -> Output:
        """The output for routed class capsules; without labels each example's most present one is decoded."""
        poses, lengths, history = routed
        drawn = None
        if self.decoder is not None:
            drawn = self.draw(F.mask_capsules(poses, lengths.argmax(dim=1) if labels is None else labels))
        trace = None if history is None else history._replace(grid=self.grid)
        return Output(lengths=lengths, poses=poses, reconstruction=drawn, trace=trace)

    def loss(self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None) -> Loss:
        """Margin loss plus, where there is a decoder, the scaled-down reconstruction error [Section 4.1]."""
        parts = {"margin": F.margin_loss(output.lengths, targets, **self.margins._asdict(), weights=weights)}
        if output.reconstruction is not None:
            parts["reconstruction"] = F.reconstruction_loss(
                output.reconstruction, images, self.reconstruction_weight, weights=weights
            )
        return Loss(torch.stack(list(parts.values())).sum(), parts)

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        if self.decoder is None:
            name = self.config.get("name", type(self).__name__)
            raise ValueError(f"{name} has no decoder: build it with decoder=True")
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
