"""Maps of what a network looks at, from gradients: what ``explain`` can show beside the contributions of the children.

The score that they explain is the presence of the class. Both give what Captum's ``IntegratedGradients`` and
``LayerGradCam`` give; a test compares them.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu

from capsnet.inference.prediction import evaluating
from capsnet.models import Model

STEPS = 32  # of the path from a black picture


def integrated_gradients(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """The picture times the mean gradient on the straight path from black to it.

    Sundararajan, Taly, Yan 2017 (arXiv:1703.01365). A map adds up to the presence of its class minus that of a black
    picture; negative numbers speak against the class.

    Shapes: images (B, C, H, W), classes (B,) -> (B, H, W)
    """
    with evaluating(model, gradients=True):
        total = torch.zeros_like(images)
        for k in range(STEPS):
            path = (images * ((k + 0.5) / STEPS)).requires_grad_()
            total += torch.autograd.grad(_presence(model, path, classes), path)[0]
    return (images * total / STEPS).sum(dim=1)


def grad_cam(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """Maps of the last convolution below the capsules, weighted by their mean gradients, without negative parts.

    Selvaraju et al. 2017 (arXiv:1610.02391). The maps are interpolated to the size of the picture.

    Shapes: images (B, C, H, W), classes (B,) -> (B, H, W)
    """
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kept.append(output)

    hook = last_convolution(model).register_forward_hook(keep)
    try:
        with evaluating(model, gradients=True):
            pixels = images.clone().requires_grad_()  # so that a network with frozen weights has gradients, too
            score = _presence(model, pixels, classes)
            weights = torch.autograd.grad(score, kept[0])[0].mean(dim=(2, 3), keepdim=True)
    finally:
        hook.remove()
    maps = relu((weights * kept[0].detach()).sum(dim=1, keepdim=True))
    return interpolate(maps, model.image_size, mode="bilinear")[:, 0]


def last_convolution(model: Model) -> nn.Conv2d:
    """The convolution below the capsules; that of a decoder is above them."""
    found = [m for name, m in model.named_modules() if isinstance(m, nn.Conv2d) and not name.startswith("decod")]
    if not found:
        raise ValueError(f"{model.config.get('name', type(model).__name__)} has no convolution, so it has no Grad-CAM")
    return found[-1]


def _presence(model: Model, images: Tensor, classes: Tensor) -> Tensor:
    """The sum over the pictures: each has its own gradient."""
    return model(images).lengths.gather(1, classes[:, None]).sum()
