"""The steps that routings are made of: couplings from logits, sums and agreements of votes.

``gather``, ``agree``, ``distance`` and ``square_length`` also take votes that are not in memory (``kernels.Votes``), so
that a routing which uses no other operation on votes is fast and small without a kernel of its own.
"""

import torch
from torch import Tensor

from capsnet import kernels
from capsnet.routing.base import Edges, Trace, per_edge


def level(votes: Tensor, value: float = 0.0) -> Tensor:
    """The same logit for every vote: where most routings start. Shapes: votes (..., I, J, D) -> (..., I, J).

    It is one number in memory. ``couple`` and ``weigh`` keep couplings that are equal for all parents as one column,
    for which ``gather`` needs a single product.
    """
    return votes.new_ones(()).mul(value).expand(votes.shape[:-1])


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


def softmax(logits: Tensor, dim: int) -> Tensor:
    """Softmax over the parents (-1) or the children (-2) of logits (..., I, J), in their order in memory."""
    if logits.stride(-1) == 1:
        return logits.softmax(dim=dim)
    # parents first: the order of ``agree`` of votes that are not in memory
    return logits.movedim(-1, 0).softmax(dim=0 if dim == -1 else -1).movedim(0, -1)


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


def stack_trace(history: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> Trace:
    """(coupling, logits, pose, activation) of each iteration as one trace."""
    couplings, logits, poses, activations = (torch.stack(column) for column in zip(*history, strict=True))
    return Trace(couplings, logits, poses, activations)
