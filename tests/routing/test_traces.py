"""What a trace says, by hand."""

import math

import torch

from capsnet import routing
from capsnet.routing import divided, undecided


def test_undecided_is_the_entropy_over_what_couplings_sum_to_one_over() -> None:
    logits = torch.zeros(1, 2, 3)
    of_children = torch.tensor([[[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]])  # one decided child, one undecided
    torch.testing.assert_close(undecided(of_children, logits, "parents"), torch.tensor([0.5]))
    of_parents = torch.tensor([[[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]]])  # two decided parents, one undecided
    torch.testing.assert_close(undecided(of_parents, logits, "children"), torch.tensor([1 / 3]))
    logits[0, 0, 0] = math.inf  # a learned prior hides that the first child has decided
    torch.testing.assert_close(undecided(torch.full((1, 2, 3), 0.7), logits.nan_to_num(), "none"), torch.tensor([0.5]))


def test_children_are_divided_without_the_learned_prior() -> None:
    votes, prior = torch.randn(2, 6, 3, 4), 3 * torch.randn(6, 3)
    route = routing.get("self-attention")
    trace = route(votes, params={"prior": prior}, trace=True).trace
    assert trace is not None
    torch.testing.assert_close(divided(trace, route), trace.couplings - prior)
    attention = routing.get("attention")
    trace = attention(votes, trace=True).trace
    assert trace is not None
    shares = trace.couplings / trace.couplings.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(divided(trace, attention), shares)
