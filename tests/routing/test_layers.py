"""Every routing in every layer that takes one: the layers promise what the routing promises."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from capsnet import routing
from capsnet.layers import ClassCaps, ConvCaps, DenseCaps, SharedCaps
from tests.routing.test_suite import CASES

J = 3  # parents


class Case(NamedTuple):
    build: Callable[[Any], nn.Module]  # of a routing
    children: tuple[int, ...]  # their arrangement
    dim: int  # of a child's pose
    least: tuple[int, ...]  # the smallest arrangement that the layer takes


LAYERS = {
    "DenseCaps": Case(lambda route: DenseCaps(6, J, 4, 5, route), (6,), 4, (6,)),
    "SharedCaps": Case(lambda route: SharedCaps(J, 4, 5, route), (6,), 4, (1,)),
    "ConvCaps": Case(lambda route: ConvCaps(2, J, 3, 2, 4, 5, routing=route), (5, 7, 2), 4, (3, 3, 2)),
    "ConvCaps, matrices": Case(
        lambda route: ConvCaps(2, J, 2, 1, pose="matrix", routing=route), (3, 3, 2), 16, (2, 2, 2)
    ),
    "ClassCaps": Case(lambda route: ClassCaps(2, J, 4, 5, routing=route), (3, 2, 2), 4, (1, 1, 2)),
    "ClassCaps, matrices": Case(lambda route: ClassCaps(2, J, pose="matrix", routing=route), (3, 2, 2), 16, (1, 1, 2)),
}
every = [pytest.mark.parametrize("layer", LAYERS), pytest.mark.parametrize(("name", "options"), CASES)]


def everywhere(test: Callable[..., None]) -> Callable[..., None]:
    for mark in every:
        test = mark(test)
    return test


def build(layer: str, name: str, options: dict) -> nn.Module:
    torch.manual_seed(1)
    return LAYERS[layer].build(routing.get(name, **options))


def poses(layer: str, batch: int = 3, least: bool = False) -> tuple[Tensor, Tensor]:
    """Children and how present they are."""
    case = LAYERS[layer]
    torch.manual_seed(2)
    shape = (batch, *(case.least if least else case.children))
    return torch.randn(*shape, case.dim), torch.rand(*shape)


@everywhere
def test_one_example_or_many_and_the_same_each_time(layer: str, name: str, options: dict) -> None:
    module, (u, act) = build(layer, name, options), poses(layer)
    together = module(u, act)
    assert together.pose.shape[-2] == together.act.shape[-1] == J
    torch.testing.assert_close(module(u[:1], act[:1]).pose, together.pose[:1])
    assert torch.equal(module(u, act).pose, together.pose)
    few = module(*poses(layer, 1, least=True))
    assert few.pose.isfinite().all()
    assert few.act.isfinite().all()


@everywhere
def test_every_weight_gets_a_gradient(layer: str, name: str, options: dict) -> None:
    module, (u, act) = build(layer, name, options), poses(layer)
    u.requires_grad_()
    routed = module(u, act)
    (routed.pose.square().sum() + routed.act.sum()).backward()
    for what, tensor in [*module.named_parameters(), ("children", u)]:
        assert tensor.grad is not None, what
        assert tensor.grad.isfinite().all(), what
        assert tensor.grad.any(), what


@everywhere
@pytest.mark.parametrize("kind", ["zero", "huge", "identical", "nobody there"])
def test_stays_finite(layer: str, name: str, options: dict, kind: str) -> None:
    module, (u, act) = build(layer, name, options), poses(layer)
    u = {"zero": 0 * u, "huge": 1e4 * u, "identical": torch.ones_like(u), "nobody there": u}[kind].requires_grad_()
    routed = module(u, 0 * act if kind == "nobody there" else act)
    assert routed.pose.isfinite().all()
    assert routed.act.isfinite().all()
    routed.pose.sum().backward()
    assert u.grad is not None
    assert u.grad.isfinite().all()


@everywhere
def test_the_trace_ends_in_the_result(layer: str, name: str, options: dict) -> None:
    module, (u, act) = build(layer, name, options), poses(layer)
    plain, traced = module(u, act), module(u, act, trace=True)
    torch.testing.assert_close(traced.pose, plain.pose)
    assert traced.trace is not None
    torch.testing.assert_close(traced.trace.poses[-1].reshape(plain.pose.shape), plain.pose)
    assert len(traced.trace.couplings) == len(traced.trace.poses)


@everywhere
def test_halves_stay_finite(layer: str, name: str, options: dict) -> None:
    module, (u, act) = build(layer, name, options).bfloat16(), poses(layer)
    routed = module(u.bfloat16(), act.bfloat16())
    assert routed.pose.dtype == torch.bfloat16
    assert routed.pose.isfinite().all()
    assert routed.act.isfinite().all()


@everywhere
def test_compiles_as_one_graph(layer: str, name: str, options: dict) -> None:
    module, (u, act) = build(layer, name, options), poses(layer)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(u, act).pose, module(u, act).pose)
