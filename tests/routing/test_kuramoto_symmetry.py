"""What Kuramoto routing must not depend on: the order of the parents, the frame of the poses; and silent votes."""

import math

import pytest
import torch
from torch import Tensor

from capsnet import routing
from capsnet.routing import Routed

B, I, J, D = 2, 7, 4, 5


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def route(votes: Tensor) -> Routed:
    return routing.get("kuramoto", iterations=4)(votes, trace=True)


def test_parents_may_come_in_any_order() -> None:
    """Corners of a simplex are all alike: exchanging parents exchanges their couplings and poses."""
    votes, turn = normal(0, B, I, J, D), torch.tensor([2, 0, 3, 1])
    plain, turned = route(votes), route(votes[:, :, turn])
    torch.testing.assert_close(turned.pose, plain.pose[:, turn], atol=1e-12, rtol=0)
    assert plain.trace is not None
    assert turned.trace is not None
    torch.testing.assert_close(turned.trace.couplings, plain.trace.couplings[..., turn], atol=1e-12, rtol=0)


def test_poses_turn_with_the_votes() -> None:
    votes, (turn, _) = normal(0, B, I, J, D), torch.linalg.qr(normal(1, D, D))
    plain, turned = route(votes), route(votes @ turn.T)
    torch.testing.assert_close(turned.pose, plain.pose @ turn.T, atol=1e-12, rtol=0)
    torch.testing.assert_close(turned.act, plain.act, atol=1e-12, rtol=0)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-200])
def test_silent_votes_are_finite_and_equally_coupled(scale: float) -> None:
    votes = (scale * normal(0, B, I, J, D)).requires_grad_()
    routed = route(votes)
    assert routed.trace is not None
    sums = routed.trace.couplings.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    if scale == 0:
        torch.testing.assert_close(routed.trace.couplings, torch.full_like(routed.trace.couplings, 1 / J))
    routed.pose.sum().backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("beta", [math.nan, math.inf, -1.0])
def test_beta_that_is_not_finite_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match="beta must be at least 0 and finite"):
        routing.get("kuramoto", beta=beta)
