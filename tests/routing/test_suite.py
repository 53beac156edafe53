"""Every registered routing against the one suite, and a broken one to see that the suite notices."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from capsnet import routing
from capsnet.layers import DenseCaps
from capsnet.routing import Routed, Routing, _registry
from tests.routing import suite

VARIANTS: dict[str, list[dict]] = {
    "attention": [{}, {"iterations": 1}],
    "dynamic": [
        {},
        {"update": "set", "iterations": 5},
        {"leaky": True, "bias": True},
        {"squash": "exp"},
        {"squash": "unit"},
    ],
    "em": [{}, {"covariance": "full"}, {"iterations": 1}],
    "kmeans": [{}, {"distance": "inner"}, {"temperature": 0.5, "squash": "power:1.5"}],
    "self-attention": [{}, {"squash": "paper"}],
    "uniform": [{}],
}
CASES = [
    pytest.param(name, options, id=f"{name}{options or ''}")
    for name in routing.list_routings()
    for options in VARIANTS.get(name, [{}])
]


@pytest.mark.parametrize("check", suite.CHECKS)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_contract(name: str, options: dict, check: str) -> None:
    suite.CHECKS[check](routing.get(name, **options))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_couplings_sum_to_one_where_the_algorithm_says_so(name: str, options: dict) -> None:
    trace = routing.get(name, **options)(suite.normal(0, 3, 7, 4, 5), trace=True).trace
    assert trace is not None
    over = 2 if name == "attention" else 3  # parents divide themselves among children, or children among parents
    sums = trace.couplings.sum(dim=over)
    if options.get("leaky"):
        assert (sums < 1).all()
    else:
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_real_routings_find_planted_clusters(name: str, options: dict) -> None:
    more = {"iterations": 5} if "iterations" in routing.option_names(name) else {}
    share = suite.planted_share(routing.get(name, **(options | more)))
    if name in ("uniform", "attention"):
        assert share < 0.8
    else:
        assert share >= 0.95


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_routing_trains_in_a_layer(name: str, options: dict) -> None:
    """The layer owns what the routing learns; a few steps towards a target lower the loss and leave no NaN."""
    torch.manual_seed(0)
    layer = DenseCaps(6, 3, 4, 5, routing.get(name, **options))
    shapes = layer.routing.param_shapes(6, 3, 5)
    assert {key: tuple(tensor.shape) for key, tensor in layer.routing_params.items()} == shapes
    u, target = torch.randn(8, 6, 4), torch.randn(8, 3, 5).sigmoid() / 3
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        loss = (layer(u).pose - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(p.isfinite().all() for p in layer.parameters())


@dataclass(frozen=True, kw_only=True)
class Broken(Routing):
    """Dynamic routing with one of the field's known bugs, by choice."""

    name: ClassVar[str] = "broken"
    bug: str = "none"

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Tensor | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        dynamic = routing.get("dynamic")
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
            pose = dynamic.route(votes, weights, edges, params, trace)
            return pose._replace(pose=pose.pose / pose.act.unsqueeze(-1) * pose.act.unsqueeze(-1))
        return dynamic.route(votes, weights, edges, params, trace)


BUGS = ["batch mean of logits", "activation ignored", "order matters", "detached", "division by the norm"]


def failed(route: Routing) -> list[str]:
    """Which checks notice."""
    noticed = []
    for name, check in suite.CHECKS.items():
        try:
            check(route)
        except Exception:
            noticed.append(name)
    return noticed


@pytest.mark.parametrize("bug", BUGS)
def test_a_broken_routing_fails_the_suite(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_ROUTINGS", dict(_registry._ROUTINGS))
    routing.register(Broken)
    assert failed(routing.get("broken", bug=bug))


def test_the_same_routing_without_its_bug_passes() -> None:
    assert failed(Broken()) == []


def test_a_softmax_over_the_children_finds_no_clusters() -> None:
    assert suite.planted_share(Broken(bug="softmax over children")) < 0.95
