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
    - ``recomputes``: whether a dense layer computes most of ``route`` again in the backward pass instead of storing it:
      less memory, more time, for a routing that stores much for each child.
    """

    name: ClassVar[str] = ""
    sentence: ClassVar[str] = ""
    normalised: ClassVar[Normalised] = "parents"
    decides: ClassVar[bool] = True
    iteration_name: ClassVar[str] = "iteration"
    presence_is_length: ClassVar[bool] = True
    formula: ClassVar[Formula] = Formula()
    continues: ClassVar[bool] = False
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    dense_options: ClassVar[Mapping[str, Any]] = {}
    wants_presence: ClassVar[bool] = False
    vote_free: ClassVar[bool] = True
    recomputes: ClassVar[bool] = False

    @property
    def iterates(self) -> bool:
        return any(field.name == "iterations" for field in dataclasses.fields(self))

    @property
    def leaky(self) -> bool:  # no class variable: it would put the option of that name before all others
        return False

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

        declared = {"forms": not self.vote_free, "recompute": self.recomputes}
        parents = kernels.route(route, u, weight, weights, params, memory, **declared)
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
    """Values of children (B, I, ...); with edges, for each edge (B, P, K, ...)."""
    return values if edges is None else values[:, edges.index]


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
        return check_children(votes.shape[:2], act, mask)
    if not isinstance(edges, Edges):
        raise ValueError(f"edges must be Edges(index, children), got {type(edges).__name__}")
    if votes.ndim != 5 or tuple(votes.shape[1:3]) != tuple(edges.index.shape):
        raise ValueError(
            f"with edges {tuple(edges.index.shape)} the votes must have shape (B, P, K, J, D), got {tuple(votes.shape)}"
        )
    return check_children((votes.shape[0], edges.children), act, mask)


def check_children(children: tuple[int, ...], act: Tensor | None, mask: Tensor | None) -> None:
    """Refuse activations and masks that are not of the shape of the ``children``, (B, I)."""
    for what, value in (("act", act), ("mask", mask)):
        if value is not None and value.shape != children:
            raise ValueError(f"{what} must have shape (B, I) = {tuple(children)}, got {tuple(value.shape)}")


def child_weights(votes: Tensor, act: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Activation and mask as one factor per child (B, I), or None if all are 1."""
    if mask is None:
        return act
    return mask.to(votes.dtype) if act is None else act.masked_fill(~mask.bool(), 0)


def check_count(what: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1. Beyond ``MOST_ITERATIONS`` a forward pass would not end."""
    if type(value) is not int or not 1 <= value <= MOST_ITERATIONS:
        raise ValueError(f"{what} must be a whole number from 1 to {MOST_ITERATIONS}, got {value!r}")
