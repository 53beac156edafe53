"""The network as it is usually written: the baseline of every speed claim in this repository.

Written from the paper alone [Sabour et al. 2017, arXiv 1710.09829], in direct PyTorch:
5-D tensors, one broadcast ``matmul`` for the votes, a plain stride-2 ``Conv2d``, autograd through everything. It is
neither slowed down nor tuned. Its parameters carry the names and shapes of
``capsnet.create_model("capsnet")``, so both networks can be given the same weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def squash(s: Tensor) -> Tensor:
    """Eq. 1 along the last axis."""
    square = (s * s).sum(-1, keepdim=True)
    return square / (1 + square) * s / torch.sqrt(square + 1e-8)


def route(votes: Tensor, iterations: int) -> Tensor:
    """Procedure 1 on (B, I, J, D, 1) votes -> (B, J, D)."""
    logits = torch.zeros(*votes.shape[:3], 1, 1, device=votes.device, dtype=votes.dtype)  # (B, I, J, 1, 1)
    for iteration in range(iterations):
        coupling = torch.softmax(logits, dim=2)
        parents = squash((coupling * votes).sum(dim=1, keepdim=True).squeeze(-1)).unsqueeze(-1)  # (B, 1, J, D, 1)
        if iteration < iterations - 1:
            logits = logits + (votes * parents).sum(dim=3, keepdim=True)
    return parents[:, 0, :, :, 0]


class TextbookCapsNet(nn.Module):
    """Conv, PrimaryCaps, DigitCaps, decoder. forward(images, labels) -> (lengths (B, 10), reconstruction (B, 784))."""

    def __init__(self, iterations: int = 3) -> None:
        super().__init__()
        self.iterations = iterations
        self.conv1 = nn.Conv2d(1, 256, 9)
        self.primary = nn.Conv2d(256, 256, 9, stride=2)
        self.weight = nn.Parameter(0.05 * torch.randn(1152, 10, 16, 8))
        self.decoder = nn.Sequential(
            nn.Linear(160, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 784), nn.Sigmoid()
        )

    def forward(self, images: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        features = F.relu(self.conv1(images))
        maps = self.primary(features)  # (B, 256, 6, 6), channel = type * 8 + d
        batch, _, height, width = maps.shape
        children = maps.view(batch, 32, 8, height, width).permute(0, 3, 4, 1, 2).reshape(batch, -1, 8)
        children = squash(children)
        votes = torch.matmul(self.weight, children[:, :, None, :, None])  # (B, I, J, D, 1)
        poses = route(votes, self.iterations)
        lengths = poses.norm(dim=-1)
        chosen = lengths.argmax(dim=1) if labels is None else labels
        mask = F.one_hot(chosen, 10).to(poses.dtype)
        return lengths, self.decoder((poses * mask[..., None]).flatten(1))


def loss(lengths: Tensor, reconstruction: Tensor, labels: Tensor, images: Tensor) -> Tensor:
    """Eq. 4 plus 0.0005 of the summed squared reconstruction error, averaged over the batch."""
    target = F.one_hot(labels, 10).to(lengths.dtype)
    margin = target * F.relu(0.9 - lengths) ** 2 + 0.5 * (1 - target) * F.relu(lengths - 0.1) ** 2
    error = (reconstruction - images.flatten(1)) ** 2
    return margin.sum(1).mean() + 0.0005 * error.sum(1).mean()
