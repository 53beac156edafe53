"""Maps of what a network looks at, and how well they fit what is known to be in the picture.

Compared are the contributions of ``capsnet.explain``, the two maps that it can show beside them, and two controls.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet.inference import evaluating, grad_cam, integrated_gradients
from capsnet.inference.explanation import lay_out
from capsnet.models import Model

Method = Callable[[Model, Tensor, Tensor], Tensor]  # (model, images (B, C, H, W), classes (B,)) -> maps (B, H, W)


def routed(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """The contributions of the children, see ``explain``."""
    with evaluating(model):
        return lay_out(model, model(images, trace=True), classes)[1]


def routed_on_ink(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """The contributions times the ink: of a field's pixels, those that are not black can have been the reason."""
    return routed(model, images, classes) * images.sum(dim=1).cpu()


def grad_cam_on_ink(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """Grad-CAM times the ink, as above."""
    return grad_cam(model, images, classes) * images.sum(dim=1)


def ink(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """A control that knows no class: the picture itself."""
    return images.sum(dim=1)


def chance(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """A control that knows nothing: pixels in a random order."""
    return torch.rand(images[:, 0].shape, generator=torch.Generator().manual_seed(0))


METHODS: dict[str, Method] = {
    "contributions": routed,
    "contributions on ink": routed_on_ink,
    "integrated gradients": integrated_gradients,
    "Grad-CAM": grad_cam,
    "Grad-CAM on ink": grad_cam_on_ink,
    "ink": ink,
    "chance": chance,
}


def overlap(maps: Tensor, truth: NDArray[np.bool_]) -> list[float]:
    """IoU of the true pixels (B, H, W) of each picture with as many pixels of its map, the highest ones."""
    result = []
    for one, true in zip(maps.flatten(1).numpy(), truth.reshape(len(truth), -1), strict=True):
        chosen = np.zeros_like(true)
        chosen[np.argsort(-one, kind="stable")[: int(true.sum())]] = True
        result.append(float((chosen & true).sum() / max(1, int((chosen | true).sum()))))
    return result


def deletion(model: Model, images: Tensor, classes: Tensor, maps: Tensor, steps: int) -> NDArray[np.float64]:
    """The presence of the class while pixels are blackened, the highest first, relative to the whole picture's.

    Only pixels with ink can be blackened: the steps are equal shares of each picture's ink pixels.

    Shapes: -> (B, steps + 1)
    """
    inked = images.amax(dim=1).flatten(1) > 0  # (B, H * W)
    ranked = maps.flatten(1).masked_fill(~inked, -torch.inf).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(ranked).scatter_(1, ranked, torch.arange(ranked.shape[1]).expand_as(ranked).contiguous())
    curves = []
    with evaluating(model):
        for k in range(steps + 1):
            gone = rank < (inked.sum(dim=1, keepdim=True) * k / steps)
            left = images.flatten(2).masked_fill(gone[:, None], 0).reshape(images.shape)
            curves.append(model(left).lengths.gather(1, classes[:, None])[:, 0])
    curve = torch.stack(curves, dim=1).double()
    return (curve / curve[:, :1].clamp_min(1e-6)).numpy()
