"""Every routing in every layer that takes one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from capsnet.routing import list_forms
from tests.layers import suite

every = [pytest.mark.parametrize("layer", suite.CAPSULE_LAYERS), pytest.mark.parametrize("name", list_forms())]


def everywhere(test: Callable[..., None]) -> Callable[..., None]:
    for mark in every:
        test = mark(test)
    return test


def build(layer: str, name: str) -> nn.Module:
    return suite.build(suite.CAPSULE_LAYERS[layer], routing=name).train()


def poses(layer: str) -> tuple[Tensor, Tensor]:
    """Children and how present they are."""
    u = suite.inputs(suite.CAPSULE_LAYERS[layer])
    return u, torch.rand(u.shape[:-1], generator=torch.Generator().manual_seed(3))


@everywhere
def test_layer_is_deterministic_for_any_batch(layer: str, name: str) -> None:
    module, (u, act) = build(layer, name), poses(layer)
    together = module(u, act)
    assert together.pose.shape[-2] == together.act.shape[-1] == suite.J
    torch.testing.assert_close(module(u[:1], act[:1]).pose, together.pose[:1])
    assert torch.equal(module(u, act).pose, together.pose)


@everywhere
def test_weights_get_gradients(layer: str, name: str) -> None:
    module, (u, act) = build(layer, name), poses(layer)
    u.requires_grad_()
    routed = module(u, act)
    (routed.pose.square().sum() + routed.act.sum()).backward()
    for what, tensor in [*module.named_parameters(), ("children", u)]:
        assert tensor.grad is not None, what
        assert tensor.grad.isfinite().all(), what
        assert tensor.grad.any(), what


@everywhere
@pytest.mark.parametrize("kind", ["zero", "huge", "identical", "absent"])
def test_layer_stays_finite(layer: str, name: str, kind: str) -> None:
    module, (u, act) = build(layer, name), poses(layer)
    u = {"zero": 0 * u, "huge": 1e4 * u, "identical": torch.ones_like(u), "absent": u}[kind].requires_grad_()
    routed = module(u, 0 * act if kind == "absent" else act)
    assert routed.pose.isfinite().all()
    assert routed.act.isfinite().all()
    routed.pose.sum().backward()
    assert u.grad is not None
    assert u.grad.isfinite().all()


@everywhere
def test_trace_ends_in_result(layer: str, name: str) -> None:
    module, (u, act) = build(layer, name), poses(layer)
    plain, traced = module(u, act), module(u, act, trace=True)
    torch.testing.assert_close(traced.pose, plain.pose)
    assert traced.trace is not None
    torch.testing.assert_close(traced.trace.poses[-1].reshape(plain.pose.shape), plain.pose)
    assert len(traced.trace.couplings) == len(traced.trace.poses)


@everywhere
def test_half_precision_stays_finite(layer: str, name: str) -> None:
    module, (u, act) = build(layer, name).bfloat16(), poses(layer)
    routed = module(u.bfloat16(), act.bfloat16())
    assert routed.pose.dtype == torch.bfloat16
    assert routed.pose.isfinite().all()
    assert routed.act.isfinite().all()


# Every routing in a layer with edges, and every layer with one routing: compiling takes long.
COMPILED = {("ConvCaps", name) for name in list_forms()} | {(layer, "dynamic") for layer in suite.CAPSULE_LAYERS}


@pytest.mark.parametrize(("layer", "name"), sorted(COMPILED))
def test_layer_compiles_as_one_graph(layer: str, name: str) -> None:
    module, (u, act) = build(layer, name), poses(layer)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(u, act).pose, module(u, act).pose)
