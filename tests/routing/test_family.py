"""Each routing against its equations in plain loops, and its theoretical properties."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from capsnet import kernels, routing
from capsnet.routing import Edges
from tests.reference import mixtures, onepass
from tests.routing.suite import normal

seeds, sizes = st.integers(0, 2**31 - 1), st.integers(1, 5)


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(a: torch.Tensor, b: object, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, tensor(b), rtol=tolerance, atol=tolerance)


def example(seed: int, I: int, J: int, D: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(seed, 1, I, J, D), 0.1 + normal(seed + 1, 1, I).sigmoid()


@given(
    seeds, sizes, sizes, sizes, st.integers(1, 4), st.sampled_from(["euclidean", "inner"]), st.sampled_from([0.5, 2.0])
)
def test_kmeans_matches_loops(
    seed: int, I: int, J: int, D: int, iterations: int, distance: str, temperature: float
) -> None:
    votes, act = example(seed, I, J, D)
    route = routing.get("kmeans", iterations=iterations, distance=distance, temperature=temperature)
    result = route(votes, act, trace=True)
    poses, couplings, _ = mixtures.kmeans(votes[0].tolist(), act[0].tolist(), iterations, distance, temperature)
    close(result.pose[0], poses)
    assert result.trace is not None
    close(result.trace.couplings[:, 0], couplings)


def smooth_objective(votes: Tensor, centre: Tensor, temperature: float) -> Tensor:
    """F of the Euclidean form, for each example: (B, I, J, D), (B, J, D) -> (B,)."""
    distance = (votes - centre.unsqueeze(-3)).square().sum(dim=-1)
    return -temperature * torch.logsumexp(-distance / temperature, dim=-1).sum(dim=-1)


@given(seeds, st.integers(2, 12), sizes, sizes, st.sampled_from([0.2, 1.0, 5.0]))
def test_euclidean_kmeans_lowers_objective_at_every_iteration(
    seed: int, I: int, J: int, D: int, temperature: float
) -> None:
    votes = 3 * normal(seed, 1, I, J, D)
    route = routing.get("kmeans", iterations=8, temperature=temperature)
    trace = route(votes, trace=True).trace
    assert trace is not None
    ours = [route.centre(coupling, votes) for coupling in trace.couplings]  # type: ignore[attr-defined]
    values = [float(smooth_objective(votes, centre, temperature)) for centre in ours]
    assert all(after <= before + 1e-9 * (1 + abs(before)) for before, after in pairwise(values))


def test_cold_kmeans_has_hard_couplings() -> None:
    votes, _ = example(0, 30, 3, 2)
    trace = routing.get("kmeans", iterations=3, temperature=1e-6)(votes, trace=True).trace
    assert trace is not None
    assert ((trace.couplings[-1] < 1e-6) | (trace.couplings[-1] > 1 - 1e-6)).all()


@given(seeds, st.integers(2, 5), sizes, sizes, st.integers(1, 4))
def test_em_matches_matrix_capsules_procedure(seed: int, I: int, J: int, D: int, iterations: int) -> None:
    votes, act = example(seed, I, J, D)
    params = {"use_cost": normal(seed + 2, J), "act_cost": normal(seed + 3, J)}
    route = routing.get("em", iterations=iterations, inverse_temperature=0.5, min_variance=0.01)
    result = route(votes, act, params=params, trace=True)
    means, activations, posteriors = mixtures.em_diagonal(
        votes[0].tolist(),
        act[0].tolist(),
        iterations,
        0.5,
        0.01,
        *(params[k].tolist() for k in ("use_cost", "act_cost")),
    )
    close(result.pose[0], means)
    close(result.act[0], activations)
    assert result.trace is not None
    close(result.trace.couplings[:, 0], posteriors)


@given(seeds, st.integers(2, 6), sizes, st.integers(1, 3), st.integers(1, 4))
def test_em_with_full_covariance_matches_loops(seed: int, I: int, J: int, D: int, iterations: int) -> None:
    votes, act = example(seed, I, J, D)
    result = routing.get("em", covariance="full", iterations=iterations, min_variance=0.05)(votes, act, trace=True)
    means, mixing, posteriors, _ = mixtures.em_full(votes[0].tolist(), act[0].tolist(), iterations, 0.05)
    close(result.pose[0], means, 1e-7)
    close(result.act[0], mixing, 1e-7)
    assert result.trace is not None
    close(result.trace.couplings[:, 0], posteriors, 1e-7)


@given(seeds, st.integers(6, 25), st.integers(2, 4), st.integers(1, 3), st.sampled_from([1e-9, 0.1]))
def test_mixture_log_likelihood_never_decreases(seed: int, I: int, J: int, D: int, blur: float) -> None:
    """In float64. With almost no blur it is the likelihood of the votes."""
    votes = 2 * normal(seed, 1, I, J, D)
    route = routing.get("em", covariance="full", iterations=10, min_variance=blur)
    trace = route(votes, trace=True).trace
    assert trace is not None
    values = trace.logits[1:].logsumexp(dim=-1).sum(dim=(1, 2)).tolist()  # of the parameters of iterations 1 to 9
    _, _, _, by_hand = mixtures.em_full(votes[0].tolist(), [1.0] * I, 4, blur)
    assert values[:4] == pytest.approx(by_hand, rel=1e-6, abs=1e-6)
    assert all(after >= before - 1e-8 * (1 + abs(before)) for before, after in pairwise(values))


def test_em_child_activation_does_not_cancel() -> None:
    """A parent's mean follows the present children; scaling *all* activations changes how active the parents are."""
    votes = normal(0, 1, 6, 2, 3)
    some = torch.tensor([[1.0, 1, 1, 0.01, 0.01, 0.01]], dtype=torch.float64)
    route = routing.get("em", iterations=1, inverse_temperature=1.0)
    first = votes[:, :3].mean(dim=1)
    assert (route(votes, some).pose - first).norm() < 0.1
    assert not torch.allclose(route(votes, some).act, route(votes, 0.5 * some).act)


