"""The base of networks without capsules: class scores and the cross-entropy."""

from torch import Tensor, nn

from capsnet import functional as F
from capsnet.models.base import Loss, Model, Output


class ScoringModel(Model):
    """A model whose ``head`` turns the features into class scores.

    ``multi_label``: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    head: nn.Sequential
    multi_label: bool

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        logits = F.full_precision(self.head(self.forward_features(images)))  # (B, J)
        return Output(lengths=logits.sigmoid() if self.multi_label else logits.softmax(dim=1), logits=logits)

    def loss(
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        """Cross-entropy: over the classes, or class by class with ``multi_label``."""
        assert output.logits is not None
        hot = F.multi_hot(targets, self.num_classes).to(output.logits.dtype)
        if self.multi_label:
            entropy = nn.functional.binary_cross_entropy_with_logits(output.logits, hot, reduction="none").sum(1)
        else:
            entropy = -(hot * output.logits.log_softmax(dim=1)).sum(dim=1)
        total = F.weighted_mean(entropy, weights)
        return Loss(total, {"cross_entropy": total})
