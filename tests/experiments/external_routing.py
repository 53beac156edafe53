"""A routing as another package would have it, in one file: importing it registers it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from capsnet import routing
from capsnet.functional import length, squash


@dataclass(frozen=True, kw_only=True)
class Halved(routing.Routing):
    """Each child is divided evenly, and each vote counts by a power of a half."""

    name: ClassVar[str] = "halved"
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"halved-twice": {"power": 2.0}}
    power: float = 1.0

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: routing.Edges | None, params: dict[str, Tensor], trace: bool
    ) -> routing.Routed:
        couplings = votes.new_full(votes.shape[:-1], 1 / votes.shape[2])
        pose = squash(0.5**self.power * (couplings[..., None] * votes).sum(dim=1))
        act = length(pose)
        history = routing.Trace(couplings[None], 0 * couplings[None], pose[None], act[None]) if trace else None
        return routing.Routed(pose, act, history)


routing.register(Halved)
