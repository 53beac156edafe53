"""Dynamic routing by agreement: Procedure 1 of Sabour, Frosst, Hinton, NIPS 2017 (arXiv 1710.09829).

    b_ij = 0                                   for each example: couplings are not learned
    r times:  c_ij = softmax over j of b_ij    a child's couplings sum to 1 over its parents  [Eq. 3]
              s_j  = sum_i c_ij u_hat_j|i                                                     [Eq. 2]
              v_j  = squash(s_j)                                                              [Eq. 1]
              b_ij = b_ij + u_hat_j|i . v_j    agreement

The logits grow with every iteration, so more iterations make harder decisions whatever the votes are. With
``update="set"`` they are replaced instead, b_ij = u_hat_j|i . v_j: a fixed-point form whose iterations converge. Seen
as clustering, v_j is a centre and b_ij a similarity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from capsnet import kernels
from capsnet.functional import get_squash, length
from capsnet.kernels.votes import form_votes
from capsnet.routing.base import Edges, Formula, Routed, SquashingRouting, check_count
from capsnet.routing.steps import agree, couple, gather, level, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class Dynamic(SquashingRouting):
    """Routing by agreement: Procedure 1 of Sabour et al. 2017, or its fixed-point form.

    Args:
        iterations: r of the paper, at least 1. With 1 all couplings are equal and nothing is routed.
        gradient: ``"all"`` differentiates through every iteration, as the authors' code does; ``"last"`` treats the
            last iteration's couplings as constants, as many re-implementations do: cheaper, slightly different.
        leaky: add an orphan parent with logit zero, for children that fit no parent (the authors' flag, off for MNIST).
        bias: a learned (J, D) vector added to s_j in every iteration (the authors' code has it, the paper does not).
        update: ``"add"`` as in Procedure 1, or ``"set"``: the fixed-point form.
        squash: see ``functional.get_squash``.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Convolutional: see ``routing.base``.
    """

    name: ClassVar[str] = "dynamic"
    sentence: ClassVar[str] = "Each child sends its vote to the parents that agree with it."
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fixed-point": {"update": "set"}}
    iterations: int = 3
    gradient: Literal["all", "last"] = "all"
    leaky: bool = False
    bias: bool = False
    update: Literal["add", "set"] = "add"
    squash: str = "paper"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        if self.gradient not in ("all", "last"):
            raise ValueError(f'gradient must be "all" or "last", got {self.gradient!r}')
        if self.update not in ("add", "set"):
            raise ValueError(f'update must be "add" or "set", got {self.update!r}')
        super().__post_init__()

    @property
    def formula(self) -> Formula:
        total = "(1 + Σ_k exp(b_ik))" if self.leaky else "Σ_k exp(b_ik)"
        return Formula(f"c_ij = exp(b_ij) / {total}", get_squash(self.squash).formula)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"bias": (J, D)} if self.bias else {}

    @property
    def has_fast_form(self) -> bool:
        """Whether the kernels implement it: they implement Procedure 1, not its variants."""
        return type(self) is Dynamic and self.update == "add" and self.squash == "paper"

    def fused(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, params: dict[str, Tensor], memory: kernels.Memory
    ) -> Routed | None:
        routed = super().fused(u, weight, weights, params, memory)
        if routed is not None or torch.is_grad_enabled() or torch.compiler.is_compiling() or not self.has_fast_form:
            return routed
        # a few examples at inference: the kernel takes votes in any order, so they are not copied
        return self.route(form_votes(u, weight), weights, None, params, trace=False)

    def _kernel_options(self, params: dict[str, Tensor]) -> dict[str, Any]:
        def plain(votes: Tensor, bias: Tensor | None, act: Tensor | None) -> Tensor:
            return self.plain(votes, act, None, bias, trace=False).pose

        hyper = {"iterations": self.iterations, "gradient": self.gradient, "leaky": self.leaky}
        return hyper | {"bias": params.get("bias"), "plain": plain}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        if edges is None and not trace and self.has_fast_form and isinstance(votes, Tensor):
            pose = kernels.route_votes(votes, act=weights, **self._kernel_options(params))
            if pose is not None:
                return Routed(pose, length(pose))
        return self.plain(votes, weights, edges, params.get("bias"), trace)

    def plain(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, bias: Tensor | None, trace: bool
    ) -> Routed:
        """Procedure 1 in operations that autograd knows: the reference for the kernels."""
        squash = get_squash(self.squash)
        logits = level(votes)  # (B, I, J), zero for every example
        pose = act = target = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            last = iteration == self.iterations - 1
            counted = votes if last or self.gradient == "all" else votes.detach()
            coupling = couple(logits, edges, leaky=self.leaky)
            s = gather(weigh(coupling, weights, edges), counted)
            pose, act = squash(s if bias is None else s + bias)
            if trace:
                history.append((coupling, logits, pose, act))
            if not last:
                # the sum of agreements with all poses is the agreement with their sum
                target = target + pose if self.update == "add" else pose
                logits = agree(counted, target)
                logits = logits if self.gradient == "all" else logits.detach()
        return Routed(pose, act, stack_trace(history) if trace else None)