def test_em_posterior_is_normalised_over_all_positions() -> None:
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    for covariance in ("diagonal", "full"):
        trace = routing.get("em", covariance=covariance)(
            normal(0, 2, 2, 3, 4, 5), edges=Edges(edges, 4), trace=True
        ).trace
        assert trace is not None
        per_child = torch.zeros(3, 2, 4, dtype=torch.float64)
        for p, k in ((p, k) for p in range(2) for k in range(3)):
            per_child[:, :, edges[p, k]] += trace.couplings[:, :, p, k].sum(-1)
        torch.testing.assert_close(per_child, torch.ones_like(per_child))


@given(seeds, sizes, sizes, sizes)
def test_self_attention_matches_loops(seed: int, I: int, J: int, D: int) -> None:
    votes, act = example(seed, I, J, D)
    prior = normal(seed + 2, I, J)
    result = routing.get("self-attention")(votes, act, params={"prior": prior}, trace=True)
    poses, couplings = onepass.self_attention(votes[0].tolist(), act[0].tolist(), prior.tolist())
    close(result.pose[0], poses)
    assert result.trace is not None
    close(result.trace.couplings[0, 0], couplings)


@given(seeds, sizes, sizes, sizes, st.integers(1, 4))
def test_attention_uniform_and_fixed_point_match_loops(seed: int, I: int, J: int, D: int, iterations: int) -> None:
    votes, act = example(seed, I, J, D)
    lists = votes[0].tolist(), act[0].tolist()
    result = routing.get("attention", iterations=iterations)(votes, act, trace=True)
    poses, attentions = onepass.attention(*lists, iterations)
    close(result.pose[0], poses)
    assert result.trace is not None
    close(result.trace.couplings[:, 0], attentions)
    close(routing.get("uniform")(votes, act).pose[0], onepass.uniform(*lists))
    fixed = routing.get("dynamic", update="set", iterations=iterations)(votes, act)
    close(fixed.pose[0], onepass.fixed_point(*lists, iterations))


def test_uniform_equals_dynamic_with_one_iteration() -> None:
    votes = normal(0, 2, 6, 3, 4)
    torch.testing.assert_close(
        routing.get("uniform")(votes).pose, routing.get("dynamic", iterations=1)(votes).pose, rtol=1e-12, atol=1e-14
    )


