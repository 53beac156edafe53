"""Routing by synchronisation: children and parents are oscillators; a child goes to the parents it is in phase with.

Parents start at the corners phi_j of a simplex, as far apart as possible, children silent (theta_i = 0):

    r times:  c_ij = softmax over j of beta theta_i . phi_j        coupled with the parents in phase
              v_j  = squash(sum_i c_ij u_hat_j|i)
              a_ij = u_hat_j|i . v_j,   k_ij = gain a_ij / sum_k |a_ik|    agreement is the strength of the pull
              theta_i <- unit(theta_i + gamma tangent(sum_j k_ij phi_j))
              phi_j   <- unit(phi_j + gamma tangent(mean_i k_ij theta_i - repel sum_{k != j} phi_k))

In dynamic routing couplings hardly decide where agreements are small, because a softmax of small numbers is flat. Here
only the *ratios* of a child's agreements matter, and ``beta`` alone sets how far couplings decide. Pulls of at most 1
also keep the steps stable: an oscillator that is pulled further than its target overshoots. The mean over children is
weighted by their presences.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from capsnet.functional import get_squash
from capsnet.oscillators import simplex, tangent, unit
from capsnet.routing.base import Edges, Formula, Phases, Routed, SquashingRouting, check_count, per_edge
from capsnet.routing.steps import agree, couple, gather, level, square_length, stack_trace, weigh

NOISE = 100  # rounding errors: a smaller pull on a silent child is none
FAINT = 1 / 3  # a child is silent if its agreements sum to less than the smallest number to this power: derivatives of
# their ratios would not be finite. ``unit`` leaves shorter vectors as they are; shorter votes are not normalised.


@dataclass(frozen=True, kw_only=True)
class Kuramoto(SquashingRouting):
    """Children synchronise with the parents about which they agree. Deterministic, without learned tensors by default.

    Args:
        iterations: at least 1. With 1 the couplings are equal.
        beta: how far couplings decide; 0 leaves them equal. A child in phase with one of J parents gives it
            1 / (1 + (J - 1) exp(-beta J / (J - 1))): 0.86 with the default and ten parents.
        grow: the share of training in which ``beta`` grows from 0, in a straight line; 0 leaves it constant. Decisions
            that are hard before votes mean anything can keep a network from learning.
        learn_beta: add a learned number, at first 0, to ``beta``.
        normalise: scale each vote to length 1 where it agrees, so that its length does not count in the pulls.
        gain: the sum of all pulls on a child.
        gamma: the size of a step.
        repel: how strongly parents push each other apart.
        squash: see ``functional.get_squash``.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Convolutional: a child has one phase, which the parents at
    all positions that see it pull. Learned: ``beta`` (1,) with ``learn_beta``.
    """

    name: ClassVar[str] = "kuramoto"
    sentence: ClassVar[str] = "Each child sends its vote to the parents that it is in phase with."
    dense_options: ClassVar[Mapping[str, Any]] = {"beta": 4.0, "grow": 0.5}
    recomputes: ClassVar[bool] = True
    iterations: int = 3
    beta: float = 4.0
    grow: float = 0.5
    learn_beta: bool = False
    normalise: bool = False
    gain: float = 1.0
    gamma: float = 1.0
    repel: float = 1.0
    squash: str = "paper"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        for what, least in (("beta", True), ("repel", True), ("gain", False), ("gamma", False)):
            value = getattr(self, what)
            if not isinstance(value, int | float) or not (0 < value < math.inf or (least and value == 0)):
                raise ValueError(f"{what} must be {'at least 0' if least else 'positive'} and finite, got {value!r}")
        if not isinstance(self.grow, int | float) or not 0 <= self.grow <= 1:
            raise ValueError(f"grow is a share of training, from 0 to 1, got {self.grow!r}")
        super().__post_init__()

    def at(self, progress: float) -> "Kuramoto":
        return self if progress >= self.grow else dataclasses.replace(self, beta=self.beta * progress / self.grow)

    @property
    def formula(self) -> Formula:
        return Formula("c_ij = softmax_j(β θ_i · φ_j)", get_squash(self.squash).formula)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"beta": (1,)} if self.learn_beta else {}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        if votes.dtype in (torch.float16, torch.bfloat16):  # too coarse for ratios of small agreements
            routed = self.route(votes.float(), weights, edges, params, trace)
            return cast(Routed, _cast(routed, votes.dtype))
        squash = get_squash(self.squash)
        *outer, J, _ = votes.shape  # (B, I), or (B, P, K)
        if int(J) < 1:
            raise ValueError(f"kuramoto routing needs at least 1 parent, got votes of shape {tuple(votes.shape)}")
        corners = simplex(J, dtype=votes.dtype).to(votes.device)
        parents = corners.expand(*outer[:-1], *corners.shape)  # (B, J, N), or (B, P, J, N)
        children = votes.new_zeros(()).expand(outer[0], outer[1] if edges is None else edges.children, corners.shape[1])
        beta = self.beta + params["beta"] if "beta" in params else self.beta
        logits = level(votes)  # (B, I, J); all children are silent
        pose = act = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        phases: list[tuple[Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            coupling = couple(logits, edges)
            pose, act = squash(gather(weigh(coupling, weights, edges), votes))
            if trace:
                history.append((coupling, logits, pose, act))
                phases.append((children, parents))
            if iteration < self.iterations - 1:
                agreement = agree(votes, pose)  # (B, I, J)
                if self.normalise:
                    square = square_length(votes)
                    heard = square > torch.finfo(square.dtype).tiny ** (2 * FAINT)
                    agreement = agreement * torch.where(heard, square, 1).rsqrt()
                size = _per_child(agreement.abs().sum(dim=-1, keepdim=True), edges)  # (B, I, 1)
                if iteration == 0:  # only the direction counts, and parents are pulled by none
                    children = unit(audible(_per_child(_towards(agreement, parents), edges), size))
                else:
                    pull = agreement * per_edge(self.gain * _inverse(size), edges)
                    towards = audible(_per_child(_towards(pull, parents), edges), self.gain)  # (B, I, N)
                    mean = self.mean(pull, per_edge(children, edges), weights, edges)
                    apart = parents.sum(dim=-2, keepdim=True) - parents
                    children = unit(children + self.gamma * tangent(children, towards))
                    parents = unit(parents + self.gamma * tangent(parents, mean - self.repel * apart))
                logits = _towards(per_edge(children, edges), (beta * parents).mT)
        if not trace:
            return Routed(pose, act)
        of_children, of_parents = (torch.stack(column) for column in zip(*phases, strict=True))
        return Routed(pose, act, stack_trace(history)._replace(phases=Phases(of_children, of_parents)))

    def mean(self, pull: Tensor, children: Tensor, weights: Tensor | None, edges: Edges | None) -> Tensor:
        """The mean of the children's phases, each times its pull and presence: (B, J, N)."""
        if weights is None:
            return pull.mT @ children / children.shape[-2]
        presence = per_edge(weights, edges).to(pull.dtype).unsqueeze(-1)
        total = presence.sum(dim=-2, keepdim=True)
        return (pull * presence).mT @ children / torch.where(total > 0, total, 1)


