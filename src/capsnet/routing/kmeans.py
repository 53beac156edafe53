"""Routing as soft k-means: parents are the centres of their votes, couplings the soft assignments.

Each child should be near *one* of its parents: minimise sum_i min_j d(u_ij, v_j), where u_ij is its vote for parent j.
The minimum is replaced by the smooth one, -t log sum_j exp(-d_ij / t), which tends to it as the temperature t goes
to 0:

    F(v) = -t sum_i log sum_j exp(-d(u_ij, v_j) / t)
    dF/dv_j = sum_i c_ij dd(u_ij, v_j)/dv_j,    c_ij = softmax over j of -d(u_ij, v_j) / t

Setting the gradient to zero, with the couplings held constant, gives the centres:

- Euclidean, d = |u - v|^2:           v_j = sum_i c_ij u_ij / sum_i c_ij, a weighted mean;
- inner product, d = -u . v, |v| = 1: v_j = sum_i c_ij u_ij, normalised.

Alternating the two lines is soft k-means. The Euclidean form lowers F at every iteration: for any couplings c, F is at
most sum_ij c_ij (d_ij + t log c_ij), with equality for the softmax, and of that bound the weighted mean is the minimum.
The inner product differs from dynamic routing only in the squash inside the loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from capsnet.functional import get_squash
from capsnet.routing.base import Edges, Formula, Routed, SquashingRouting, check_count
from capsnet.routing.steps import agree, couple, distance, gather, level, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class KMeans(SquashingRouting):
    """Soft k-means over the votes, with Euclidean distance or inner product.

    Args:
        iterations: at least 1. With 1 the couplings are equal.
        distance: ``"euclidean"`` (parents are weighted means) or ``"inner"`` (parents are normalised sums).
        temperature: how soft the couplings are; towards 0 each child is coupled with its nearest parent only.
        squash: what turns the last centre (Euclidean) or sum (inner) into the parent's pose.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Convolutional: see ``routing.base``.
    """

    name: ClassVar[str] = "kmeans"
    sentence: ClassVar[str] = "Each parent is the centre of its votes; each child goes to the nearest centres."
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"kmeans-inner": {"distance": "inner"}}
    iterations: int = 3
    distance: Literal["euclidean", "inner"] = "euclidean"
    temperature: float = 1.0
    squash: str = "paper"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        if self.distance not in ("euclidean", "inner"):
            raise ValueError(f'distance must be "euclidean" or "inner", got {self.distance!r}')
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be positive and finite, got {self.temperature!r}")
        super().__post_init__()

    @property
    def formula(self) -> Formula:
        nearness = "-|u_ij - v_j|^2" if self.distance == "euclidean" else "u_ij · v_j"
        return Formula(f"c_ij = softmax_j({nearness} / t)", get_squash(self.squash).formula)

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        squash = get_squash(self.squash)
        logits = level(votes)  # (B, I, J)
        pose = act = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            coupling = couple(logits, edges)
            counted = weigh(coupling, weights, edges)
            centre = self.centre(counted, votes)  # (B, J, D)
            pose, act = squash(centre)
            if trace:
                history.append((coupling, logits, pose, act))
            if iteration < self.iterations - 1:
                logits = self.similarity(votes, centre) / self.temperature
        return Routed(pose, act, stack_trace(history) if trace else None)

    def centre(self, counted: Tensor, votes: Tensor) -> Tensor:
        """The centre of each parent's votes, weighted by ``counted``; zero if all weights are zero."""
        total = gather(counted, votes)
        if self.distance == "inner":
            return total
        least = torch.finfo(votes.dtype).eps ** 2  # with much less the backward pass would overflow
        return total / counted.sum(dim=-2).clamp_min(least).unsqueeze(-1)

    def similarity(self, votes: Tensor, centre: Tensor) -> Tensor:
        """Minus the distance of each vote from its parent: (..., I, J)."""
        if self.distance == "euclidean":
            return -distance(votes, centre)
        length = torch.linalg.vector_norm(centre, dim=-1, keepdim=True)
        return agree(votes, centre / torch.where(length > 0, length, 1))
