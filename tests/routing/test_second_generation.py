"""Inverted attention and variational Bayes against loops that follow the papers' equations."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from capsnet import routing
from tests.reference import inverted
from tests.reference.variational import lower_bound, variational_bayes

I, J, D = 6, 3, 4


def votes_and_act(seed: int, children: int = I) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    votes = 1.5 * torch.randn(children, J, D, dtype=torch.float64, generator=generator)
    return votes, torch.rand(children, dtype=torch.float64, generator=generator)


def tensor(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_inverted_attention_equals_reference_loop(iterations: int) -> None:
    votes, act = votes_and_act(0)
    params = {
        name: 0.3 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(name)))
        for name, shape in routing.get("inverted-attention").param_shapes(I, J, D).items()
    }
    pairs = [(i, j, votes[i, j].tolist()) for i in range(I) for j in range(J)]
    lists = {name: value.tolist() for name, value in params.items()}
    expected = inverted.sequential(pairs, act.tolist(), lists, J, iterations)
    route = routing.get("inverted-attention", iterations=iterations)
    routed = route(votes[None], act[None], params=params, trace=True)
    assert routed.trace is not None
    torch.testing.assert_close(routed.pose[0], tensor(expected[-1].poses))
    torch.testing.assert_close(routed.act[0], tensor(expected[-1].act))
    couplings = tensor([result.couplings for result in expected]).reshape(iterations, I, J)
    torch.testing.assert_close(routed.trace.couplings[:, 0], couplings)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_variational_bayes_equals_reference_loop(covariance: str, iterations: int) -> None:
    votes, act = votes_and_act(1)
    options = {"concentration": 0.7, "strength": 2.0}
    scale, offset = tensor([0.1, -0.2, 0.3]), tensor([0.5, 0.0, -0.5])
    parents, log_pi, coupling = variational_bayes(votes, act, iterations, diagonal=covariance == "diagonal", **options)
    route = routing.get("variational-bayes", iterations=iterations, covariance=covariance, **options)
    routed = route(votes[None], act[None], params={"scale": scale, "offset": offset}, trace=True)
    assert routed.trace is not None
    torch.testing.assert_close(routed.trace.couplings[-1, 0], coupling)
    for j, parent in enumerate(parents):
        torch.testing.assert_close(routed.pose[0, j], parent.m)
        entropy = 0.5 * (D * math.log(2 * math.pi * math.e) - parent.log_precision)
        presence = torch.sigmoid((1 + scale[j]) * (offset[j] - math.exp(log_pi[j]) * entropy))
        torch.testing.assert_close(routed.act[0, j], presence)


def test_iterations_never_lower_the_lower_bound_of_the_full_form() -> None:
    for seed in range(3):
        votes, act = votes_and_act(seed, children=20)
        route = routing.get("variational-bayes", iterations=8, covariance="full")
        trace = route(votes[None], act[None], trace=True).trace
        assert trace is not None
        bounds = [lower_bound(votes, coupling[0], act) for coupling in trace.couplings]
        gains = [after - before for before, after in pairwise(bounds)]
        assert min(gains) > -1e-6
        assert max(gains) > 1e-3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("inverted-attention", {"iterations": 0}, "iterations must be"),
        ("variational-bayes", {"covariance": "round"}, "covariance.* must be"),
        ("variational-bayes", {"strength": 0.0}, "strength must be positive"),
        ("variational-bayes", {"concentration": float("nan")}, "concentration must be positive"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        routing.get(name, **options)
