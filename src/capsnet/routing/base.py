"""The interface of routings: from votes to parents.

A routing computes how much each child's vote counts for each parent. It is an immutable object with hyper-parameters,
without weights or state, so an example's result does not depend on other examples or on previous calls.

    routing(votes, act=None, *, mask=None, edges=None, params=None, trace=False, start=None) -> Routed(pose, act, trace)

*Shapes*, dense:

- ``votes`` (B, I, J, D): what child i of example b predicts for parent j [Eq. 2];
- ``act`` (B, I): how present each child is; None is 1 for all;
- ``mask`` (B, I): False where a child is padding;
- result: ``pose`` (B, J, D), ``act`` (B, J).

*Shapes*, convolutional: ``edges.index`` (P, K) lists the K children that each of P positions sees, and ``votes`` is
(B, P, K, J, D). The parents of all positions are stacked: ``pose`` (B, P, J, D), ``act`` (B, P, J). A child's couplings
are normalised over *all* its parents, across overlapping receptive fields.

Learned tensors (a bias, EM's costs) belong to the layer. ``param_shapes(I, J, D)`` declares them, ``params`` passes
them; a tensor that is left out has no effect.

A routing that declares ``continues`` takes ``start``, poses of the parents or 0, and makes *one* iteration from them.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from capsnet import kernels
from capsnet._limits import MOST_ITERATIONS
from capsnet._names import check_name
from capsnet.functional import full_precision, get_squash, without_autocast

_UNSET = torch.empty(0)


class Edges(NamedTuple):
    """Which children each position sees: ``index`` (P, K) numbers them from 0 to ``children`` - 1."""

    index: Tensor
    children: int


class Phases(NamedTuple):
    """Unit vectors of N components, of ``children`` (R, B, I, N) and ``parents`` (R, B, J, N) or (R, B, P, J, N)."""

    children: Tensor
    parents: Tensor


class Trace(NamedTuple):
    """What happened in each of the R iterations.

    ``couplings`` and ``logits`` are (R, B, I, J), ``poses`` (R, B, J, D), ``activations`` (R, B, J) and ``votes``
    (B, I, J, D); in the convolutional form (R, B, P, K, J), (R, B, P, J, D), (R, B, P, J) and (B, P, K, J, D). A
    routing returns all but the votes, which the base class adds. ``grid`` = (H, W, types) is how the children lie in
    the image, or None. ``phases`` are those of a routing by synchronisation.
    """

    couplings: Tensor
    logits: Tensor
    poses: Tensor
    activations: Tensor
    votes: Tensor = _UNSET
    grid: tuple[int, int, int] | None = None
    phases: Phases | None = None


class Routed(NamedTuple):
    """The parents: ``pose`` (B, J, D), ``act`` (B, J), and the trace with ``trace=True``."""

    pose: Tensor
    act: Tensor
    trace: Trace | None = None


class Formula(NamedTuple):
    """How couplings and presences are computed, as plain text: ``_`` before subscripts, ``^`` before superscripts.

    Sub- and superscripts end with the last letter or digit: ``c_ij = exp(b_ij) / Σ_k exp(b_ik)``, ``|s_j|^2``.
    """

    coupling: str = ""
    presence: str = ""


Normalised = Literal["parents", "children", "none"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Routing:
    """Base class of all routings: checks the arguments and calls ``route``.

    Class attributes and properties describe a routing:

    - ``name``: that of ``routing.get``.
    - ``sentence``: one plain sentence about what a child or a parent does.
    - ``normalised``: over what couplings sum to one: ``"parents"`` (each child's), ``"children"`` (each parent's) or
      ``"none"`` (a learned prior is added, so they need not).
    - ``leaky``: couplings of a child sum to less than one, because an orphan parent takes the rest.
    - ``decides``: whether couplings depend on agreement.
    - ``iterates``: whether there is a hyper-parameter ``iterations``; ``iteration_name``: what an iteration is called.
    - ``presence_is_length``: whether a parent's presence is the length of its pose.
    - ``formula``: how couplings and presences are computed.
    - ``continues``: whether an iteration needs nothing but the parents' poses of the one before, where poses of 0 make
      equal couplings, so that it can be made alone: ``route`` then has one more parameter, ``start=None``.
    - ``forms``: other settings with their own names, ``{"fixed-point": {"update": "set"}}``.
    - ``dense_options``: hyper-parameters that suit a dense layer of squashed children.
    - ``at(progress)``: the routing at a point of training, for one whose decisions sharpen while the votes are learnt.
    - ``wants_presence``: whether children should have a presence apart from their pose (squash ``unit``).
    - ``vote_free``: whether ``route`` uses votes in ``gather``, ``agree``, ``distance`` and ``square_length`` only, so
      that a dense layer never forms them. Otherwise it forms those of a few examples at a time.
    """

    name: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    normalised: ClassVar[Normalised] = "parents"
    decides: ClassVar[bool] = True
    iteration_name: ClassVar[str] = "iteration"
    continues: ClassVar[bool] = False
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    dense_options: ClassVar[Mapping[str, Any]] = {}
    wants_presence: ClassVar[bool] = False
    vote_free: ClassVar[bool] = True

    @property
    def iterates(self) -> bool:
        return any(field.name == "iterations" for field in dataclasses.fields(self))

    @property
    def leaky(self) -> bool:
        return False

    @property
    def presence_is_length(self) -> bool:
        return True

    @property
    def formula(self) -> Formula:
        return Formula()

    def __call__(
        self,
        votes: Tensor,
        act: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        edges: Edges | None = None,
        params: Mapping[str, Tensor] | None = None,
        trace: bool = False,
        start: Tensor | None = None,
    ) -> Routed:
        check_votes(votes, act, mask, edges)
        votes = full_precision(votes)
        more = {} if start is None else {"start": self._checked_start(start, votes)}
        learned = dict(params or {})
        for name in learned:
            check_name(f"learned tensor of {self.name} routing", name, self.param_shapes(1, 1, 1))
        if mask is not None:  # zeroed and not only weighted by zero, because padding may contain NaN
            absent = ~per_edge(mask.bool(), edges)
            votes = votes.masked_fill(absent[..., None, None], 0)
        with without_autocast(votes):  # logits, softmax and squash are in float32
            routed = self.route(by_parent(votes), child_weights(votes, act, mask), edges, learned, trace, **more)
        return routed if routed.trace is None else routed._replace(trace=routed.trace._replace(votes=votes))

    def _checked_start(self, start: Tensor, votes: Tensor) -> Tensor:
        """Poses to start from, in the shape and precision of this call's parents."""
        if not self.continues:
            raise ValueError(f"{self.name} routing cannot start from given parents")
        expected = (*votes.shape[:-3], *votes.shape[-2:])
        if start.ndim and tuple(start.shape) != expected:
            raise ValueError(f"start must be 0 or have the parents' shape {expected}, got {tuple(start.shape)}")
        return start.to(votes.dtype).expand(expected)

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        """The algorithm. ``weights`` (B, I) is activation and mask as one factor per child, or None."""
        raise NotImplementedError

    def fused(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, params: dict[str, Tensor], memory: kernels.Memory
    ) -> Routed | None:
        """``route`` from children u (B, I, K) and matrices (I, J, D, K), or None where votes should be made for it.

        ``route`` gets ``kernels.Votes`` of a few examples at a time, which ``gather``, ``agree`` and ``distance``
        contract without forming them.
        """

        def route(votes: Tensor, weights: Tensor | None, params: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            routed = self.route(votes, weights, None, params, False)
            return routed.pose, routed.act

        parents = kernels.route(route, u, weight, weights, params, memory, forms=not self.vote_free)
        return None if parents is None else Routed(*parents)

    def fused_windows(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, edges: Edges, params: dict[str, Tensor], memory: Any
    ) -> Routed | None:
        """``route`` of windows: children u (B, P, K, D'), matrices (K, J, D, D'); or None if it is not faster."""
        return None

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        """The learned tensors of a layer with I children, J parents and D-dimensional poses."""
        return {}

    def param_init(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The start value of a learned tensor: one without effect."""
        return torch.zeros(shape)

    def at(self, progress: float) -> "Routing":
        """The routing at ``progress`` in [0, 1] of training; at 1, and after training, it is the routing itself."""
        return self

    def options(self) -> dict[str, object]:
        """The hyper-parameters: ``routing.get(r.name, **r.options())`` equals ``r``."""
        return dataclasses.asdict(self)


class SquashingRouting(Routing):
    """Base class of routings that squash each parent's sum. Subclasses have a hyper-parameter ``squash``."""

    squash: str  # not a field: subclasses declare it, after their other hyper-parameters

    def __post_init__(self) -> None:
        get_squash(self.squash)

    @property
    def presence_is_length(self) -> bool:
        return get_squash(self.squash).presence_is_length


def per_edge(values: Tensor, edges: Edges | None) -> Tensor:
    """Values of children (B, I); with edges, for each edge (B, P, K)."""
    return values if edges is None else values[:, edges.index]


def undecided(couplings: Tensor, logits: Tensor, normalised: Normalised) -> Tensor:
    """Mean entropy of the couplings of a child, relative to its largest value: 1 undecided, 0 decided.

    With ``normalised="children"``, it is the entropy of the couplings of a parent. Couplings to which a learned prior
    was added (``"none"``) are replaced by the softmax of their logits.

    Shapes: ``couplings`` and ``logits`` (R, ..., I, J) -> (R, ...).
    """
    axis = -2 if normalised == "children" else -1
    if normalised == "none":
        probabilities = logits.softmax(dim=axis)
    else:
        probabilities = couplings / couplings.sum(dim=axis, keepdim=True).clamp_min(1e-30)
    entropy = torch.special.entr(probabilities).sum(dim=axis) / math.log(max(2, couplings.shape[axis]))
    return entropy.mean(dim=-1).clamp(0, 1)


def divided(trace: Trace, routing: Routing) -> Tensor:
    """How each child is divided among its parents, also where couplings sum to one over something else.

    Shapes: those of ``trace.couplings``.
    """
    couplings = trace.logits.softmax(dim=-1) if routing.normalised == "none" else trace.couplings
    return couplings / couplings.sum(dim=-1, keepdim=True).clamp_min(1e-30)


def contributions(trace: Trace) -> Tensor:
    """What each child brings to each parent, along the parent: c_ij (u_hat_ij . v_j) / |v_j|, in every iteration.

    Over the children these add up to the part of s_j = sum_i c_ij u_hat_ij that lies along v_j. A routing that squashes
    s_j or a multiple of it, as those do that declare ``presence_is_length``, keeps its direction: the sum is then
    |s_j|, apart from a learned bias or weight. Others may normalise the pose, or count each child as much as it is
    present, which the couplings leave out: the sum is then neither the length of the pose nor the presence, and the
    numbers only compare the children of a parent.

    Shapes: a dense trace -> (R, B, I, J).
    """
    if trace.couplings.ndim != 4:
        raise ValueError(f"expected the trace of a dense layer, got couplings of shape {tuple(trace.couplings.shape)}")
    along = torch.nn.functional.normalize(trace.poses, dim=-1)  # (R, B, J, D)
    return trace.couplings * torch.einsum("bijd,rbjd->rbij", trace.votes, along)


def by_parent(votes: Tensor) -> Tensor:
    """The same votes with each parent's together in memory, so that contractions over children copy nothing."""
    return votes.transpose(-3, -2).contiguous().transpose(-3, -2)


def check_votes(votes: Tensor, act: Tensor | None, mask: Tensor | None, edges: Edges | None) -> None:
    """Refuse arguments of the wrong type or shape."""
    if not votes.is_floating_point():
        raise ValueError(f"votes must be floating point, got {votes.dtype}")
    if edges is None:
        if votes.ndim != 4:
            raise ValueError(f"votes must have shape (B, I, J, D), got {tuple(votes.shape)}")
        check_children(votes, act, mask)
        return
    if not isinstance(edges, Edges):
        raise ValueError(f"edges must be Edges(index, children), got {type(edges).__name__}")
    if votes.ndim != 5 or tuple(votes.shape[1:3]) != tuple(edges.index.shape):
        raise ValueError(
            f"with edges {tuple(edges.index.shape)} the votes must have shape (B, P, K, J, D), got {tuple(votes.shape)}"
        )
    for what, value in (("act", act), ("mask", mask)):
        if value is not None and tuple(value.shape) != (votes.shape[0], edges.children):
            expected = (votes.shape[0], edges.children)
            raise ValueError(f"{what} must have shape (B, I) = {expected}, got {tuple(value.shape)}")


def check_children(votes: Tensor, act: Tensor | None, mask: Tensor | None) -> None:
    """Refuse activations and masks that are not (B, I), the first two axes of votes or children."""
    children = tuple(votes.shape[:2])
    for what, value in (("act", act), ("mask", mask)):
        if value is not None and tuple(value.shape) != children:
            raise ValueError(f"{what} must have shape (B, I) = {children}, got {tuple(value.shape)}")


def child_weights(votes: Tensor, act: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Activation and mask as one factor per child (B, I), or None if all are 1."""
    if mask is None:
        return act
    return mask.to(votes.dtype) if act is None else act.masked_fill(~mask.bool(), 0)


def check_count(what: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1. Beyond ``MOST_ITERATIONS`` a forward pass would not end."""
    if type(value) is not int or not 1 <= value <= MOST_ITERATIONS:
        raise ValueError(f"{what} must be a whole number from 1 to {MOST_ITERATIONS}, got {value!r}")


def level(votes: Tensor, value: float = 0.0) -> Tensor:
    """The same logit for every vote: where most routings start. Shapes: votes (..., I, J, D) -> (..., I, J).

    It is one number in memory. ``couple`` and ``weigh`` keep couplings that are equal for all parents as one column,
    for which ``gather`` needs a single product.
    """
    return votes.new_ones(()).mul(value).expand(votes.shape[:-1])


def weigh(coupling: Tensor, weights: Tensor | None, edges: Edges | None) -> Tensor:
    """Couplings times the children's factors (B, I): the weight of each vote. Shapes: as ``coupling``."""
    if weights is None:
        return coupling
    factors = per_edge(weights, edges).unsqueeze(-1)
    if coupling.stride(-1) == 0:
        return (coupling[..., :1] * factors).expand(coupling.shape)
    return coupling * factors


def gather(coupling: Tensor, votes: Tensor) -> Tensor:
    """Each parent's sum of coupled votes [Eq. 2]: (..., I, J), (..., I, J, D) -> (..., J, D)."""
    if isinstance(votes, kernels.Votes):
        return votes.coupled(coupling)
    return torch.einsum("...ij,...ijd->...jd", coupling, votes)


def agree(votes: Tensor, pose: Tensor) -> Tensor:
    """How much each vote agrees with its parent: (..., I, J, D), (..., J, D) -> (..., I, J)."""
    if isinstance(votes, kernels.Votes):
        return votes.agreement(pose)
    return torch.einsum("...ijd,...jd->...ij", votes, pose)


def distance(votes: Tensor, pose: Tensor) -> Tensor:
    """Squared distance of each vote from its parent: (..., I, J, D), (..., J, D) -> (..., I, J).

    Of votes that are not in memory the square is multiplied out. Its rounding error is that of their squared length,
    so it is less exact for votes that are far from zero and near each other.
    """
    if isinstance(votes, kernels.Votes):
        square = pose.square().sum(dim=-1).unsqueeze(-2)  # (B, 1, J)
        return (votes.square_length() - 2 * votes.agreement(pose) + square).clamp_min(0)
    return (votes - pose.unsqueeze(-3)).square().sum(dim=-1)


def square_length(votes: Tensor) -> Tensor:
    """Squared length of each vote: (..., I, J, D) -> (..., I, J)."""
    if isinstance(votes, kernels.Votes):
        return votes.square_length().clamp_min(0)
    return votes.square().sum(dim=-1)


def softmax(logits: Tensor, dim: int) -> Tensor:
    """Softmax over the parents (-1) or the children (-2) of logits (..., I, J), in their order in memory."""
    if logits.stride(-1) == 1:
        return logits.softmax(dim=dim)
    # parents first: the order of ``agree`` of votes that are not in memory
    return logits.movedim(-1, 0).softmax(dim=0 if dim == -1 else -1).movedim(0, -1)


def stack_trace(history: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> Trace:
    """(coupling, logits, pose, activation) of each iteration as one trace."""
    couplings, logits, poses, activations = (torch.stack(column) for column in zip(*history, strict=True))
    return Trace(couplings, logits, poses, activations)


def couple(logits: Tensor, edges: Edges | None = None, *, leaky: bool = False) -> Tensor:
    """Couplings from logits: each child's softmax over its parents [Eq. 3].

    ``leaky`` adds an orphan parent with logit zero, whose coupling is dropped, so that a child's couplings sum to less
    than 1. With ``edges`` the softmax runs over the parents at all positions that see the child: a scatter log-sum-exp.

    Shapes: ``logits`` (B, I, J) -> (B, I, J); with ``edges``, (B, P, K, J) -> (B, P, K, J).
    """
    if edges is None:
        shape, equal = logits.shape, not any(logits.stride())  # as ``level`` makes them
        if equal:
            logits = logits[:1, :1]
        if leaky:
            logits = torch.cat([torch.zeros_like(logits[..., :1]), logits], dim=-1)
        coupling = softmax(logits, -1)
        coupling = coupling[..., 1:] if leaky else coupling
        return coupling[..., :1].expand(shape) if equal else coupling
    B, P, K, J = logits.shape
    child = edges.index.reshape(1, P * K).expand(B, -1)  # (B, P*K)
    flat = logits.reshape(B, P * K, J)
    floor = 0.0 if leaky else -torch.inf
    peak = flat.new_full((B, edges.children), floor).scatter_reduce(1, child, flat.detach().amax(-1), "amax")
    peak = peak.masked_fill(peak == -torch.inf, 0.0)  # a child that no position sees
    shifted = (flat - peak.gather(1, child).unsqueeze(-1)).exp()  # (B, P*K, J)
    start = (-peak).exp() if leaky else torch.zeros_like(peak)  # the orphan's coupling
    total = start.scatter_add(1, child, shifted.sum(-1))  # (B, I)
    return (shifted / total.gather(1, child).unsqueeze(-1)).reshape(B, P, K, J)
