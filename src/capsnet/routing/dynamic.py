"""Dynamic routing by agreement: Procedure 1 of Sabour, Frosst, Hinton, NIPS 2017 (arXiv 1710.09829).

b_ij = 0                                   for each example: couplings are not weights
r times:  c_ij = softmax over j of b_ij    a child divides itself among its parents      [Eq. 3]
          s_j  = sum_i c_ij u_hat_j|i                                                    [Eq. 2]
          v_j  = squash(s_j)                                                             [Eq. 1]
          b_ij = b_ij + u_hat_j|i . v_j    agreement
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from capsnet import kernels
from capsnet.functional import length, squash
from capsnet.routing.base import Routed, Routing, Trace, couple


@dataclass(frozen=True, kw_only=True)
class Dynamic(Routing):
    """Routing by agreement.

    Args:
        iterations: r of the paper, at least 1. With 1 all couplings are equal and nothing is routed.
        gradient: ``"all"`` differentiates through every iteration, as the authors' code does; ``"last"`` treats the
            last iteration's couplings as constants, as many re-implementations do: cheaper, slightly different.
        leaky: an orphan parent with logit zero takes the children that fit nowhere (the authors' flag, off for MNIST).
        bias: a learned (J, D) vector added to s_j in every iteration (the authors' code has it, the paper does not).

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J) = length of the pose. Convolutional: see ``routing.base``.
    """

    name: ClassVar[str] = "dynamic"
    iterations: int = 3
    gradient: Literal["all", "last"] = "all"
    leaky: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        if type(self.iterations) is not int or self.iterations < 1:
            raise ValueError(f"iterations must be a whole number of at least 1, got {self.iterations!r}")
        if self.gradient not in ("all", "last"):
            raise ValueError(f'gradient must be "all" or "last", got {self.gradient!r}')

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"bias": (J, D)} if self.bias else {}

    def fused(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, params: dict[str, Tensor], memory: kernels.Memory
    ) -> Routed | None:
        if type(self) is not Dynamic:
            return None  # a variant with its own definition
        pose = kernels.route(u, weight, act=weights, memory=memory, **self._procedure(params))
        return None if pose is None else Routed(pose, length(pose))

    def _procedure(self, params: dict[str, Tensor]) -> dict[str, Any]:
        """What the fast forms have to know."""
        return self.options() | {"bias": params.get("bias")}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Tensor | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        if edges is None and not trace and type(self) is Dynamic:
            pose = kernels.route_votes(votes, act=weights, **self._procedure(params))
            if pose is not None:
                return Routed(pose, length(pose))
        if edges is not None and weights is not None:
            weights = weights[:, edges]  # (B, P, K): each position's own view of its children
        bias = params.get("bias")
        logits = votes.new_zeros(votes.shape[:-1])  # (B, I, J), zero for every example
        pose = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            last = iteration == self.iterations - 1
            seen = votes if last or self.gradient == "all" else votes.detach()
            coupling = couple(logits, edges, leaky=self.leaky)
            weighted = coupling if weights is None else coupling * weights.unsqueeze(-1)
            s = torch.einsum("...ij,...ijd->...jd", weighted, seen)
            pose = squash(s if bias is None else s + bias)
            if trace:
                history.append((coupling, logits, pose))
            if not last:
                # out of place on purpose: autograd and the trace keep the earlier logits
                agreement = torch.einsum("...ijd,...jd->...ij", seen, pose)
                logits = logits + (agreement if self.gradient == "all" else agreement.detach())
        if not trace:
            return Routed(pose, length(pose))
        couplings, all_logits, poses = (torch.stack(column) for column in zip(*history, strict=True))
        return Routed(pose, length(pose), Trace(couplings, all_logits, poses))
