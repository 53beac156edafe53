"""Properties of a drawn stroke: thickness, area, slant, width, height and position.

Everything is weighted by the ink: there is no threshold, so a decoder's soft greys count by their value, and a small
change of the picture is a small change of the number. A uniform change of brightness changes ``area`` alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from capsnet.data import stroke_width


class Property(NamedTuple):
    """What is measured, and in what unit."""

    name: str
    unit: str


PROPERTIES = (
    Property("thickness", "px"),
    Property("area", "px²"),
    Property("slant", "°"),  # positive: leaning to the right
    Property("width", "px"),
    Property("height", "px"),
    Property("x position", "px"),
    Property("y position", "px"),  # counted downwards, as rows are
)
TAIL = 0.05  # of the ink on either side that an extent leaves out


def measure(pictures: Tensor) -> Tensor:
    """The properties of each picture, in the order of PROPERTIES. Shapes: (..., H, W), ink in [0, 1] -> (..., P)

    A picture without any ink has zero of everything.
    """
    if pictures.ndim < 2 or not pictures.is_floating_point():
        raise ValueError(f"pictures must be floats (..., H, W), got {pictures.dtype} of shape {tuple(pictures.shape)}")
    ink = pictures.double()
    H, W = ink.shape[-2:]
    area = ink.sum(dim=(-2, -1))
    some = area.clamp_min(1e-9)
    columns, rows = ink.sum(dim=-2), ink.sum(dim=-1)  # (..., W), (..., H)
    across = torch.arange(W, dtype=ink.dtype, device=ink.device) - (W - 1) / 2  # from the picture's middle
    down = torch.arange(H, dtype=ink.dtype, device=ink.device) - (H - 1) / 2
    x, y = (columns * across).sum(-1) / some, (rows * down).sum(-1) / some
    dx, dy = across - x[..., None], down - y[..., None]  # (..., W), (..., H)
    skew = torch.einsum("...hw,...h,...w->...", ink, dy, dx)
    tall = (rows * dy.square()).sum(-1)
    slant = torch.rad2deg(torch.atan2(-skew, tall))  # rows count downwards, so leaning right is a negative skew
    return torch.stack([stroke_width(ink), area, slant, extent(columns), extent(rows), x, y], dim=-1)


def extent(profile: Tensor) -> Tensor:
    """How long a profile of ink is, in pixels: a uniform one of n pixels has n. (..., N) -> (...)

    From the quantile TAIL to 1 - TAIL, interpolated within pixels and scaled up for what was left out.
    """
    N = profile.shape[-1]
    total = profile.sum(-1, keepdim=True).clamp_min(1e-9)
    reached = pad((profile / total).cumsum(-1), (1, 0))  # (..., N + 1): the share left of each pixel border

    def quantile(share: float) -> Tensor:
        after = (reached < share).sum(-1, keepdim=True).clamp(1, N)  # the border by which it is reached
        low, high = reached.gather(-1, after - 1), reached.gather(-1, after)
        return (after - 1 + (share - low) / (high - low).clamp_min(1e-9)).squeeze(-1)

    length = (quantile(1 - TAIL) - quantile(TAIL)) / (1 - 2 * TAIL)
    return torch.where(profile.sum(-1) > 1e-9, length, torch.zeros_like(length))
