"""Attention: the softmax runs over the children of a parent, instead of the parents of a child.

    b_ij = 0;  r times:  a_ij = softmax over i of b_ij    a parent's attention sums to 1 over the children
                         s_j  = sum_i a_ij u_hat_j|i      a weighted mean of its votes
                         v_j  = squash(s_j)
                         b_ij = b_ij + u_hat_j|i . v_j

It is Procedure 1 with the softmax over the other axis: attention normalises over inputs, routing over outputs. Parents
do not compete, so several may attend to the same child. Re-implementations of dynamic routing often have this softmax
by mistake.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from capsnet.functional import get_squash
from capsnet.routing.base import Edges, Formula, Normalised, Routed, SquashingRouting, check_count, per_edge
from capsnet.routing.steps import agree, gather, level, softmax, stack_trace


@dataclass(frozen=True, kw_only=True)
class Attention(SquashingRouting):
    """Softmax over the children: each parent attends to its votes, parents do not compete.

    Args:
        iterations: at least 1. With 1 each parent is the squashed mean of its votes.
        squash: see ``functional.get_squash``.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Convolutional: each position attends to its K children.
    """

    name: ClassVar[str] = "attention"
    sentence: ClassVar[str] = "Each parent attends to the votes that agree with it."
    normalised: ClassVar[Normalised] = "children"
    iterations: int = 3
    squash: str = "paper"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        super().__post_init__()

    @property
    def formula(self) -> Formula:
        return Formula("c_ij = exp(b_ij) / Σ_k exp(b_kj)", get_squash(self.squash).formula)

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        squash = get_squash(self.squash)
        counts = None if weights is None else per_edge(weights, edges).unsqueeze(-1)
        logits = level(votes)  # (B, I, J)
        pose = act = target = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            attention = attend(logits, counts)
            pose, act = squash(gather(attention, votes))
            if trace:
                history.append((attention, logits, pose, act))
            if iteration < self.iterations - 1:
                target = target + pose  # the sum of agreements with all poses is the agreement with their sum
                logits = agree(votes, target)
        return Routed(pose, act, stack_trace(history) if trace else None)


def attend(logits: Tensor, weights: Tensor | None) -> Tensor:
    """Softmax over the children, each counted ``weights`` (..., I, 1) times; zero, not NaN, where none counts."""
    shape, equal = logits.shape, logits.stride(-1) == 0  # as ``level`` makes them
    if equal:
        logits = logits[..., :1]
    if weights is None:
        return softmax(logits, -2).expand(shape)
    # the peak is that of the children that count: with a larger one of a masked child all others could underflow
    peak = logits.detach().masked_fill(weights <= 0, -torch.inf).amax(dim=-2, keepdim=True)
    weighted = (logits - peak).clamp_max(0).exp() * weights  # the clamp avoids 0 * inf of masked children
    return (weighted / weighted.sum(dim=-2, keepdim=True).clamp_min(torch.finfo(logits.dtype).tiny)).expand(shape)
