"""The networks that are compared, with equal weights, as functions without arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import capsnet
from benchmarks import textbook
from capsnet import kernels
from capsnet import routing as routings
from capsnet.kernels.cost import Path
from capsnet.layers import DenseCaps
from capsnet.models import Model
from capsnet.routing import Dynamic

Run = Callable[[], object]


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


@contextmanager
def computing(path: Path = "auto", bf16: bool = False) -> Iterator[None]:
    """On these paths, in this precision: bfloat16 is autocast, as in training with ``--precision bf16``."""
    with kernels.using(path), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        yield


def training(model: nn.Module, size: int, path: Path = "auto", bf16: bool = False, compiled: bool = False) -> Run:
    """One step of Adam: ours fused, the textbook's with the defaults."""
    images, labels = batch(size)
    optimizer = torch.optim.Adam(model.parameters(), fused=isinstance(model, Model))

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        with computing(path, bf16) if not compiled else torch.enable_grad():
            output = model(images, labels)
        if isinstance(model, Model):
            single = output._replace(**{name: _single(value) for name, value in output._asdict().items()})
            return model.loss(single, labels, images).total
        return textbook.loss(output[0].float(), output[1].float(), labels, images)

    loss = torch.compile(loss_of, dynamic=False) if compiled else loss_of

    def step() -> None:
        optimizer.zero_grad()
        loss(images, labels).backward()
        optimizer.step()

    return step


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) else value


def inference(model: nn.Module, size: int, path: Path = "auto", bf16: bool = False, compiled: bool = False) -> Run:
    images, _ = batch(size)
    call = torch.compile(model, dynamic=False) if compiled else model

    def run() -> None:
        with torch.inference_mode(), computing(path, bf16):
            call(images)

    return run


def routing(size: int, children: int = 1152, parents: int = 10, iterations: int = 3) -> tuple[Run, Run]:
    """(ours, the textbook's): votes and routing, forward and backward."""
    u, w, cotangent = _capsules(size, children, parents)
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


def layer(name: str, size: int, children: int = 1152, path: Path = "auto", bf16: bool = False) -> Run:
    """A dense layer with a routing or one of its forms, forward and backward."""
    u, w, cotangent = _capsules(size, children, 10)
    torch.manual_seed(0)
    dense = DenseCaps(children, 10, routing=routings.get(name))
    with torch.no_grad():
        dense.weight.copy_(w)

    def run() -> None:
        with computing(path, bf16):
            pose = dense(u).pose
        torch.autograd.grad(pose, (u, dense.weight), cotangent.to(pose.dtype))

    return run


def _capsules(size: int, children: int, parents: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    u = (torch.randn(size, children, 8, generator=generator) * 0.1).requires_grad_()
    w = (torch.randn(children, parents, 16, 8, generator=generator) * 0.1).requires_grad_()
    return u, w, torch.randn(size, parents, 16, generator=generator)
