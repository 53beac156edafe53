"""Routing without votes in memory: how much memory, on which devices and in which modes.

That values and gradients are those of the votes, for every routing, is checked in tests/routing/suite.py.
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from capsnet import kernels, routing
from capsnet.functional import squash
from capsnet.kernels import chunked_routing, cost, em_routing
from capsnet.kernels._chunk import Chunk
from capsnet.kernels.votes import LinearVotes, Votes, form_votes
from capsnet.layers import DenseCaps
from capsnet.routing import Edges, Routed, Uniform
from capsnet.routing.steps import agree, distance, gather, level
from tests.kernels._bytes import Bytes, counted

B, I, J, D, K = 32, 72, 10, 16, 8
VOTES = 4 * B * I * J * D  # bytes
FORMS = routing.list_forms()
VOTE_FREE = [name for name in FORMS if routing.get(name).vote_free]  # the others form the votes of a chunk


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Bytes are counted in the calling thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def layer_and_children(name: Any, device: str = "cpu", **sizes: int) -> tuple[DenseCaps, Tensor]:
    b, i, k = (sizes.get(letter, size) for letter, size in (("B", B), ("I", I), ("K", K)))
    g = torch.Generator().manual_seed(0)
    layer = DenseCaps(i, J, k, D, name)
    layer.weight.data.normal_(generator=g).mul_(0.3)
    return layer.to(device), squash(torch.randn(b, i, k, generator=g)).to(device).requires_grad_()


def step(layer: Any, u: Tensor) -> list[Tensor]:
    """Pose, activation, and the gradients of the children and of all that is learned."""
    routed = layer(u)
    weights = torch.randn(routed.pose.shape, generator=torch.Generator().manual_seed(2)).to(u.device)
    loss = (routed.pose.float() * weights).sum() + routed.act.float().sum()
    return [routed.pose, routed.act, *torch.autograd.grad(loss, [u, *layer.parameters()], allow_unused=True)]


def bytes_of_step(name: str, **sizes: Any) -> Bytes:
    layer, u = layer_and_children(name, **sizes)
    with counted() as seen:
        step(layer, u)
    return seen


@pytest.mark.parametrize(("b", "I"), [(64, 288), (256, 288), (64, 1152), (128, 1152)])
@pytest.mark.parametrize("name", VOTE_FREE)
def test_step_needs_little_more_memory_than_dynamic(name: str, b: int, I: int) -> None:
    seen = bytes_of_step(name, B=b, I=I)
    assert seen.largest < 4 * b * I * J * D / 4
    assert seen.peak <= 1.5 * bytes_of_step("dynamic", B=b, I=I).peak


@pytest.mark.parametrize("name", [name for name in VOTE_FREE if routing.get(name).recomputes])
def test_recomputed_chunks_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_routing, "_CHUNK", 20_000)
    layer, u = layer_and_children(name)
    assert len(chunked_routing._runs(u, layer.weight, forms=False, recompute=True)) > 1
    found = step(layer, u)
    monkeypatch.setattr(type(layer.routing), "recomputes", False)
    monkeypatch.setattr(chunked_routing, "_CHUNK", 20_000 // 3)  # the same chunks, since sums depend on them
    for one, recorded in zip(found, step(layer, u), strict=True):
        assert torch.equal(one, recorded)


@pytest.mark.parametrize("name", FORMS)
def test_no_tensor_is_as_large_as_the_votes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_CHUNK", "_VOTES"):
        monkeypatch.setattr(chunked_routing, limit, VOTES // 8)
    monkeypatch.setattr(em_routing, "_CHUNK", VOTES // 8)
    with kernels.using("fast"):
        assert bytes_of_step(name).largest < VOTES


def test_small_votes_are_formed_where_a_routing_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bytes_of_step("em-full").largest >= VOTES
    monkeypatch.setattr(cost, "_LARGE_VOTES", VOTES)
    monkeypatch.setattr(chunked_routing, "_VOTES", VOTES // 8)
    assert bytes_of_step("em-full").largest < VOTES


@pytest.mark.parametrize("name", VOTE_FREE)
def test_meta_device_gives_shapes_without_votes(name: str) -> None:
    layer, u = layer_and_children(name, "meta")
    with counted() as seen:
        pose, act, *gradients = step(layer, u)
    assert pose.shape == (B, J, D)
    assert act.shape == (B, J)
    assert [g.shape for g in gradients if g is not None] == [t.shape for t in (u, *layer.parameters())]
    assert {t.device.type for t in (pose, act, *gradients)} == {"meta"}
    assert seen.largest < VOTES


@pytest.mark.parametrize("name", FORMS)
def test_autocast_routes_in_float32(name: str) -> None:
    layer, u = layer_and_children(name)
    expected = step(layer, u)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        routed = layer(u)
        low = layer(u.bfloat16())
    assert routed.pose.dtype == routed.act.dtype == torch.float32
    torch.testing.assert_close(routed.pose, expected[0])
    torch.testing.assert_close(low.pose, expected[0], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", FORMS)
def test_network_in_half_precision_keeps_its_precision(name: str) -> None:
    layer, u = layer_and_children(name)
    expected = step(layer, u)
    found = step(layer.bfloat16(), u.detach().bfloat16().requires_grad_())
    assert {t.dtype for t in found if t is not None} == {torch.bfloat16}
    for f, e in zip(found[:3], expected[:3], strict=True):
        assert (f - e).abs().max() < 0.1 * e.abs().max()


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", VOTE_FREE)
def test_products_in_low_precision_are_near(name: str, low: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """What autocast does on devices other than CPUs."""
    layer, u = layer_and_children(name)
    expected = step(layer, u)
    monkeypatch.setattr(chunked_routing, "_precision", lambda u, weight: (torch.float32, low))
    assert_near(step(layer, u), expected)


@pytest.mark.parametrize(
    "name", ["dynamic", *(pytest.param(n, marks=pytest.mark.slow) for n in ("kmeans", "kuramoto"))]
)
def test_compiled_products_in_low_precision_are_near(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together these routings use every operation on votes; compiling takes long."""
    layer, u = layer_and_children(name)
    expected = step(layer, u)
    monkeypatch.setattr(chunked_routing, "_precision", lambda u, weight: (torch.float32, torch.bfloat16))
    torch._dynamo.reset()
    assert_near(step(torch.compile(layer, backend="aot_eager", fullgraph=True), u), expected)


