"""What a trace says: how decided the couplings are, how children are divided, what each brings to its parents."""

import math

import torch
from torch import Tensor

from capsnet.routing.base import Normalised, Routing, Trace


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
