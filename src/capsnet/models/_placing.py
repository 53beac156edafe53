"""On which object each child of the class capsules lies.

A child lies on an object if there is ink of that object, and of no other, in the square around the middle of the
child's receptive field that is as wide as the distance to the next child. A child whose middle is outside the picture
lies on none.
"""

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from capsnet.models.base import Model, Output

INK = 0.5  # from here on a pixel is part of an object, as in ``data.owners``


def child_centres(model: Model) -> Tensor:
    """The pixels at the middle of the children's receptive fields, in their order (y, x, type). -> (2, I)"""
    field, grid = model.receptive_field, model.grid
    assert field is not None
    assert grid is not None
    axes = (field.start + (field.size - 1) // 2 + field.stride * torch.arange(side) for side in grid[:2])
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"))  # (2, H, W)
    return places.flatten(1).repeat_interleave(grid[2], dim=1)


def child_owners(alone: Tensor, centres: Tensor, stride: int) -> Tensor:
    """On which object each child lies, -1 for none. Shapes: objects (B, K, H, W), (2, I) -> (B, I)"""
    H, W = alone.shape[-2:]
    before = stride // 2
    ink = pad((alone >= INK).to(alone.dtype), (before, stride, before, stride))
    inked = max_pool2d(ink, stride, stride=1) > 0  # (B, K, ...): in the square around each pixel
    y, x = centres.to(alone.device)
    inside = (y >= 0) & (y < H) & (x >= 0) & (x < W)
    seen = inked[:, :, y.clamp(0, H - 1), x.clamp(0, W - 1)] & inside  # (B, K, I)
    return torch.where(seen.sum(dim=1) == 1, seen.int().argmax(dim=1), -1)


def wanted_parents(model: Model, output: Output, images: Tensor) -> Tensor:
    """The class of the object on which each child lies, -1 for none: (B, I).

    ``images`` are the objects (B, K, C, H, W) of the classes that ``output`` was computed for, or pictures of one
    object each (B, C, H, W).
    """
    labels, field = output.labels, model.receptive_field
    assert field is not None
    if labels is None or (labels.ndim, images.ndim) not in ((1, 4), (3, 5)):
        raise ValueError("coupling_weight needs the class of each object, and data that has each object alone")
    if images.ndim == 4:
        labels, images = labels.unsqueeze(1), images.unsqueeze(1)
    classes = labels.argmax(dim=-1) if labels.ndim == 3 else labels.long()  # (B, K)
    owner = child_owners(images.amax(dim=2), child_centres(model), field.stride)
    return torch.where(owner < 0, -1, classes.gather(1, owner.clamp_min(0)))
