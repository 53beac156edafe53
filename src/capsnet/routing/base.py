"""The routing contract: votes in, parents out.

A routing decides who talks to whom. It is a plain, immutable object with hyper-parameters, no weights and no state, so
an example's result cannot depend on its neighbours or on the previous call.

    routing(votes, act=None, *, mask=None, edges=None, params=None, trace=False) -> Routed(pose, act, trace)

*Shapes*, dense:

- ``votes`` (B, I, J, D): what child i of example b predicts for parent j [Eq. 2];
- ``act`` (B, I): how present each child is; left out, its votes speak for themselves;
- ``mask`` (B, I): False where a child is padding;
- result: ``pose`` (B, J, D), ``act`` (B, J).

*Shapes*, convolutional: ``edges`` (P, K) lists the K children that each of P positions sees, and ``votes`` is
(B, P, K, J, D). The parents of all positions are stacked: ``pose`` (B, P, J, D), ``act`` (B, P, J). A child's couplings
are normalised over *all* its parents, across overlapping receptive fields.

Learned tensors (a bias, EM's costs) belong to the layer. ``param_shapes(I, J, D)`` declares them, ``params`` brings
them, and left out they are neutral.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor

from capsnet._names import check_name
from capsnet.kernels import Memory


class Trace(NamedTuple):
    """What happened in each of the R iterations, for people to look at.

    ``couplings`` and ``logits`` are (R, B, I, J), or (R, B, P, K, J) in the convolutional form; ``poses`` (R, B, J, D)
    or (R, B, P, J, D). ``grid`` = (H, W, types) says how the children lie in the image, where they do.
    """

    couplings: Tensor
    logits: Tensor
    poses: Tensor
    grid: tuple[int, int, int] | None = None


class Routed(NamedTuple):
    """The parents: ``pose`` (B, J, D), ``act`` (B, J), and the trace if it was asked for."""

    pose: Tensor
    act: Tensor
    trace: Trace | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Routing:
    """Base class of all routings: checks the call, then leaves the work to ``route``."""

    name: ClassVar[str] = ""

    def __call__(
        self,
        votes: Tensor,
        act: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        edges: Tensor | None = None,
        params: Mapping[str, Tensor] | None = None,
        trace: bool = False,
    ) -> Routed:
        check_votes(votes, act, mask, edges)
        learned = dict(params or {})
        for name in learned:
            check_name(f"learned tensor of {self.name} routing", name, self.param_shapes(1, 1, 1))
        if mask is not None:  # zeroed and not only weighted by zero: padding may hold anything, NaN included
            absent = ~(mask if edges is None else mask[:, edges]).bool()
            votes = votes.masked_fill(absent[..., None, None], 0)
        return self.route(by_parent(votes), child_weights(votes, act, mask), edges, learned, trace)

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Tensor | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        """The algorithm itself. ``weights`` (B, I) folds activation and mask into one factor per child, or is None."""
        raise NotImplementedError

    def fused(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, params: dict[str, Tensor], memory: Memory
    ) -> Routed | None:
        """The same from children u (B, I, K) and their matrices (I, J, D, K) without votes, or None: do it plainly."""
        return None

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        """The learned tensors that a layer with I children, J parents and D-dimensional poses has to own."""
        return {}

    def param_init(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """What such a tensor starts as: neutral, so that leaving it out and having it untrained are the same."""
        return torch.zeros(shape)

    def options(self) -> dict[str, object]:
        """The hyper-parameters, so that ``routing.get(r.name, **r.options())`` builds an equal one."""
        return dataclasses.asdict(self)


def by_parent(votes: Tensor) -> Tensor:
    """The same votes, but each parent's lie together in memory: contractions over children copy nothing then."""
    return votes.transpose(-3, -2).contiguous().transpose(-3, -2)


