"""The networks that are compared, with equal weights, as functions without arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import capsnet
from benchmarks import textbook
from capsnet import kernels
from capsnet.kernels.cost import Path
from capsnet.models.base import Model
from capsnet.routing import Dynamic

Run = Callable[[], object]

# Multiply-adds per image of the paper's network, in its direct form.
CONV1, PRIMARY, VOTES, DECODER = (
    400 * 256 * 81,
    36 * 256 * 256 * 81,
    1152 * 160 * 8,
    160 * 512 + 512 * 1024 + 1024 * 784,
)
# forward, gradient of the weights, gradient of the input (which the first layer does not need)
DIRECT_FLOPS = 2 * (2 * CONV1 + 3 * (PRIMARY + VOTES + DECODER))


def pair(iterations: int = 3) -> tuple[Model, textbook.TextbookCapsNet]:
    """(ours, the textbook's) with the same weights."""
    torch.manual_seed(0)
    ours, plain = capsnet.create_model("capsnet", iterations=iterations), textbook.TextbookCapsNet(iterations)
    with torch.no_grad():
        for target, source in zip(plain.parameters(), _in_order(ours), strict=True):
            target.copy_(source)
    return ours, plain


def _in_order(model: nn.Module) -> list[Tensor]:
    named = dict(model.named_parameters())
    return [named.pop("classes.weight"), *named.values()]  # a module's own parameters come before its children's


def batch(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(size, 1, 28, 28, generator=generator), torch.randint(10, (size,), generator=generator)


def training(model: Model | textbook.TextbookCapsNet, size: int) -> Run:
    """One step of Adam: ours fused, the textbook's with the defaults."""
    images, labels = batch(size)
    if isinstance(model, textbook.TextbookCapsNet):
        optimizer = torch.optim.Adam(model.parameters())
    else:
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        if isinstance(model, textbook.TextbookCapsNet):
            lengths, drawn = model(images, labels)
            loss = textbook.loss(lengths, drawn, labels, images)
        else:
            loss = model.loss(model(images, labels), labels, images).total
        loss.backward()
        optimizer.step()

    return step


def inference(model: nn.Module, size: int) -> Run:
    images, _ = batch(size)

    def run() -> None:
        with torch.inference_mode():
            model(images)

    return run


def demo(size: int = 128) -> tuple[Run, Run]:
    """(fast paths, plain paths): a training step of the demo's network."""

    def on(path: Path) -> Run:
        step = training(capsnet.create_model("capsnet-small"), size)

        def run() -> None:
            with kernels.using(path):
                step()

        return run

    return on("auto"), on("plain")


def routing(size: int, children: int = 1152, parents: int = 10, iterations: int = 3) -> tuple[Run, Run]:
    """(ours, the textbook's): votes and routing, forward and backward."""
    generator = torch.Generator().manual_seed(2)
    u = (torch.randn(size, children, 8, generator=generator) * 0.1).requires_grad_()
    w = (torch.randn(children, parents, 16, 8, generator=generator) * 0.1).requires_grad_()
    cotangent = torch.randn(size, parents, 16, generator=generator)
    memory = kernels.Memory()

    dynamic = Dynamic(iterations=iterations)

    def run(poses: Tensor) -> None:
        torch.autograd.grad(poses, (u, w), cotangent)

    def ours() -> None:
        routed = dynamic.fused(u, w, None, {}, memory)
        assert routed is not None
        run(routed.pose)

    def plain() -> None:
        run(textbook.route(torch.matmul(w, u[:, :, None, :, None]), iterations))

    return ours, plain
