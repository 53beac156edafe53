"""Shared capsules: one matrix per parent, any number of children, masked padding."""

import dataclasses

import pytest
import torch

from capsnet.layers import SharedCaps
from capsnet.routing import Dynamic, get, list_routings


@pytest.mark.parametrize(("B", "I"), [(1, 1), (3, 5), (2, 17)])
def test_shared_votes_are_parent_matrix_times_child(B: int, I: int) -> None:
    layer = SharedCaps(3, child_dim=4, parent_dim=6)
    assert layer.weight.shape == (3, 6, 4)
    u = torch.randn(B, I, 4)
    votes = layer.votes(u)
    assert votes.shape == (B, I, 3, 6)
    for b in range(B):
        for i in range(I):
            for j in range(3):
                torch.testing.assert_close(votes[b, i, j], layer.weight[j] @ u[b, i])


@pytest.mark.parametrize("name", list_routings())
def test_order_of_children_does_not_matter(name: str) -> None:
    layer = SharedCaps(3, child_dim=4, parent_dim=6, routing=name)
    u, act = torch.randn(2, 7, 4), torch.rand(2, 7)
    order = torch.randperm(7)
    torch.testing.assert_close(layer(u[:, order], act[:, order]).pose, layer(u, act).pose, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list_routings())
@pytest.mark.parametrize("with_act", [False, True])
def test_mask_excludes_children(name: str, with_act: bool) -> None:
    """Examples of 4, 1 and 0 children in one batch, padded with NaN, give the same as each of them alone."""
    layer = SharedCaps(3, child_dim=4, parent_dim=6, routing=name)
    counts = (4, 1, 0)
    u, act = torch.full((3, 5, 4), torch.nan), torch.full((3, 5), torch.nan)
    for b, n in enumerate(counts):
        u[b, :n], act[b, :n] = torch.randn(n, 4), torch.rand(n)
    mask = torch.arange(5) < torch.tensor(counts)[:, None]
    together = layer(u, act if with_act else None, mask=mask)
    for b, n in enumerate(counts):
        alone = layer(u[b : b + 1, :n], act[b : b + 1, :n] if with_act else None)
        torch.testing.assert_close(together.pose[b : b + 1], alone.pose, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together.act[b : b + 1], alone.act, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list_routings())
@pytest.mark.parametrize("I", [0, 3])
def test_examples_without_children_give_zero_parents(name: str, I: int) -> None:
    layer = SharedCaps(2, child_dim=4, parent_dim=6, routing=name)
    u = torch.randn(2, I, 4, requires_grad=True)
    mask = torch.tensor([[False] * I, [True] * I])
    for act in (None, torch.rand(2, I)):
        routed = layer(u, act, mask=mask, trace=True)
        assert torch.equal(routed.pose[0], torch.zeros(2, 6))
        assert torch.equal(routed.act[0], torch.zeros(2))
        assert routed.trace is not None
        assert routed.trace.couplings.shape[1:] == (2, I, 2)
        (routed.pose.sum() + routed.act.sum()).backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.isfinite().all()
    assert u.grad is not None
    assert u.grad.isfinite().all()
    assert not u.grad[0].any()


def test_batch_without_children_gives_zero_parents() -> None:
    pose, act, trace = SharedCaps(2, child_dim=4, parent_dim=6)(torch.zeros(3, 0, 4))
    assert torch.equal(pose, torch.zeros(3, 2, 6))
    assert torch.equal(act, torch.zeros(3, 2))
    assert trace is None


def test_learned_tensors_per_child_are_left_out() -> None:
    assert dict(SharedCaps(3, routing="em").routing_params.items()).keys() == {"use_cost", "act_cost"}
    assert "prior" in get("self-attention").param_shapes(5, 3, 6)
    assert not SharedCaps(3, routing="self-attention").routing_params
    layer = SharedCaps(3, 4, 6, routing=get("dynamic", bias=True))
    assert layer.routing_params["bias"].shape == (3, 6)
    before = layer(u := torch.randn(2, 5, 4)).pose
    torch.nn.init.ones_(layer.routing_params["bias"])
    assert not torch.allclose(layer(u).pose, before)


def test_learned_tensors_start_at_param_init() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Biased(Dynamic):
        bias: bool = True

        def param_init(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
            return torch.full(shape, 0.5)

    layer = SharedCaps(3, 4, 6, routing=Biased())
    assert torch.equal(layer.routing_params["bias"], torch.full((3, 6), 0.5))
    torch.nn.init.zeros_(layer.routing_params["bias"])
    layer.reset_parameters()
    assert torch.equal(layer.routing_params["bias"], torch.full((3, 6), 0.5))


def test_gradients_with_mask_pass_gradcheck() -> None:
    layer = SharedCaps(2, child_dim=3, parent_dim=2).double()
    u = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    weight = torch.randn_like(layer.weight).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda u, w: torch.func.functional_call(layer, {"weight": w}, (u,), {"mask": mask}).pose, (u, weight)
    )


@pytest.mark.parametrize("name", ["dynamic", "em"])
def test_layer_with_mask_compiles(name: str) -> None:
    layer = SharedCaps(3, child_dim=4, parent_dim=6, routing=name)
    u, mask = torch.randn(2, 5, 4), torch.rand(2, 5) > 0.3
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(u, mask=mask).pose, layer(u, mask=mask).pose)


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected children of shape \(B, I, 8\), got \(2, 5, 4\)"):
        SharedCaps(3)(torch.randn(2, 5, 4))
    with pytest.raises(ValueError, match=r"mask must have shape \(B, I\) = \(2, 5\), got \(2, 4\)"):
        SharedCaps(3)(torch.randn(2, 5, 8), mask=torch.ones(2, 4))
