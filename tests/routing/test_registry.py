"""Finding routings by name, and refused arguments."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from capsnet import routing
from capsnet.layers import DenseCaps, SharedCaps
from capsnet.routing import Edges, _registry


def test_unknown_name_lists_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown routing 'dinamic'.*'dynamic'.*Known: .*dynamic"):
        routing.get("dinamic")


def test_unknown_option_suggests_known_one() -> None:
    with pytest.raises(ValueError, match="'iterations'"):
        routing.get("dynamic", iteration=3)


@pytest.mark.parametrize("iterations", [0, -1, 2.5, "3"])
def test_iterations_must_be_a_positive_whole_number(iterations: object) -> None:
    with pytest.raises(ValueError, match=r"iterations .*must be a (whole number from 1 to 1000|valid integer), got"):
        routing.get("dynamic", iterations=iterations)


def test_gradient_mode_is_checked() -> None:
    with pytest.raises(ValueError, match="must be 'all' or 'last', got 'some'"):
        routing.get("dynamic", gradient="some")


@pytest.mark.parametrize("name", routing.list_routings())
def test_routing_rebuilds_from_options_and_has_description(name: str) -> None:
    route = routing.get(name)
    assert routing.get(name, **route.options()) == route
    assert len(routing.describe(name)) > 5


def test_new_routing_is_one_class_and_one_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_ROUTINGS", dict(_registry._ROUTINGS))

    @dataclass(frozen=True, kw_only=True)
    class Mean(routing.Routing):
        """The mean of all votes."""

        name: ClassVar[str] = "mean"

        def route(self, votes, weights, edges, params, trace):
            pose = votes.mean(dim=1)
            return routing.Routed(pose, pose.norm(dim=-1))

    routing.register(Mean)
    assert routing.get("mean")(torch.ones(1, 2, 3, 4)).pose.shape == (1, 3, 4)
    with pytest.raises(ValueError, match="registered already"):

        @routing.register
        class Other(Mean):
            pass


def test_routing_object_needs_no_registration() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Scaled(routing.Routing):
        """The mean of all votes, scaled."""

        name: ClassVar[str] = "scaled"
        scale: float = 1.0

        def route(self, votes, weights, edges, params, trace):
            pose = self.scale * votes.mean(dim=1)
            return routing.Routed(pose, pose.norm(dim=-1))

    scaled = Scaled(scale=2.0)
    assert routing.get(scaled) is scaled
    assert routing.get(scaled, scale=3.0) == Scaled(scale=3.0)
    with pytest.raises(ValueError, match=r"unknown option of scaled routing 'scala'.*'scale'"):
        routing.get(scaled, scala=3.0)
    with pytest.raises(ValueError, match="unknown routing 'scaled'"):
        routing.get("scaled")
    assert DenseCaps(5, 3, 8, 16, scaled)(torch.rand(2, 5, 8)).pose.shape == (2, 3, 16)
    assert SharedCaps(3, 8, 16, scaled)(torch.rand(2, 5, 8)).pose.shape == (2, 3, 16)


@pytest.mark.parametrize(
    ("votes", "extra", "message"),
    [
        (torch.rand(2, 3, 4), {}, r"\(B, I, J, D\)"),
        (torch.ones(2, 3, 4, 5, dtype=torch.long), {}, "floating point"),
        (torch.rand(2, 3, 4, 5), {"act": torch.rand(2, 4)}, "act must have shape"),
        (torch.rand(2, 3, 4, 5), {"mask": torch.ones(3, 2, dtype=torch.bool)}, "mask must have shape"),
        (torch.rand(2, 3, 4, 5), {"edges": Edges(torch.zeros(3, 4, dtype=torch.long), 4)}, r"\(B, P, K, J, D\)"),
        (
            torch.rand(2, 3, 4, 5, 6),
            {"edges": Edges(torch.zeros(3, 4, dtype=torch.long), 4), "act": torch.rand(2, 3)},
            "act must have shape",
        ),
        (torch.rand(2, 3, 4, 5, 6), {"edges": torch.zeros(3, 4, dtype=torch.long)}, r"Edges\(index, children\)"),
    ],
)
def test_wrong_shapes_are_refused(votes: torch.Tensor, extra: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        routing.get("dynamic")(votes, **extra)


def test_unknown_learned_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown learned tensor of dynamic routing 'bais'"):
        routing.get("dynamic", bias=True)(torch.rand(2, 3, 4, 5), params={"bais": torch.zeros(4, 5)})
    with pytest.raises(ValueError, match="unknown option of dynamic routing 'foo'"):
        routing.get(routing.get("dynamic"), foo=1)
