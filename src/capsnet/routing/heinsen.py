"""Heinsen routing: *An Algorithm for Routing Vectors in Sequences*, 2022 (arXiv 2211.11754).

A parent is made of what it *uses* of each child minus what it *ignores*, and gets the children that it predicts best:

    r times:  R_ij = 1 / J at first, then softmax over j of u_hat_j|i . N(x_j) / sqrt(D)     who predicts the child best
              D_use = a_i R_ij,    D_ign = a_i (1 - R_ij)                                    used, ignored
              x_j = sum_i (beta_use_ij D_use - beta_ign_ij D_ign) u_hat_j|i                  net benefit of each vote
    v_j = N(x_j)

N normalises a vector's elements to mean 0 and variance 1. The paper leaves open how a child's activation a, the votes,
the parents' predictions and their similarity are computed. Here a is the child's presence, and a parent predicts the
children's *votes*, by itself, instead of the children: a routing is given votes alone. The similarity is the inner
product of the author's example. The paper has no presence of parents; as in inverted attention it is a learned readout:

    a_j = sigmoid(w . v_j + b)
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from capsnet.routing.base import Edges, Formula, Routed, Routing, check_count
from capsnet.routing.steps import agree, couple, gather, level, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class Heinsen(Routing):
    """Parents use some of each child and ignore the rest; both have learned weights.

    Args:
        iterations: at least 1. With 1 the couplings are equal.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Learned: ``use`` (added to 1) and ``ignore`` (I, J), the
    benefit of using and the cost of ignoring a child; ``readout`` (D,) and ``readout_bias`` (1,) of the presence.
    """

    name: ClassVar[str] = "heinsen"
    sentence: ClassVar[str] = (
        "Each child goes to the parents that predict its vote; what a parent ignores is subtracted."
    )
    formula: ClassVar[Formula] = Formula("c_ij = softmax_j(u_ij · N(x_j) / √D)", "a_j = sigmoid(w · v_j + b)")
    presence_is_length: ClassVar[bool] = False
    iterations: int = 2

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"use": (I, J), "ignore": (I, J), "readout": (D,), "readout_bias": (1,)}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        readout, bias = (params.get(name, votes.new_zeros(())) for name in ("readout", "readout_bias"))
        logits = level(votes)  # (B, I, J)
        pose = act = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            coupling = couple(logits, edges)
            benefit = coupling * (1 + params["use"]) if "use" in params else coupling
            if "ignore" in params:
                benefit = benefit - params["ignore"] * (1 - coupling)
            pose = normalise(gather(weigh(benefit, weights, edges), votes))  # (B, J, D)
            act = ((pose * readout).sum(dim=-1) + bias).sigmoid()
            if trace:
                history.append((coupling, logits, pose, act))
            if iteration < self.iterations - 1:
                logits = agree(votes, pose) / votes.shape[-1] ** 0.5
        return Routed(pose, act, stack_trace(history) if trace else None)


def normalise(x: Tensor) -> Tensor:
    """Elements of mean 0 and variance 1; a single element stays, as in the author's code."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) if x.shape[-1] > 1 else x