def test_fixed_point_converges() -> None:
    """Logits that are set to the agreement converge; added up, they grow without bound."""
    votes = 0.5 * normal(0, 1, 10, 3, 4)
    many, more = (routing.get("dynamic", update="set", iterations=r)(votes).pose for r in (60, 61))
    torch.testing.assert_close(many, more, rtol=1e-8, atol=1e-8)
    grown = routing.get("dynamic", iterations=60)(votes, trace=True).trace
    assert grown is not None
    assert grown.logits[-1].abs().max() > 5 * grown.logits[10].abs().max()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "kmeans",
            {"distance": "cosine"},
            "option distance of kmeans routing must be 'euclidean' or 'inner', got 'cosine'",
        ),
        ("kmeans", {"temperature": 0.0}, "temperature must be positive and finite"),
        ("em", {"covariance": "spherical"}, "option covariance of em routing must be 'diagonal' or 'full'"),
        ("em", {"min_variance": 0.0}, "min_variance must be positive"),
        ("em", {"iterations": 0}, "iterations must be a whole number from 1 to 1000, got 0"),
        ("attention", {"iterations": 1.5}, "option iterations of attention routing must be a valid integer, got 1.5"),
        (
            "em",
            {"inverse_temperature": "a"},
            "option inverse_temperature of em routing must be a valid number, got 'a'",
        ),
        ("dynamic", {"bias": "maybe"}, "option bias of dynamic routing must be a valid boolean, got 'maybe'"),
        ("dynamic", {"update": "replace"}, "option update of dynamic routing must be 'add' or 'set'"),
        ("uniform", {"squash": "softmax"}, "unknown squash 'softmax'"),
        ("self-attention", {"squash": "power:0.5"}, "a squash's power must lie between 1 and 8"),
        ("uniform", {"iterations": 3}, "unknown option of uniform routing 'iterations'"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        routing.get(name, **options)


@pytest.mark.parametrize("spread", [0.02, 1.0, 100.0])
@pytest.mark.parametrize("away", [0.0, 50.0])
def test_em_is_accurate_in_single_precision(spread: float, away: float) -> None:
    """Subtracting squares loses digits: a variance may lose some, a mean may not."""
    votes = spread * torch.randn(4, 40, 3, 8, dtype=torch.float64) + away
    act = torch.rand(4, 40, dtype=torch.float64)
    route = routing.get("em", inverse_temperature=0.1, start_cost=-math.log(spread))
    exact, single = route(votes, act, trace=True), route(votes.float(), act.float(), trace=True)
    assert exact.trace is not None
    assert single.trace is not None
    torch.testing.assert_close(single.pose.double(), exact.pose, rtol=1e-4, atol=1e-4 * spread)
    torch.testing.assert_close(single.act.double(), exact.act, rtol=0, atol=1e-3)
    torch.testing.assert_close(single.trace.couplings.double(), exact.trace.couplings, rtol=0, atol=2e-3)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_em_ignores_autocast(covariance: str) -> None:
    """Variances are differences of nearly equal numbers, for which half precision is not enough."""
    route = routing.get("em", covariance=covariance)
    votes, act = normal(0, 2, 20, 3, 4, dtype=torch.float32), normal(1, 2, 20, dtype=torch.float32).sigmoid()
    expected = route(votes, act)
    with torch.autocast("cpu", torch.bfloat16):
        routed = route(votes, act)
    assert torch.equal(routed.pose, expected.pose)
    assert torch.equal(routed.act, expected.act)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_full_covariance_of_few_children_has_a_factor(scale: float) -> None:
    """Fewer children than dimensions: without a blur that grows with the votes rounding errors decide."""
    votes = (scale * normal(0, 4, 3, 2, 8)).float().requires_grad_()
    pose, act, _ = routing.get("em", covariance="full", iterations=5)(votes)
    assert pose.isfinite().all()
    torch.testing.assert_close(act.sum(dim=-1), torch.ones(4))
    (pose / scale).square().sum().backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name in routing.list_forms() if name.startswith(("em", "variational"))])
@pytest.mark.parametrize("path", ["plain", "fast"])
def test_parent_without_votes_is_absent(name: str, path: Any) -> None:
    """Of two positions, only children of absent examples or of presence zero: not even half present."""
    votes, act = normal(0, 2, 5, 3, 4), torch.tensor([[1.0] * 5, [0.0] * 5], dtype=torch.float64)
    with kernels.using(path):
        routed = routing.get(name)(votes, act)
    assert (routed.act[0] > 0).all()
    assert (routed.act[1] == 0).all()
    assert (routed.pose[1] == 0).all()
