"""Procedure 1 of the paper and its derivative, as contractions of the votes. The reference is routing/dynamic.py.

Routing never needs the votes themselves, only two contractions of them, with couplings and with parents:

    sum(a)_j  = sum_i a_ij votes_ij        dot(x)_ij = votes_ij . x_j

Logits are linear in the poses so far, b_ij = votes_ij . V_j with V the sum of the poses, so they are not accumulated
but recomputed. In the first iteration all couplings are equal. Every gradient of the votes has the form

    d votes_ij = sum_m a_m,ij x_m,j        m: (coupling, ds) and (d logits, V) of each iteration

so the backward pass consists of the same contractions. It needs the couplings of iterations 2 to r and the s_j.

Layouts: parent, batch, child. The long axis of children is last, so that every element-wise step is contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from capsnet.functional import squash

Plain: TypeAlias = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]  # votes (B, I, J, D), bias, act -> pose


@dataclass(frozen=True)
class Options:
    """Hyper-parameters of ``routing.Dynamic``; ``plain`` is its reference form, for derivatives of derivatives."""

    iterations: int = 3
    gradient: Literal["all", "last"] = "all"
    leaky: bool = False
    plain: Plain | None = None


class StoredVotes:
    """Votes of some examples as (J*B, I, D): one small matrix for each parent of each example.

    *Shapes*: a (J, B, I), x and sums (J, B, D).
    """

    def __init__(self, votes: Tensor, with_gradient: bool = False) -> None:
        _, _, self.parents, _ = votes.shape
        arranged = votes.permute(2, 0, 1, 3)  # (J, B, I, D)
        self.shape = arranged.shape
        self.votes = arranged.reshape(-1, *self.shape[2:])  # a view for a single example
        self.d_votes = torch.zeros(self.votes.shape, dtype=votes.dtype) if with_gradient else None

    def mean(self, factor: float) -> Tensor:
        """sum(a) with all of a equal to ``factor``."""
        return self.votes.sum(1).mul_(factor).view(*self.shape[:2], -1)

    def sum(self, a: Tensor) -> Tensor:
        return torch.bmm(a.reshape(-1, 1, self.shape[2]), self.votes).view(*self.shape[:2], -1)

    def dot(self, x: Tensor) -> Tensor:
        return torch.bmm(x.reshape(-1, 1, self.shape[3]), self.votes.transpose(1, 2)).view(self.shape[:3])

    def _add(self, a: Tensor, x: Tensor) -> None:
        if self.d_votes is not None:
            self.d_votes.baddbmm_(a.reshape(-1, self.shape[2], 1), x.reshape(-1, 1, self.shape[3]))

    def add_mean(self, factor: float, x: Tensor) -> None:
        """d votes += factor x."""
        if self.d_votes is not None:
            self.d_votes += (x * factor).reshape(-1, 1, self.shape[3])

    def sum_add(self, a: Tensor, x: Tensor) -> Tensor:
        """d votes += a x; returns sum(a)."""
        self._add(a, x)
        return self.sum(a)

    def dot_add(self, a: Tensor, x: Tensor) -> Tensor:
        """d votes += a x; returns dot(x)."""
        self._add(a, x)
        return self.dot(x)

    def gradient(self) -> Tensor:
        """(B, I, J, D)"""
        assert self.d_votes is not None
        return self.d_votes.view(self.shape).permute(1, 2, 0, 3)


@dataclass
class Saved:
    """What backward needs: s of each iteration, couplings of those after the first."""

    sums: list[Tensor] = field(default_factory=list)
    couplings: list[Tensor] = field(default_factory=list)


def squash_backward(s: Tensor, dv: Tensor) -> Tensor:
    """squash(s) = s f(n), f = n / (1 + n^2): ds = f dv + s (s . dv) f'(n) / n, which tends to 0 with n."""
    norm = torch.linalg.vector_norm(s, dim=-1, keepdim=True)
    square = norm * norm
    outer = (1 - square) / ((1 + square).square() * norm.clamp_min(torch.finfo(s.dtype).tiny))
    return dv * (norm / (1 + square)) + s * ((s * dv).sum(-1, keepdim=True) * outer)


def _couple(logits: Tensor, leaky: bool) -> Tensor:
    """Softmax over the parents, the first axis; leaky: beside an orphan parent of logit zero, whose factor is
    dropped."""
    if not leaky:
        return logits.softmax(dim=0)
    return torch.cat([logits, torch.zeros_like(logits[:1])]).softmax(dim=0)[:-1]


def forward(votes: StoredVotes, bias: Tensor | None, act: Tensor | None, options: Options) -> tuple[Tensor, Saved]:
    """pose (J, B, D). bias (J, D) is added to every s; act (B, I) weighs each child's contribution to it."""
    factor, saved = 1 / (votes.parents + options.leaky), Saved()
    s = votes.mean(factor) if act is None else votes.sum((act * factor).expand(votes.parents, -1, -1))
    pose, total = s, None
    for iteration in range(options.iterations):
        if total is not None:
            coupling = _couple(votes.dot(total), options.leaky)
            s = votes.sum(coupling if act is None else coupling * act)
            saved.couplings.append(coupling)
        if bias is not None:
            s = s + bias[:, None]
        saved.sums.append(s)
        pose = squash(s)
        if iteration < options.iterations - 1:
            total = pose if total is None else total + pose
    return pose, saved


def backward(
    votes: StoredVotes, saved: Saved, act: Tensor | None, d_pose: Tensor, options: Options
) -> tuple[Tensor, Tensor | None]:
    """Adds to the votes' gradient; returns those of the bias (J, D) and of act (B, I)."""
    poses = [squash(s) for s in saved.sums[:-1]]
    d_poses = [torch.zeros_like(pose) for pose in poses]
    d_act = None if act is None else torch.zeros_like(act)
    d_bias = torch.zeros_like(d_pose[:, 0])
    for t in range(options.iterations - 1, 0, -1):
        ds = squash_backward(saved.sums[t], d_pose)
        d_bias += ds.sum(1)
        coupling = saved.couplings[t - 1]
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
    ds = squash_backward(saved.sums[0], d_pose)
    factor = 1 / (votes.parents + options.leaky)
    if d_act is None or act is None:
        votes.add_mean(factor, ds)
    else:
        d_act += votes.dot_add((act * factor).expand(votes.parents, -1, -1), ds).sum(0).mul_(factor)
    return d_bias + ds.sum(1), d_act


def differentiable(
    function: Callable[..., Tensor | tuple[Tensor, ...]] | None,
    arguments: tuple[Tensor | None, ...],
    needed: tuple[bool, ...],
    gradient: Tensor | tuple[Tensor, ...],
) -> list[Tensor | None]:
    """The arguments' gradients with a graph, through the reference form: for derivatives of derivatives."""
    if function is None:
        raise ValueError("derivatives of derivatives need the plain form of the procedure")
    inputs = [t for t, need in zip(arguments, needed, strict=True) if need and t is not None]
    results = function(*arguments)
    pairs = zip(results, gradient, strict=True) if isinstance(results, tuple) else [(results, gradient)]
    outputs, their = zip(*((result, g) for result, g in pairs if result.requires_grad), strict=True)
    found = iter(torch.autograd.grad(outputs, inputs, their, create_graph=True, allow_unused=True))
    return [next(found) if need and t is not None else None for t, need in zip(arguments, needed, strict=True)]
