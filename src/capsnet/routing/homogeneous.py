"""Homogeneous vector capsules: Byerly, Kalganova, Dear, *No Routing Needed Between Capsules*, 2020 (arXiv 2001.09136).

    v_j = squash(sum_i w_ij * u_hat_j|i / J)        * element by element, w learned

Nothing is decided per image: learned weights, one for each number of each vote, say once and for all how much a child
counts for a parent. The authors' votes are the children themselves, so that a dimension of a parent is made of the same
dimension of its children: D weights for each pair instead of a matrix. Here votes are what the layer makes of the
children. Where each pair has a matrix of its own, w adds nothing that the matrix could not learn: what is left of the
idea is that a network needs no couplings. ``layers.HomogeneousCaps`` has the authors' votes.

The authors normalise each batch and apply ReLU before the length is taken. A batch normalisation would make an image's
answer depend on the others of its batch, which no routing here does: the squash takes its place.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from capsnet import kernels
from capsnet.functional import get_squash
from capsnet.routing.base import Edges, Formula, Normalised, Routed, SquashingRouting
from capsnet.routing.steps import couple, gather, level, stack_trace, weigh
from capsnet.routing.uniform import Uniform


@dataclass(frozen=True, kw_only=True)
class Homogeneous(SquashingRouting):
    """No routing: each number of each vote has a learned weight.

    Args:
        squash: see ``functional.get_squash``.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Learned: ``weight`` (I, J, D), added to 1. In the trace a
    coupling is the mean of its D weights.
    """

    name: ClassVar[str] = "homogeneous"
    sentence: ClassVar[str] = "Each number of each child's vote has a learned weight, the same for every image."
    normalised: ClassVar[Normalised] = "none"
    decides: ClassVar[bool] = False
    vote_free: ClassVar[bool] = False
    squash: str = "paper"

    @property
    def formula(self) -> Formula:
        return Formula("c_ij = w_ij / J", get_squash(self.squash).formula)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (I, J, D)}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        logits = level(votes)  # (B, I, J)
        coupling = couple(logits, edges)
        weighted = votes
        if "weight" in params:
            weighted = votes * (1 + params["weight"].to(votes.dtype))
        pose, act = get_squash(self.squash)(gather(weigh(coupling, weights, edges), weighted))
        if trace and "weight" in params:
            coupling = coupling * (1 + params["weight"].to(votes.dtype).mean(dim=-1))
        return Routed(pose, act, stack_trace([(coupling, logits, pose, act)]) if trace else None)

    def fused(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, params: dict[str, Tensor], memory: kernels.Memory
    ) -> Routed | None:
        """Weights of a vote's numbers are weights of its matrix's rows: this is ``uniform`` with other matrices."""
        if "weight" in params:
            weight = weight * (1 + params["weight"].to(weight.dtype)).unsqueeze(-1)  # (I, J, D, K)
        return Uniform(squash=self.squash).fused(u, weight, weights, {}, memory)