def check_votes(votes: Tensor, act: Tensor | None, mask: Tensor | None, edges: Tensor | None) -> None:
    """Say in one sentence what is wrong with a call, before it fails somewhere deeper."""
    if not votes.is_floating_point():
        raise ValueError(f"votes must be floating point, got {votes.dtype}")
    if edges is None:
        if votes.ndim != 4:
            raise ValueError(f"votes must have shape (B, I, J, D), got {tuple(votes.shape)}")
        check_children(votes, act, mask)
        return
    if votes.ndim != 5 or tuple(votes.shape[1:3]) != tuple(edges.shape):
        raise ValueError(
            f"with edges {tuple(edges.shape)} the votes must have shape (B, P, K, J, D), got {tuple(votes.shape)}"
        )
    for what, value in (("act", act), ("mask", mask)):
        if value is not None and (value.ndim != 2 or value.shape[0] != votes.shape[0]):
            raise ValueError(f"{what} must have shape (B, I), got {tuple(value.shape)}")


def check_children(votes: Tensor, act: Tensor | None, mask: Tensor | None) -> None:
    """Refuse activations and masks that are not (B, I), as the first two axes of votes, or of children, are."""
    children = tuple(votes.shape[:2])
    for what, value in (("act", act), ("mask", mask)):
        if value is not None and tuple(value.shape) != children:
            raise ValueError(f"{what} must have shape (B, I) = {children}, got {tuple(value.shape)}")


def child_weights(votes: Tensor, act: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Activation and mask as one factor per child (B, I), or None where every child counts fully."""
    if mask is None:
        return act
    return mask.to(votes.dtype) if act is None else act.masked_fill(~mask.bool(), 0)


def check_count(what: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, got {value!r}")


def weigh(coupling: Tensor, weights: Tensor | None, edges: Tensor | None) -> Tensor:
    """Couplings times the children's factors (B, I): what each vote really counts. Shapes: as ``coupling``."""
    if weights is None:
        return coupling
    return coupling * (weights if edges is None else weights[:, edges]).unsqueeze(-1)


def gather(coupling: Tensor, votes: Tensor) -> Tensor:
    """Each parent's sum of coupled votes [Eq. 2]: (..., I, J), (..., I, J, D) -> (..., J, D)."""
    return torch.einsum("...ij,...ijd->...jd", coupling, votes)


def agree(votes: Tensor, pose: Tensor) -> Tensor:
    """How much each vote agrees with its parent: (..., I, J, D), (..., J, D) -> (..., I, J)."""
    return torch.einsum("...ijd,...jd->...ij", votes, pose)


def stack_trace(history: list[tuple[Tensor, Tensor, Tensor]]) -> Trace:
    """(coupling, logits, pose) of each iteration as one trace."""
    couplings, logits, poses = (torch.stack(column) for column in zip(*history, strict=True))
    return Trace(couplings, logits, poses)


def couple(logits: Tensor, edges: Tensor | None = None, *, leaky: bool = False) -> Tensor:
    """Couplings from logits: each child's softmax over its parents [Eq. 3].

    ``leaky`` adds an orphan parent with logit zero that takes what no real parent explains; its share is dropped, so
    a child's couplings then sum to less than 1.

    With ``edges`` a child appears at every position that sees it, and the softmax runs over all of these: a scatter
    log-sum-exp.

    Shapes: ``logits`` (B, I, J) -> (B, I, J); with ``edges`` (P, K), (B, P, K, J) -> (B, P, K, J).
    """
    if edges is None:
        if leaky:
            logits = torch.cat([torch.zeros_like(logits[..., :1]), logits], dim=-1)
        coupling = logits.softmax(dim=-1)
        return coupling[..., 1:] if leaky else coupling
    B, P, K, J = logits.shape
    child = edges.reshape(1, P * K).expand(B, -1)  # (B, P*K)
    num_children = cast(int, edges.max().item()) + 1  # not int(): an exporter cannot see into that
    flat = logits.reshape(B, P * K, J)
    floor = 0.0 if leaky else -torch.inf
    peak = flat.new_full((B, num_children), floor).scatter_reduce(1, child, flat.detach().amax(-1), "amax")
    peak = peak.masked_fill(peak == -torch.inf, 0.0)  # a child that nobody sees
    shifted = (flat - peak.gather(1, child).unsqueeze(-1)).exp()  # (B, P*K, J)
    start = (-peak).exp() if leaky else torch.zeros_like(peak)  # the orphan's share
    total = start.scatter_add(1, child, shifted.sum(-1))  # (B, I)
    return (shifted / total.gather(1, child).unsqueeze(-1)).reshape(B, P, K, J)
