"""Dynamic routing against Procedure 1 in plain loops, and against known bugs of re-implementations."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capsnet import routing
from capsnet.functional import squash
from capsnet.routing import Edges
from tests.reference import sabour2017 as reference

sizes = st.integers(1, 5)
seeds = st.integers(0, 2**31 - 1)


def random_votes(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(seeds, sizes, sizes, sizes, sizes, st.integers(1, 5), st.booleans(), st.booleans())
def test_dynamic_matches_procedure_1(
    seed: int, B: int, I: int, J: int, D: int, iterations: int, leaky: bool, bias: bool
) -> None:
    votes = random_votes(seed, B, I, J, D)
    shift = random_votes(seed + 1, J, D) if bias else None
    params = {} if shift is None else {"bias": shift}
    route = routing.get("dynamic", iterations=iterations, leaky=leaky, bias=bias)
    result = route(votes, params=params, trace=True)
    assert result.trace is not None
    for b in range(B):
        pose, couplings = reference.routing(
            votes[b].tolist(), iterations, leaky, None if shift is None else shift.tolist()
        )
        torch.testing.assert_close(result.pose[b], torch.tensor(pose, dtype=torch.float64), rtol=1e-10, atol=1e-12)
        expected = torch.tensor(couplings, dtype=torch.float64)
        torch.testing.assert_close(result.trace.couplings[:, b], expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(result.act, result.pose.norm(dim=-1))


@given(seeds, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_convolutional_form_matches_loops(seed: int, B: int, P: int, J: int, D: int, iterations: int) -> None:
    K = 3
    edges = torch.tensor([[p, p + 1, p + 2] for p in range(P)])  # overlapping: child p + 1 has up to three positions
    votes = random_votes(seed, B, P, K, J, D)
    result = routing.get("dynamic", iterations=iterations)(votes, edges=Edges(edges, P + 2))
    assert result.pose.shape == (B, P, J, D)
    assert result.act.shape == (B, P, J)
    for b in range(B):
        expected = reference.conv_routing(votes[b].tolist(), edges.tolist(), iterations)
        torch.testing.assert_close(result.pose[b], torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("leaky", [False, True])
def test_one_position_with_all_children_equals_dense_form(leaky: bool) -> None:
    votes, act = random_votes(0, 2, 6, 3, 4), random_votes(1, 2, 6).sigmoid()
    route = routing.get("dynamic", leaky=leaky)
    dense = route(votes, act)
    conv = route(votes[:, None], act, edges=Edges(torch.arange(6)[None], 6))
    torch.testing.assert_close(conv.pose[:, 0], dense.pose, rtol=1e-12, atol=1e-14)


def test_convolutional_couplings_sum_to_one_across_positions() -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    trace = routing.get("dynamic")(random_votes(0, 2, 2, 3, 4, 5), edges=Edges(edges, 4), trace=True).trace
    assert trace is not None
    per_child = torch.zeros(3, 2, 4, dtype=torch.float64)
    for p, k in ((p, k) for p in range(2) for k in range(3)):
        per_child[:, :, edges[p, k]] += trace.couplings[:, :, p, k].sum(-1)
    torch.testing.assert_close(per_child, torch.ones_like(per_child))


def test_couplings_sum_to_one_over_parents() -> None:
    trace = routing.get("dynamic", iterations=4)(random_votes(0, 3, 7, 5, 4), trace=True).trace
    assert trace is not None
    torch.testing.assert_close(trace.couplings.sum(dim=3), torch.ones(4, 3, 7, dtype=torch.float64))
    assert not torch.allclose(trace.couplings.sum(dim=2)[-1], trace.couplings.sum(dim=2)[-1].mean())


def test_leaky_couplings_sum_to_less_than_one() -> None:
    trace = routing.get("dynamic", leaky=True)(random_votes(0, 2, 7, 5, 4), trace=True).trace
    assert trace is not None
    torch.testing.assert_close(trace.couplings[0], torch.full((2, 7, 5), 1 / 6, dtype=torch.float64))
    assert (trace.couplings.sum(dim=3) < 1).all()


def test_iterations_change_result() -> None:
    votes = random_votes(0, 2, 20, 5, 4)
    results = [routing.get("dynamic", iterations=r)(votes).pose for r in range(1, 5)]
    assert all(not torch.allclose(a, b) for a, b in pairwise(results))
    trace = routing.get("dynamic", iterations=4)(votes, trace=True).trace
    assert trace is not None
    for r, pose in enumerate(results):
        torch.testing.assert_close(trace.poses[r], pose)


def test_agreeing_children_get_larger_couplings() -> None:
    """The children agree about parent 0 and not about parent 1: couplings must move to parent 0."""
    votes = torch.randn(1, 32, 2, 4)
    votes[:, :, 0] = torch.tensor([5.0, 0, 0, 0]) + 0.05 * votes[:, :, 0]
    trace = routing.get("dynamic", iterations=5)(votes, trace=True).trace
    assert trace is not None
    assert (trace.couplings[0] == 0.5).all()
    assert (trace.couplings[-1, 0, :, 0] > 0.95).all()


def test_example_is_independent_of_batch_and_earlier_calls() -> None:
    votes = torch.randn(4, 30, 5, 8)
    route = routing.get("dynamic")
    together = route(votes).pose
    alone = torch.cat([route(votes[b : b + 1]).pose for b in (3, 2, 1, 0)]).flip(0)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    assert torch.equal(together, route(votes).pose)


def test_order_of_children_does_not_matter() -> None:
    votes = torch.randn(2, 100, 5, 8)
    order = torch.randperm(100)
    route = routing.get("dynamic")
    torch.testing.assert_close(route(votes[:, order]).pose, route(votes).pose, rtol=0, atol=1e-5)


def test_mask_excludes_children() -> None:
    votes = random_votes(0, 2, 6, 3, 4)
    mask = torch.tensor([[True] * 4 + [False] * 2] * 2)
    spoilt = votes.clone()
    spoilt[:, 4:] = torch.nan
    route = routing.get("dynamic")
    torch.testing.assert_close(route(spoilt, mask=mask).pose, route(votes[:, :4]).pose)
    nobody = route(votes, mask=torch.zeros(2, 6, dtype=torch.bool)).pose
    assert (nobody == 0).all()


def test_activation_weighs_votes() -> None:
    votes = random_votes(0, 1, 4, 2, 3)
    route = routing.get("dynamic", iterations=1)
    act = torch.tensor([[1.0, 0.5, 0.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(route(votes, act).pose, route(votes * act[:, :, None, None]).pose)


@pytest.mark.parametrize("options", [{}, {"leaky": True}, {"bias": True}, {"iterations": 1}])
def test_gradients_pass_gradcheck(options: dict) -> None:
    votes = random_votes(0, 2, 4, 3, 2).requires_grad_()
    params = {"bias": random_votes(1, 3, 2).requires_grad_()} if "bias" in options else {}
    route = routing.get("dynamic", **options)
    assert torch.autograd.gradcheck(lambda v: route(v, params=params).pose, votes)


def test_convolutional_gradients_pass_gradcheck() -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    votes = random_votes(0, 2, 2, 2, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: routing.get("dynamic")(v, edges=Edges(edges, 3)).pose, votes)


def test_gradient_last_treats_couplings_as_constants() -> None:
    """``last`` has the same value, and the gradient of a weighted sum whose couplings are constants."""
    votes = random_votes(0, 2, 6, 3, 4).requires_grad_()
    everything, last = routing.get("dynamic"), routing.get("dynamic", gradient="last")
    torch.testing.assert_close(everything(votes).pose, last(votes).pose)
    trace = everything(votes, trace=True).trace
    assert trace is not None
    constant = trace.couplings[-1].detach()
    by_hand = torch.autograd.grad(squash(torch.einsum("bij,bijd->bjd", constant, votes)).square().sum(), votes)[0]
    torch.testing.assert_close(torch.autograd.grad(last(votes).pose.square().sum(), votes)[0], by_hand)
    assert not torch.allclose(torch.autograd.grad(everything(votes).pose.square().sum(), votes)[0], by_hand)


def test_zero_votes_give_zero_parents_and_finite_gradients() -> None:
    votes = torch.zeros(2, 5, 3, 4, requires_grad=True)
    pose, act, _ = routing.get("dynamic")(votes)
    assert (pose == 0).all()
    (pose.sum() + act.sum()).backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e4, 1e-4])
def test_huge_and_tiny_votes_stay_finite(scale: float) -> None:
    votes = (scale * torch.randn(2, 50, 3, 4)).requires_grad_()
    pose = routing.get("dynamic", iterations=5)(votes).pose
    pose.sum().backward()
    assert votes.grad is not None
    assert pose.isfinite().all()
    assert votes.grad.isfinite().all()


def test_bfloat16_stays_finite() -> None:
    assert routing.get("dynamic")(torch.randn(2, 50, 3, 4).bfloat16()).pose.isfinite().all()


def test_dynamic_compiles_as_one_graph() -> None:
    route = routing.get("dynamic")
    votes = torch.randn(2, 7, 3, 4)
    compiled = torch.compile(lambda v: route(v).pose, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(votes), route(votes).pose)


def test_trace_is_returned_on_request_only() -> None:
    route = routing.get("dynamic")
    before = dict(vars(route))
    assert route(torch.randn(1, 2, 3, 4)).trace is None
    trace = route(torch.randn(1, 2, 3, 4), trace=True).trace
    assert trace is not None
    assert [tuple(t.shape) for t in trace[:3]] == [(3, 1, 2, 3), (3, 1, 2, 3), (3, 1, 3, 4)]
    assert vars(route) == before
