"""Self-attention routing: Mazzia, Salvetti, Chiaberge, *Efficient-CapsNet*, 2021 (arXiv 2101.12491). One pass.

    a_ij = sum_k u_hat_j|i . u_hat_j|k / sqrt(D)    how much child i agrees with all others about parent j  [Eq. 5]
    c_ij = softmax over j of a_ij                                                                           [Eq. 6]
    s_j  = sum_i (c_ij + b_ij) u_hat_j|i            b is a learned prior, added after the softmax           [Eq. 7]
    v_j  = (1 - exp(-|s_j|)) s_j / |s_j|

The I x I matrix of agreements is not computed: sum_k u_hat_j|i . u_hat_j|k is u_hat_j|i . (sum_k u_hat_j|k), so the
cost is that of one iteration of dynamic routing.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from capsnet.functional import get_squash
from capsnet.routing.base import Edges, Formula, Normalised, Routed, SquashingRouting
from capsnet.routing.steps import agree, couple, gather, level, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class SelfAttention(SquashingRouting):
    """Efficient-CapsNet's routing: agreement of each child with all the others, in one pass, plus a learned prior.

    With the prior, couplings need not sum to 1. It starts at zero.

    Args:
        squash: see ``functional.get_squash``.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Learned: ``prior`` (I, J).
    """

    name: ClassVar[str] = "self-attention"
    sentence: ClassVar[str] = "Each child sends its vote to the parents about which it agrees with the other children."
    normalised: ClassVar[Normalised] = "none"
    squash: str = "exp"

    @property
    def formula(self) -> Formula:
        return Formula("c_ij = softmax_j(Σ_k u_ij · u_kj / √D) + b_ij", get_squash(self.squash).formula)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"prior": (I, J)}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        total = gather(weigh(level(votes, 1.0), weights, edges), votes)  # (B, J, D)
        logits = agree(votes, total) / votes.shape[-1] ** 0.5  # (B, I, J)
        coupling = couple(logits, edges)
        if "prior" in params:
            coupling = coupling + params["prior"]
        pose, act = get_squash(self.squash)(gather(weigh(coupling, weights, edges), votes))
        return Routed(pose, act, stack_trace([(coupling, logits, pose, act)]) if trace else None)