def _cast(values: Any, dtype: torch.dtype) -> Any:
    """Tensors, also in tuples, in another precision."""
    if isinstance(values, tuple):
        return type(values)(*(_cast(one, dtype) for one in values))
    return values.to(dtype) if isinstance(values, Tensor) and values.is_floating_point() else values


def audible(towards: Tensor, size: Tensor | float) -> Tensor:
    """Zero where pulls of ``size`` cancel up to rounding errors, which ``unit`` would make a phase of."""
    numbers = torch.finfo(towards.dtype)
    least = NOISE * numbers.eps * size
    silent = towards.detach().square().sum(dim=-1, keepdim=True) <= least * least
    return towards.masked_fill(silent if isinstance(size, float) else silent | (size <= numbers.tiny**FAINT), 0)


def _inverse(size: Tensor) -> Tensor:
    """1 / size, or 0 for children that are silent."""
    heard = size > torch.finfo(size.dtype).tiny ** FAINT
    return heard / torch.where(heard, size, 1)


def _towards(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for few columns, of which each lies together in memory: sums over them are then many times faster."""
    return (b.mT @ a.mT).mT


def _per_child(values: Tensor, edges: Edges | None) -> Tensor:
    """Values of edges (B, P, K, n), summed for each child: (B, I, n). Without edges they are those of children."""
    if edges is None:
        return values
    B, _, _, n = values.shape
    return values.new_zeros(B, edges.children, n).index_add(1, edges.index.flatten(), values.reshape(B, -1, n))