def assert_near(found: list[Tensor], expected: list[Tensor]) -> None:
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == torch.float32
        assert (f - e).abs().max() < 0.05 * e.abs().max()


@pytest.mark.parametrize("name", VOTE_FREE)
def test_compiled_form_makes_no_votes(name: str) -> None:
    layer, u = layer_and_children(name)

    def route(votes: Tensor, weights: Tensor | None, params: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return layer.routing.route(votes, weights, None, params, False)[:2]

    with counted() as seen:
        pose, _ = route(LinearVotes(u, layer.weight), None, dict(layer.routing_params.items()))  # type: ignore[arg-type]
        pose.sum().backward()
    assert seen.largest < VOTES


@pytest.mark.parametrize("name", FORMS)
def test_second_derivatives_are_those_of_the_votes(name: str) -> None:
    small = DenseCaps(4, 3, 2, 2, name, dtype=torch.float64)
    u = torch.randn(5, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    seconds = []
    for path in ("plain", "fast"):
        with kernels.using(path):
            first = torch.autograd.grad(small(u).pose.square().sum(), u, create_graph=True)[0]
            seconds.append(torch.autograd.grad(first.square().sum(), [u, small.weight]))
    for plain, fast in zip(*seconds, strict=True):
        torch.testing.assert_close(fast, plain)


@pytest.mark.parametrize("name", FORMS)
def test_second_backward_pass_gives_the_same(name: str) -> None:
    layer, u = layer_and_children(name)
    loss = layer(u).pose.square().sum()
    first = torch.autograd.grad(loss, [u, layer.weight], retain_graph=True)
    for f, s in zip(first, torch.autograd.grad(loss, [u, layer.weight]), strict=True):
        torch.testing.assert_close(f, s)


@pytest.mark.parametrize("name", FORMS)
def test_frozen_weights_and_frozen_children_get_no_gradient(name: str) -> None:
    layer, u = layer_and_children(name)
    expected = torch.autograd.grad(layer(u).pose.sum(), [u, layer.weight])
    torch.testing.assert_close(torch.autograd.grad(layer(u.detach()).pose.sum(), layer.weight)[0], expected[1])
    layer.requires_grad_(False)
    torch.testing.assert_close(torch.autograd.grad(layer(u).pose.sum(), u)[0], expected[0])
    assert not layer(u.detach()).pose.requires_grad


@pytest.mark.parametrize("name", VOTE_FREE)
def test_inference_stores_less_than_a_step(name: str) -> None:
    layer, u = layer_and_children(name, B=64, I=288)
    with torch.no_grad():
        layer(u)  # makes the blocks that the layer keeps
        with counted() as seen:
            layer(u)
    couplings = 4 * 64 * 288 * J
    assert seen.peak + 2 * couplings < bytes_of_step(name, B=64, I=288).peak


def test_votes_act_as_a_tensor_where_they_must() -> None:
    layer, u = layer_and_children("uniform", B=3, I=5)
    weight, tensor = layer.weight.detach(), form_votes(u, layer.weight).detach()
    votes: Any = LinearVotes(u.detach(), weight)
    assert (votes.shape, votes.dtype, votes.ndim) == (tensor.shape, tensor.dtype, 4)
    pose, coupling = torch.randn(3, J, D), torch.rand(3, 5, J)
    torch.testing.assert_close(gather(coupling, votes), gather(coupling, tensor))
    torch.testing.assert_close(agree(votes, pose), agree(tensor, pose))
    torch.testing.assert_close(distance(votes, pose), distance(tensor, pose))
    assert votes.formed is None
    torch.testing.assert_close(votes - pose.unsqueeze(1), tensor - pose.unsqueeze(1))
    torch.testing.assert_close(pose.unsqueeze(1) - votes, pose.unsqueeze(1) - tensor)
    torch.testing.assert_close(torch.einsum("bijd->bjd", votes), tensor.sum(1))
    torch.testing.assert_close(votes.square().mean(), tensor.square().mean())
    assert votes.formed is not None


@dataclass(frozen=True, kw_only=True)
class _Seeing(Uniform):
    """Counts the kinds of votes that it got."""

    def route(
        self, votes: Any, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        seen.append(type(votes))
        return super().route(votes, weights, edges, params, trace)


seen: list[type] = []


def test_votes_are_made_for_few_examples_and_for_a_trace() -> None:
    for examples, trace, vote_free in ((1, False, False), (3, False, False), (4, False, True), (4, True, False)):
        seen.clear()
        layer, u = layer_and_children(_Seeing(), B=examples)
        layer(u, trace=trace)
        assert [issubclass(kind, Votes) for kind in seen] == [vote_free]


def test_level_logits_are_one_number() -> None:
    u, weight = torch.randn(2, 3, 2), torch.randn(3, 4, 5, 2)
    votes: Any = LinearVotes(u, weight)
    ones = level(votes, 1.0)
    assert ones.shape == (2, 3, 4)
    assert ones.untyped_storage().nbytes() == 4
    torch.testing.assert_close(gather(ones, votes), form_votes(u, weight).sum(1))


def test_distance_stays_exact_enough_for_long_votes() -> None:
    """It is multiplied out: the error is that of the squared length, and never negative."""
    u, weight = torch.randn(4, 6, 3), 30 * torch.randn(6, 5, 4, 3)
    votes: Any = LinearVotes(u, weight)
    tensor = form_votes(u, weight)
    pose = tensor.mean(1)
    for target in (pose, tensor[:, 0]):  # the second is some votes themselves
        found, expected = distance(votes, target), distance(tensor, target)
        assert (found >= 0).all()
        assert (found - expected).abs().max() <= 1e-5 * tensor.square().sum(-1).max()


@pytest.mark.parametrize("K", [2, 5], ids=["squares", "formed"])  # from products of coordinates, or from the votes
@pytest.mark.parametrize("backward", [True, False])
def test_votes_are_freed_after_a_step(K: int, backward: bool) -> None:
    """Squared lengths that the votes keep must not keep the votes: a training would fill the memory."""
    layer = DenseCaps(6, 3, K, 4, routing.get("kmeans"))
    before = _chunks()
    for _ in range(3):
        with kernels.using("fast"):
            pose = layer(torch.randn(2, 6, K, requires_grad=True)).pose
        if backward:
            pose.sum().backward()
        del pose
    gc.collect()
    assert _chunks() == before


def _chunks() -> int:
    return sum(type(one) is Chunk for one in gc.get_objects())


def test_detached_votes_live_until_the_backward_pass() -> None:
    layer = DenseCaps(6, 3, 5, 4, routing.get("dynamic", gradient="last"))
    u = torch.randn(2, 6, 5, requires_grad=True)
    with kernels.using("fast"):
        pose = layer(u).pose
    gc.collect()
    pose.sum().backward()
    with kernels.using("plain"):
        (expected,) = torch.autograd.grad(layer(u).pose.sum(), u)
    torch.testing.assert_close(u.grad, expected)
