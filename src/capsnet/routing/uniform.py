"""No routing: all couplings of a child are equal. The control in comparisons.

    c_ij = 1 / J,  v_j = squash(sum_i c_ij u_hat_j|i)

It is also dynamic routing with one iteration.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from capsnet.functional import get_squash
from capsnet.routing.base import Edges, Formula, Routed, SquashingRouting
from capsnet.routing.steps import couple, gather, level, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class Uniform(SquashingRouting):
    """Equal couplings, no routing: the control.

    Args:
        squash: see ``functional.get_squash``.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Convolutional: 1 over the number of a child's parents, of
    all positions that see it.
    """

    name: ClassVar[str] = "uniform"
    sentence: ClassVar[str] = "Each child gives every parent the same."
    decides: ClassVar[bool] = False
    squash: str = "paper"

    @property
    def formula(self) -> Formula:
        return Formula("c_ij = 1 / J", get_squash(self.squash).formula)

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        logits = level(votes)  # (B, I, J)
        coupling = couple(logits, edges)
        pose, act = get_squash(self.squash)(gather(weigh(coupling, weights, edges), votes))
        return Routed(pose, act, stack_trace([(coupling, logits, pose, act)]) if trace else None)
