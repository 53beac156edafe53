"""Inverted dot-product attention: Tsai, Srivastava, Goh, Salakhutdinov, ICLR 2020 (arXiv 2002.04764).

    p_j = 0;  r times:  a_ij = u_hat_j|i . p_j / sqrt(D)    agreement with the parent, not accumulated
                        c_ij = softmax over j of a_ij       parents compete for a child: "inverted" attention
                        p_j  = LayerNorm(sum_i c_ij u_hat_j|i)

Layer normalisation instead of a squash makes the agreement independent of the number of children and of the scale of
the other votes, but the length of a pose says nothing, so the presence is read from the pose by a learned vector that
all parents share:

    a_j = sigmoid(w . p_j + b)
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from capsnet.routing.base import Edges, Formula, Routed, Routing, check_count
from capsnet.routing.steps import agree, couple, gather, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class InvertedAttention(Routing):
    """Layer-normalised parents compete for each child by inner products; the presence is a learned readout.

    A layer iterates on its own ("sequential routing"); ``layers.concurrent`` iterates all layers of a network at once.

    Args:
        iterations: at least 1. With 1 the couplings are equal.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Learned: ``gain`` (added to 1) and ``shift`` (D,) of the
    layer normalisation, ``readout`` (D,) and ``readout_bias`` (1,) of the presence.
    """

    name: ClassVar[str] = "inverted-attention"
    sentence: ClassVar[str] = "Parents compete for each child by how well its vote fits their normalised poses."
    continues: ClassVar[bool] = True
    formula: ClassVar[Formula] = Formula("c_ij = softmax_j(u_ij · p_j / √D)", "a_j = sigmoid(w · p_j + b)")
    presence_is_length: ClassVar[bool] = False
    iterations: int = 3

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"gain": (D,), "shift": (D,), "readout": (D,), "readout_bias": (1,)}

    def route(
        self,
        votes: Tensor,
        weights: Tensor | None,
        edges: Edges | None,
        params: dict[str, Tensor],
        trace: bool,
        start: Tensor | None = None,
    ) -> Routed:
        D = votes.shape[-1]
        gain, shift, readout, bias = (params.get(name, votes.new_zeros(())) for name in self.param_shapes(1, 1, 1))
        iterations = self.iterations if start is None else 1
        logits = votes.new_zeros(votes.shape[:-1]) if start is None else agree(votes, start) / D**0.5  # (B, I, J)
        pose = act = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for iteration in range(iterations):
            coupling = couple(logits, edges)
            total = gather(weigh(coupling, weights, edges), votes)  # (B, J, D)
            pose = torch.nn.functional.layer_norm(total, (D,)) * (1 + gain) + shift
            act = ((pose * readout).sum(dim=-1) + bias).sigmoid()
            if trace:
                history.append((coupling, logits, pose, act))
            if iteration < iterations - 1:
                logits = agree(votes, pose) / D**0.5
        return Routed(pose, act, stack_trace(history) if trace else None)
