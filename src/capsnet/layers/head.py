"""Capsules on the feature map of any backbone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from capsnet.layers._shapes import check_counts
from capsnet.layers.dense import DenseCaps
from capsnet.layers.primary import PrimaryCaps
from capsnet.layers.shared import SharedCaps
from capsnet.routing import Routed, Routing, get


class CapsuleHead(nn.Module):
    """Primary capsules, a routing, and one capsule per class, in place of pooling and a linear layer.

    ``functional.margin_loss(head(features).act, targets)`` trains it together with the backbone below.

    Args:
        in_channels: C of the feature map.
        num_classes: J.
        grid: (H, W) of the feature map, for one matrix per child and class. None shares a matrix among all children:
            any map size, fewer parameters, and the place of a child does not count.
        types, primary_dim: primary capsules per position, and their dimension.
        pose_dim: D, of the class capsules.
        kernel_size, stride: of the primary capsules' convolution over the map, unpadded.
        routing: a name or a routing object.
        squash: one of ``functional.get_squash``, of the primary capsules; None is what suits the routing.

    Shapes: (B, C, H, W) -> pose (B, J, D), act (B, J), the presences, which are the lengths of the poses if the
    routing says so; with ``trace=True`` the trace, whose grid is (H', W', types).
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        grid: tuple[int, int] | None = None,
        types: int = 8,
        primary_dim: int = 8,
        pose_dim: int = 16,
        kernel_size: int = 1,
        stride: int = 1,
        routing: str | Routing = "dynamic",
        squash: str | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_counts(in_channels=in_channels, num_classes=num_classes, types=types, primary_dim=primary_dim)
        check_counts(pose_dim=pose_dim, kernel_size=kernel_size, stride=stride)
        if grid is not None:
            if not isinstance(grid, Sequence) or len(grid) != 2:
                raise ValueError(f"grid must be (H, W) of the feature map, or None for any, got {grid!r}")
            check_counts(height=grid[0], width=grid[1])
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        routing = get(routing)
        squash = squash or ("unit" if routing.wants_presence else "paper")
        self.in_channels, self.grid = in_channels, grid
        self.primary = PrimaryCaps(in_channels, types, primary_dim, kernel_size, stride, squash=squash, **place)
        if grid is None:
            self.classes = SharedCaps(num_classes, primary_dim, pose_dim, routing, **place)
            return
        if min(grid) < kernel_size:
            raise ValueError(f"a map of {grid[0]} x {grid[1]} is smaller than the kernel_size {kernel_size}")
        rows, columns, _ = self.primary.grid(*grid)
        self.classes = DenseCaps(rows * columns * types, num_classes, primary_dim, pose_dim, routing, **place)

    def forward(self, features: Tensor, trace: bool = False) -> Routed:
        expected = "B, {}, {}, {}".format(self.in_channels, *(self.grid or "HW"))
        wrong = features.ndim != 4 or features.shape[1] != self.in_channels
        if wrong or (self.grid is not None and tuple(features.shape[2:]) != tuple(self.grid)):
            raise ValueError(f"expected a feature map of shape ({expected}), got {tuple(features.shape)}")
        routed = self.classes(self.primary(features), trace=trace)
        if routed.trace is None:
            return routed
        return routed._replace(trace=routed.trace._replace(grid=self.primary.grid(*features.shape[2:])))

    def extra_repr(self) -> str:
        height, width = self.grid or "HW"
        return f"{self.in_channels} x {height} x {width} -> {self.classes.extra_repr()}"
