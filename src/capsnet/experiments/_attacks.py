"""Images made harder: less contrast, noise, and small changes that raise a network's loss.

The attacks stay within ``eps`` of each pixel. *White-box* ones follow the gradient of the network that is tested;
*transfer* ones follow that of another network, whose images the tested one then reads. Where the second kind does more
harm than the first, the gradients of the tested network are of no use to the attacker: it hides, it does not resist
(gradient masking: Athalye, Carlini, Wagner, ICML 2018).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from capsnet import metrics
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import Model

BATCH = 250  # images at a time


def lower_contrast(images: Tensor, factor: float) -> Tensor:
    """Brightness times a factor: strokes become grey."""
    return factor * images


def add_noise(images: Tensor, strength: float, seed: int = 0) -> Tensor:
    """Normal noise of this standard deviation, cut to [0, 1]; the same in each call."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
    return (images + strength * noise.to(images)).clamp(0, 1)


def attack(
    model: Model, images: Tensor, targets: Tensor, eps: float, steps: int, *, start: bool = True, seed: int = 0
) -> Tensor:
    """Projected gradient ascent on the loss (Madry et al., ICLR 2018), at most ``eps`` from each pixel and in [0, 1].

    Each step moves by the sign of the gradient; its size lets the images cross the box 1.25 times in half the steps.
    ``steps=1, start=False`` is the fast gradient sign method (Goodfellow et al. 2015). ``start``: from a random place
    in the box, the same in each call.

    Shapes: images (N, C, H, W), targets (N,) -> (N, C, H, W).
    """
    if steps < 1 or eps <= 0:
        raise ValueError(f"an attack has at least 1 step and a positive eps, got steps={steps} and eps={eps}")
    size = eps if steps == 1 else 2.5 * eps / steps
    generator = torch.Generator().manual_seed(seed)
    result = []
    with _frozen(model):
        for x, y in zip(images.split(BATCH), targets.split(BATCH), strict=True):
            moved = x + eps * (2 * torch.rand(x.shape, generator=generator).to(x) - 1) if start else x
            moved = moved.clamp(0, 1)
            for _ in range(steps):
                moved = moved.detach().requires_grad_()
                loss = model.loss(model(moved), y, moved).total
                [gradient] = torch.autograd.grad(loss, [moved])
                moved = moved.detach() + size * gradient.sign()
                moved = torch.minimum(torch.maximum(moved, x - eps), x + eps).clamp(0, 1)
            result.append(moved.detach())
    return torch.cat(result)


def accuracy(model: Model, images: Tensor, targets: Tensor) -> dict[str, Any]:
    """The share of the images that is read correctly, with its interval, as plain numbers."""
    with evaluating(model):
        device = device_of(model)
        lengths = torch.cat([model(part.to(device)).lengths.cpu() for part in images.split(BATCH)])
    return metrics.accuracy(lengths, targets.cpu())._asdict()


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """Evaluation mode, and gradients for the images alone."""
    training, wanted = model.training, [p.requires_grad for p in model.parameters()]
    model.eval().requires_grad_(False)
    try:
        yield
    finally:
        model.train(training)
        for parameter, want in zip(model.parameters(), wanted, strict=True):
            parameter.requires_grad_(want)
