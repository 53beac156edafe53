"""Procedure 1 of the paper and its derivative, written over whatever can contract votes.

Routing never needs the votes themselves, only two contractions of them, with couplings and with parents:

    sum(a)_j  = sum_i a_ij votes_ij        dot(x)_ij = votes_ij . x_j

Logits are linear in the poses so far, b_ij = votes_ij . V_j with V the sum of the poses, so they are not accumulated
but contracted anew. In the first iteration all couplings are equal. Every gradient that reaches the votes has the form

    d votes_ij = sum_m a_m,ij x_m,j        m: (coupling, ds) and (d logits, V) of each iteration

so backward, by hand, consists of the same contractions. Kept from the forward pass: the couplings of iterations 2 ...
r and the tiny s_j.

Layouts: parent, batch, child. The long axis of children is last, so that every element-wise step is contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Options:
    iterations: int = 3
    gradient: Literal["all", "last"] = "all"
    leaky: bool = False


class Votes(Protocol):
    """Votes of some examples, however they are held. a (J, B, I), x and sums (J, B, D)."""

    parents: int

    def mean(self, share: float) -> Tensor:
        """sum(a) with all of a equal to `share`."""
        ...

    def sum(self, a: Tensor) -> Tensor: ...

    def dot(self, x: Tensor) -> Tensor: ...

    def add_mean(self, share: float, x: Tensor) -> None:
        """d votes += share x."""
        ...

    def sum_add(self, a: Tensor, x: Tensor) -> Tensor:
        """d votes += a x; returns sum(a)."""
        ...

    def dot_add(self, a: Tensor, x: Tensor) -> Tensor:
        """d votes += a x; returns dot(x)."""
        ...


@dataclass
class Kept:
    """What backward needs: s of each iteration, couplings of those after the first."""

    sums: list[Tensor] = field(default_factory=list)
    couplings: list[Tensor] = field(default_factory=list)


def squash(s: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    return s * (norm / (1 + norm * norm))


def squash_backward(s: Tensor, dv: Tensor) -> Tensor:
    """squash(s) = s f(n), f = n / (1 + n^2): ds = f dv + s (s . dv) f'(n) / n, which tends to 0 with n."""
    norm = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    square = norm * norm
    outer = (1 - square) / ((1 + square).square() * norm.clamp_min(torch.finfo(s.dtype).tiny))
    return dv * (norm / (1 + square)) + s * ((s * dv).sum(-1, keepdim=True) * outer)


def _couple(logits: Tensor, leaky: bool) -> Tensor:
    """Softmax over the parents, the first axis; leaky: beside an orphan parent of logit zero, whose share is
    dropped."""
    if not leaky:
        return logits.softmax(dim=0)
    return torch.cat([logits, torch.zeros_like(logits[:1])]).softmax(dim=0)[:-1]


def forward(votes: Votes, bias: Tensor | None, act: Tensor | None, options: Options) -> tuple[Tensor, Kept]:
    """pose (J, B, D). bias (J, D) is added to every s; act (B, I) weighs each child's contribution to it."""
    share, kept = 1 / (votes.parents + options.leaky), Kept()
    s = votes.mean(share) if act is None else votes.sum((act * share).expand(votes.parents, -1, -1))
    pose, total = s, None
    for iteration in range(options.iterations):
        if total is not None:
            coupling = _couple(votes.dot(total), options.leaky)
            s = votes.sum(coupling if act is None else coupling * act)
            kept.couplings.append(coupling)
        if bias is not None:
            s = s + bias[:, None]
        kept.sums.append(s)
        pose = squash(s)
        if iteration < options.iterations - 1:
            total = pose if total is None else total + pose
    return pose, kept


def backward(
    votes: Votes, kept: Kept, act: Tensor | None, d_pose: Tensor, options: Options
) -> tuple[Tensor, Tensor | None]:
    """Adds to the votes' gradient; returns those of the bias (J, D) and of act (B, I)."""
    poses = [squash(s) for s in kept.sums[:-1]]
    d_poses = [torch.zeros_like(pose) for pose in poses]
    d_act = None if act is None else torch.zeros_like(act)
    d_bias = torch.zeros_like(d_pose[:, 0])
    for t in range(options.iterations - 1, 0, -1):
        ds = squash_backward(kept.sums[t], d_pose)
        d_bias += ds.sum(1)
        coupling = kept.couplings[t - 1]
        d_coupling = votes.dot_add(coupling if act is None else coupling * act, ds)
        if d_act is not None and act is not None:
            d_act += (coupling * d_coupling).sum(0)
            d_coupling *= act
        if options.gradient == "last":
            return d_bias, d_act
        d_logits = d_coupling.sub_((coupling * d_coupling).sum(0)).mul_(coupling)  # the orphan's part of the sum is 0
        d_total = votes.sum_add(d_logits, sum(poses[1:t], poses[0]))
        for earlier in d_poses[:t]:
            earlier += d_total
        d_pose = d_poses[t - 1]
    ds = squash_backward(kept.sums[0], d_pose)
    share = 1 / (votes.parents + options.leaky)
    if d_act is None or act is None:
        votes.add_mean(share, ds)
    else:
        d_act += votes.dot_add((act * share).expand(votes.parents, -1, -1), ds).sum(0).mul_(share)
    return d_bias + ds.sum(1), d_act


def plain(votes: Tensor, bias: Tensor | None, act: Tensor | None, options: Options) -> Tensor:
    """The slow twin on votes (B, I, J, D) -> (B, J, D): every step an operator that autograd knows."""
    logits = votes.new_zeros(votes.shape[:3]).permute(2, 0, 1)  # (J, B, I)
    pose = votes.new_zeros(())
    for iteration in range(options.iterations):
        last = iteration == options.iterations - 1
        seen = votes if last or options.gradient == "all" else votes.detach()
        coupling = _couple(logits, options.leaky)
        s = torch.einsum("jbi,bijd->bjd", coupling if act is None else coupling * act, seen)
        pose = squash(s if bias is None else s + bias)
        if not last:
            agreement = torch.einsum("bijd,bjd->jbi", seen, pose)
            logits = logits + (agreement if options.gradient == "all" else agreement.detach())
    return pose


def differentiable(
    function: Callable[..., Tensor],
    arguments: tuple[Tensor | None, ...],
    needed: tuple[bool, ...],
    gradient: Tensor,
) -> list[Tensor | None]:
    """The arguments' gradients with a graph of their own, through a slow twin: for derivatives of derivatives."""
    wanted = [t for t, need in zip(arguments, needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(function(*arguments), wanted, gradient, create_graph=True))
    return [next(found) if need else None for need in needed]
