"""Every registered routing passes the suite, and broken ones fail it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from capsnet import routing
from capsnet.routing import Edges, Formula, Routed, Routing
from tests.routing import suite

NAMED = [routing.get(name) for name in routing.list_forms()]
CASES = [
    pytest.param(route, check, id=f"{route}-{check}")
    for name in routing.list_routings()
    for route in suite.variants(name)
    for check in suite.CHECKS
    if check != "compiles" or route in NAMED  # compiling takes long
]


@pytest.mark.parametrize(("route", "check"), CASES)
def test_routing_keeps_contract(route: Routing, check: str) -> None:
    suite.CHECKS[check](route)


DYNAMIC = {iterations: routing.get("dynamic", iterations=iterations) for iterations in (3, 5)}


@dataclass(frozen=True, kw_only=True)
class Broken(Routing):
    """Dynamic routing with one of the known bugs of re-implementations."""

    name: ClassVar[str] = "broken"
    sentence: ClassVar[str] = "Each child sends its vote to the parents that agree with it."
    iterations: int = 3
    bug: str = "none"

    @property
    def formula(self) -> Formula:
        return routing.get("dynamic").formula

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        dynamic = DYNAMIC[self.iterations]
        if self.bug == "softmax over children":
            return routing.get("attention").route(votes, weights, edges, params, trace)
        if self.bug == "batch mean of logits":
            votes = votes + 0.1 * (votes.mean(dim=0, keepdim=True) - votes)
        if self.bug == "activation ignored":
            weights = None
        if self.bug == "order matters":
            votes = votes * torch.arange(1, votes.shape[-3] + 1, dtype=votes.dtype)[:, None, None]
        if self.bug == "detached":
            votes = votes.detach() + 0.5 * (votes - votes.detach())
        if self.bug == "division by the norm":
            routed = dynamic.route(votes, weights, edges, params, trace)
            return routed._replace(pose=routed.pose / routed.act.unsqueeze(-1) * routed.act.unsqueeze(-1))
        if self.bug == "no agreement":
            return routing.get("uniform").route(votes, weights, edges, params, trace)
        if self.bug == "presence apart":
            return dynamic.route(votes, weights, edges, params, trace)._replace(act=votes.new_zeros(()))
        return dynamic.route(votes, weights, edges, params, trace)


BUGS = [
    "activation ignored",
    "batch mean of logits",
    "detached",
    "division by the norm",
    "no agreement",
    "order matters",
    "presence apart",
    "softmax over children",
]


def failed(route: Routing) -> Iterator[str]:
    """The checks that fail."""
    for name, check in suite.CHECKS.items():
        try:
            check(route)
        except Exception:
            yield name


@pytest.mark.parametrize("bug", BUGS)
def test_broken_routing_fails_suite(bug: str) -> None:
    assert any(failed(Broken(bug=bug)))  # stops at the first one


def test_same_routing_without_bug_passes_suite() -> None:
    assert list(failed(Broken())) == []


@pytest.mark.parametrize("bug", ["softmax over children", "no agreement"])
def test_suite_notices_that_clusters_are_not_found(bug: str) -> None:
    assert {"couplings", "finds_clusters", "declarations"} & set(failed(Broken(bug=bug)))
    assert suite.planted_couplings(Broken(bug=bug))[0] < 0.9
