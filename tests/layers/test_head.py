"""``CapsuleHead`` on a plain network."""

from typing import Any

import pytest
import torch
from torch import nn

from capsnet import functional
from capsnet.layers import CapsuleHead


class Network(nn.Module):
    """A backbone as anyone has one, and capsules instead of its pooling and linear layer."""

    def __init__(self, grid: tuple[int, int] | None) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.head = CapsuleHead(8, 2, grid, types=4, primary_dim=4, pose_dim=8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(images)).act


@pytest.mark.parametrize("grid", [(4, 4), None])
def test_it_trains_with_the_backbone(grid: tuple[int, int] | None) -> None:
    images, targets = 0.1 * torch.rand(24, 1, 16, 16), torch.arange(24) % 2
    for image, target in zip(images, targets.tolist(), strict=True):  # horizontal or vertical bars
        (image[:, 6:9] if target else image[:, :, 6:9]).fill_(1)
    network = Network(grid)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = functional.margin_loss(network(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert (network(images).argmax(dim=1) == targets).all()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in network.backbone.parameters())


def test_the_trace_knows_the_grid() -> None:
    head = CapsuleHead(3, 5, (6, 7), types=2, kernel_size=3, stride=2)
    routed = head(torch.rand(1, 3, 6, 7), trace=True)
    assert routed.trace is not None
    assert routed.trace.grid == (2, 3, 2)
    assert routed.trace.couplings.shape[-2:] == (12, 5)
    assert torch.allclose(routed.act, routed.pose.norm(dim=-1), atol=1e-6)


def test_shared_matrices_take_maps_of_any_size() -> None:
    head = CapsuleHead(3, 5)
    assert [head(torch.rand(2, 3, size, size + 1)).pose.shape for size in (1, 4)] == [(2, 5, 16)] * 2


def test_a_map_smaller_than_the_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="a map of 2 x 5 is smaller than the kernel_size 3"):
        CapsuleHead(3, 5, (2, 5), kernel_size=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"num_classes": 2.5}, "num_classes must be a whole number, got 2.5"),
        ({"grid": 8}, r"grid must be \(H, W\) of the feature map, or None for any, got 8"),
        ({"grid": (0, 4)}, "height must be at least 1, got 0"),
        ({"pose_dim": 0}, "pose_dim must be at least 1, got 0"),
    ],
)
def test_wrong_sizes_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CapsuleHead(**({"in_channels": 3, "num_classes": 5} | change))  # type: ignore[arg-type]


def test_children_have_a_presence_apart_where_the_routing_wants_one() -> None:
    features = torch.rand(2, 3, 4, 5)
    for routing, apart in (("em", True), ("variational-bayes", True), ("dynamic", False)):
        assert (CapsuleHead(3, 5, routing=routing).primary(features).act is not None) == apart
    assert CapsuleHead(3, 5, routing="em", squash="paper").primary(features).act is None
