"""Decoders: from capsules back to pixels. They regularise the poses and let people see what a pose says."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class DenseDecoder(nn.Module):
    """Fully connected 512, 1024, pixels; ReLU, ReLU, sigmoid [Figure 2].

    It sees all parents' poses with all but the chosen ones zeroed (``functional.mask_capsules``), so one decoder
    serves every class.

    Shapes: masked poses (B, J, D) -> pictures (B, C, H, W) in [0, 1].
    """

    def __init__(
        self, parents: int, dim: int, channels: int, height: int, width: int, widths: Sequence[int] = (512, 1024)
    ) -> None:
        super().__init__()
        self.picture = (channels, height, width)
        sizes = [parents * dim, *widths]
        hidden = [m for i, o in pairwise(sizes) for m in (nn.Linear(i, o), nn.ReLU())]
        self.layers = nn.Sequential(*hidden, nn.Linear(sizes[-1], math.prod(self.picture)), nn.Sigmoid())

    def forward(self, poses: Tensor) -> Tensor:
        return self.layers(poses.flatten(1)).unflatten(1, self.picture)
