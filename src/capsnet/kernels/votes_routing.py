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
from capsnet.kernels._procedure import Options, Plain, Saved, StoredVotes
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
