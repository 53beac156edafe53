"""Kuramoto routing against a loop over single capsules, and what it must not depend on."""

import math

import pytest
import torch
from torch import Tensor

from capsnet import routing
from capsnet.routing import Edges, Trace
from capsnet.routing.kuramoto import Kuramoto
from tests.reference.synchrony import Iteration, kuramoto_routing

I, J, D = 6, 4, 5


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_equal(trace: Trace | None, expected: list[Iteration], dense: bool) -> None:
    """Couplings and phases of every iteration, of the one example of the trace."""
    assert trace is not None
    assert trace.phases is not None
    couplings, children, parents = (torch.stack(column) for column in zip(*expected, strict=True))
    if dense:
        couplings, parents = couplings[:, 0], parents[:, 0]  # of the one position
    found = trace.couplings, trace.phases.children, trace.phases.parents
    for values, wanted in zip(found, (couplings, children, parents), strict=True):
        torch.testing.assert_close(values[:, 0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_couplings_and_phases_equal_reference_loop(iterations: int, normalise: bool) -> None:
    votes, w = normal(0, I, J, D), normal(1, I).sigmoid()
    options = {"beta": 3.0, "gain": 0.7, "gamma": 0.8, "repel": 0.4, "normalise": normalise}
    trace = routing.get("kuramoto", iterations=iterations, **options)(votes[None], w[None], trace=True).trace
    assert_equal(trace, kuramoto_routing(votes[None], w, torch.arange(I)[None], iterations, **options), dense=True)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_convolutional_couplings_and_phases_equal_reference_loop(iterations: int, normalise: bool) -> None:
    """Overlapping fields: children that one, two and three positions see."""
    index = torch.tensor([[0, 1, 2], [1, 2, 3], [2, 3, 5], [4, 5, 0]])
    votes, w = normal(0, *index.shape, J, D), normal(1, I).sigmoid()
    options = {"beta": 3.0, "gain": 0.7, "gamma": 0.8, "repel": 0.4, "normalise": normalise}
    route = routing.get("kuramoto", iterations=iterations, **options)
    trace = route(votes[None], w[None], edges=Edges(index, I), trace=True).trace
    assert_equal(trace, kuramoto_routing(votes, w, index, iterations, **options), dense=False)


def test_phases_of_the_trace_are_unit_vectors() -> None:
    trace = routing.get("kuramoto", iterations=4)(normal(0, 2, I, J, D), trace=True).trace
    assert trace is not None
    assert trace.phases is not None
    children, parents = trace.phases
    assert children.shape == (4, 2, I, 3)
    assert parents.shape == (4, 2, J, 3)
    assert (children[0] == 0).all(), "silent at first"
    assert (children[1:].norm(dim=-1) - 1).abs().max() < 1e-6
    assert (parents.norm(dim=-1) - 1).abs().max() < 1e-6


def couplings(votes: Tensor, **options: float) -> Tensor:
    trace = routing.get("kuramoto", **options)(votes, trace=True).trace
    assert trace is not None
    return trace.couplings


def test_couplings_do_not_depend_on_the_rotation_of_poses() -> None:
    votes, (turn, _) = normal(0, 2, I, J, D), torch.linalg.qr(normal(1, D, D))
    torch.testing.assert_close(couplings(votes @ turn.T), couplings(votes))


def test_couplings_hardly_depend_on_the_scale_of_small_votes() -> None:
    """Squash turns small sums by a factor only, so that the ratios of agreements stay."""
    votes = 1e-3 * normal(0, 2, I, J, D)
    torch.testing.assert_close(couplings(1e-3 * votes), couplings(votes), atol=1e-4, rtol=0)
    assert couplings(votes)[-1].amax(dim=-1).mean() > 0.5  # dynamic routing's are 1 / J there


@pytest.mark.parametrize("scale", [1e-5, 1e-10, 1e-15, 1e-20, 1e-30, 1e-38, 0.0])
@pytest.mark.parametrize("normalise", [False, True])
def test_gradients_of_faint_children_are_finite(scale: float, normalise: bool) -> None:
    """Ratios of their agreements cannot be told from rounding: they are silent, in float32 as in training."""
    votes = normal(0, 2, I, J, D).float()
    votes[:, ::2] *= scale
    votes.requires_grad_()
    trace = routing.get("kuramoto", normalise=normalise)(votes, trace=True).trace
    assert trace is not None
    trace.couplings[-1].log().mean().backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_decides_as_single_does(dtype: torch.dtype) -> None:
    votes = (0.03 * normal(0, 2, I, J, D)).to(dtype)
    half, single = (routing.get("kuramoto", iterations=4)(v, trace=True) for v in (votes, votes.float()))
    assert half.trace is not None
    assert single.trace is not None
    assert half.trace.phases is not None
    assert {half.pose.dtype, half.trace.couplings.dtype, half.trace.phases.children.dtype} == {dtype}
    assert single.trace.couplings[-1].amax(dim=-1).mean() > 0.4
    torch.testing.assert_close(half.trace.couplings.float(), single.trace.couplings, atol=5e-3, rtol=0)


@pytest.mark.parametrize("parents", [1, 2])
def test_one_and_two_parents_are_routed(parents: int) -> None:
    votes = normal(0, 3, I, parents, D).requires_grad_()
    routed = routing.get("kuramoto", iterations=5)(votes, trace=True)
    assert routed.trace is not None
    torch.testing.assert_close(routed.trace.couplings.sum(-1), torch.ones(5, 3, I, dtype=torch.float64))
    routed.pose.sum().backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("edges", [None, Edges(torch.arange(I)[None], I)], ids=["dense", "convolutional"])
def test_no_parents_are_refused(edges: Edges | None) -> None:
    votes = torch.rand(2, I, 0, D)
    with pytest.raises(ValueError, match="kuramoto routing needs at least 1 parent, got votes of shape"):
        routing.get("kuramoto")(votes if edges is None else votes[:, None], edges=edges)


def test_equal_votes_for_all_parents_leave_children_silent() -> None:
    votes = normal(0, 2, I, 1, D).expand(2, I, J, D).clone().requires_grad_()
    routed = routing.get("kuramoto")(votes, trace=True)
    assert routed.trace is not None
    torch.testing.assert_close(routed.trace.couplings, torch.full_like(routed.trace.couplings, 1 / J))
    routed.pose.sum().backward()
    assert votes.grad is not None
    assert votes.grad.abs().max() < 1e3


def test_child_has_one_phase_for_all_positions() -> None:
    """Two positions that see the same children pull as one with both positions' parents."""
    edges = Edges(torch.tensor([[0, 1, 2], [0, 1, 2]]), 3)
    votes = normal(0, 1, 1, 3, J, D).expand(1, 2, 3, J, D)
    trace = routing.get("kuramoto")(votes, edges=edges, trace=True).trace
    assert trace is not None
    alone = couplings(votes[:, 0])
    torch.testing.assert_close(trace.couplings[:, :, 0], trace.couplings[:, :, 1])
    assert trace.phases is not None
    assert trace.phases.children.shape == (3, 1, 3, 3)
    torch.testing.assert_close(2 * trace.couplings[0, :, 0], alone[0])


def test_beta_can_be_learned() -> None:
    route = routing.get("kuramoto", learn_beta=True, beta=0.0)
    votes = normal(0, 2, I, J, D)
    assert route.param_shapes(I, J, D) == {"beta": (1,)}
    beta = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    routed = route(votes, params={"beta": beta})
    torch.testing.assert_close(routed.pose, routing.get("kuramoto", beta=4.0)(votes).pose)
    routed.pose.square().sum().backward()
    assert beta.grad is not None
    assert beta.grad.abs() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, "gamma must be positive and finite"),
        ({"gain": -1.0}, "gain must be positive"),
        ({"beta": math.inf}, "beta must be at least 0 and finite"),
        ({"repel": -0.1}, "repel must be at least 0"),
        ({"iterations": 0}, "iterations must be"),
        ({"gamma": "a"}, "gamma must be positive and finite, got 'a'"),
        ({"beta": None}, "beta must be at least 0 and finite, got None"),
        ({"grow": None}, "grow is a share of training, from 0 to 1, got None"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kuramoto(**options)


def test_beta_grows_over_a_share_of_training() -> None:
    constant, growing = routing.get("kuramoto", grow=0.0), routing.get("kuramoto", beta=3.0)
    assert constant.at(0.0) is constant
    assert [growing.at(progress).options()["beta"] for progress in (0.0, 0.25, 0.5, 1.0)] == [0.0, 1.5, 3.0, 3.0]
    assert growing.at(0.75) is growing
    trace = growing.at(0.0)(normal(0, 2, I, J, D), trace=True).trace
    assert trace is not None
    assert (trace.couplings - 1 / J).abs().max() < 1e-12
    for share in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match="grow is a share of training, from 0 to 1"):
            routing.get("kuramoto", grow=share)
