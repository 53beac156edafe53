"""Dynamic routing of votes, with a backward pass that saves couplings instead of the history of every iteration.

For layers whose votes do not come from one matrix per pair of capsules (shared weights, convolutional ones), and for
few examples, where making the votes is faster than the fused form. The reference is routing/dynamic.py.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from capsnet.kernels import _procedure
from capsnet.kernels._autocast import in_single
from capsnet.kernels._procedure import Options, Plain, Saved
from capsnet.kernels.cost import choose_votes_routing

_CHUNK = 8 << 20  # bytes of votes per chunk


@in_single
def route_votes(
    votes: Tensor,
    *,
    iterations: int = 3,
    gradient: Literal["all", "last"] = "all",
    leaky: bool = False,
    plain: Plain | None = None,
    bias: Tensor | None = None,
    act: Tensor | None = None,
) -> Tensor | None:
    """Procedure 1, or None where the caller should use the plain form. Arguments as those of ``routing.Dynamic``.

    Shapes: votes (B, I, J, D), bias (J, D), act (B, I) -> pose (B, J, D).
    """
    if not choose_votes_routing(votes, bias, act):
        return None
    return _RouteVotes.apply(votes, bias, act, Options(iterations, gradient, leaky, plain))


class StoredVotes:
    """Votes as (J*B, I, D): one small matrix for each parent of each example. Implements ``_procedure.Votes``."""

    def __init__(self, votes: Tensor, with_gradient: bool = False) -> None:
        _, _, self.parents, _ = votes.shape
        arranged = votes.permute(2, 0, 1, 3)  # (J, B, I, D)
        self.shape = arranged.shape
        self.votes = arranged.reshape(-1, *self.shape[2:])  # a view for a single example
        self.d_votes = torch.zeros(self.votes.shape, dtype=votes.dtype) if with_gradient else None

    def mean(self, factor: float) -> Tensor:
        return self.votes.sum(1).mul_(factor).view(*self.shape[:2], -1)

    def sum(self, a: Tensor) -> Tensor:
        return torch.bmm(a.reshape(-1, 1, self.shape[2]), self.votes).view(*self.shape[:2], -1)

    def dot(self, x: Tensor) -> Tensor:
        return torch.bmm(x.reshape(-1, 1, self.shape[3]), self.votes.transpose(1, 2)).view(self.shape[:3])

    def _add(self, a: Tensor, x: Tensor) -> None:
        if self.d_votes is not None:
            self.d_votes.baddbmm_(a.reshape(-1, self.shape[2], 1), x.reshape(-1, 1, self.shape[3]))

    def add_mean(self, factor: float, x: Tensor) -> None:
        if self.d_votes is not None:
            self.d_votes += (x * factor).reshape(-1, 1, self.shape[3])

    def sum_add(self, a: Tensor, x: Tensor) -> Tensor:
        self._add(a, x)
        return self.sum(a)

    def dot_add(self, a: Tensor, x: Tensor) -> Tensor:
        self._add(a, x)
        return self.dot(x)

    def gradient(self) -> Tensor:
        """(B, I, J, D)"""
        assert self.d_votes is not None
        return self.d_votes.view(self.shape).permute(1, 2, 0, 3)


def _chunks(votes: Tensor) -> list[slice]:
    size = max(1, _CHUNK // max(1, votes[0].numel() * votes.element_size()))
    return [slice(start, start + size) for start in range(0, len(votes), size)]


class _RouteVotes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, bias: Tensor | None, act: Tensor | None, options: Options) -> Tensor:
        poses, saved = [], []
        for run in _chunks(votes):
            pose, chunk = _procedure.forward(StoredVotes(votes[run]), bias, None if act is None else act[run], options)
            poses.append(pose.transpose(0, 1))
            saved.append(chunk)
        ctx.save_for_backward(votes, bias, act)
        ctx.saved, ctx.options = saved, options
        return torch.cat(poses)

    @staticmethod
    @in_single  # backward may be called under autocast too
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (votes, bias, act), options = gradients, ctx.saved_tensors, ctx.options
        if torch.is_grad_enabled():
            needed = ctx.needs_input_grad[:3]
            return *_procedure.differentiable(options.plain, (votes, bias, act), needed, gradient), None
        d_votes = torch.empty_like(votes)
        d_act = None if act is None else torch.empty_like(act)
        d_bias = None if bias is None else torch.zeros_like(bias)
        saved: list[Saved] = ctx.saved
        for run, chunk in zip(_chunks(votes), saved, strict=True):
            stored = StoredVotes(votes[run], with_gradient=True)
            d_pose = gradient[run].transpose(0, 1)
            db, da = _procedure.backward(stored, chunk, None if act is None else act[run], d_pose, options)
            d_votes[run] = stored.gradient()
            if d_bias is not None:
                d_bias += db
            if d_act is not None and da is not None:
                d_act[run] = da
        return d_votes, d_bias, d_act, None
