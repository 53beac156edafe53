"""Dynamic routing from children and weights to parents, without storing the votes.

The votes u_hat[j|i] = W[ij] u[i] are the largest tensor of a capsule network: 94 MB in the paper's, for 128 images.
The two contractions that Procedure 1 needs (_procedure.py) can be moved past W:

    sum_i c_ij W_ij u_i = W_j (c_j * u)             one product (B x I*K)(I*K x D) for each parent
    (W_ij u_i) . x_j    = (W_j^T x_j)_i . u_i       one product (B x D)(D x I*K) for each parent

The intermediate c_j * u is half as large as the votes (K = 8 against D = 16) and is computed for one chunk of the batch
at a time, in which all iterations are done. The first iteration, with equal couplings, is a single matrix product.

The reference is routing/dynamic.py on DenseCaps.votes.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from capsnet.kernels import _procedure
from capsnet.kernels._autocast import in_single
from capsnet.kernels._memory import Memory, fingerprint
from capsnet.kernels._parallel import each, slots
from capsnet.kernels._procedure import Options, Plain, Saved
from capsnet.kernels.cost import choose_routing
from capsnet.kernels.votes_routing import StoredVotes

# Bytes of one chunk's largest tensor, and the least number of examples in a chunk. Smaller chunks read the weights more
# often: half the chunk takes 1.2 times as long with 10 parents, two examples instead of four 1.4 times with 100. Larger
# ones cost memory and are not faster.
_CHUNK, _FEWEST = 8 << 20, 4
_WORTH_SHARING = 1 << 20  # numbers in that tensor, for the whole batch, from which a second thread is used


@in_single
def route(
    u: Tensor,
    weight: Tensor,
    *,
    iterations: int = 3,
    gradient: Literal["all", "last"] = "all",
    leaky: bool = False,
    plain: Plain | None = None,
    bias: Tensor | None = None,
    act: Tensor | None = None,
    memory: Memory | None = None,
) -> Tensor | None:
    """Procedure 1 on votes W u, or None where the caller should make votes and route them itself.

    Arguments as those of ``routing.Dynamic``; ``act`` (B, I) weighs each child's contribution (activation times mask).

    Shapes: u (B, I, K), weight (I, J, D, K), bias (J, D) -> pose (B, J, D).
    """
    options = Options(iterations, gradient, leaky, plain)
    method = choose_routing(u, weight, bias, act)
    if method == "fused":
        return _Route.apply(u, weight, bias, act, options, memory or Memory())
    if method == "votes":
        with torch.no_grad():
            pose, _ = _procedure.forward(StoredVotes(_votes(u, weight)), bias, act, options)
            return pose.transpose(0, 1).contiguous()
    return None


def _votes(u: Tensor, weight: Tensor) -> Tensor:
    """(B, I, J, D), one matrix product per child."""
    I, J, D, K = weight.shape
    votes = torch.bmm(u.transpose(0, 1), weight.reshape(I, J * D, K).transpose(1, 2))  # (I, B, J*D)
    return votes.transpose(0, 1).unflatten(2, (J, D))


class _Fused:
    """The votes W u of one chunk of examples, never formed. Implements ``_procedure.Votes``."""

    def __init__(self, weights: Tensor, u: Tensor, big: Tensor, d_weights: Tensor | None = None) -> None:
        self.weights, self.u, self.d_weights = weights, u, d_weights  # (J, D, K*I), (B, K, I), (J, D, K*I)
        self.parents, self.dim, _ = weights.shape
        self.du = torch.zeros_like(u)
        self.big = big[: self.parents * u.numel()].view(self.parents, *u.shape)  # (J, B, K, I): scratch

    def _weigh(self, a: Tensor) -> Tensor:
        return torch.mul(a[:, :, None], self.u, out=self.big).flatten(2)  # (J, B, K*I)

    def _pull(self, x: Tensor) -> Tensor:
        torch.bmm(x, self.weights, out=self.big.flatten(2))  # W^T x
        return self.big

    def _dot(self, pulled: Tensor) -> Tensor:
        """Sum over K, one pass for each k: faster than a product and a sum."""
        result = pulled[:, :, 0] * self.u[:, 0]
        for k in range(1, self.u.shape[1]):
            result.addcmul_(pulled[:, :, k], self.u[:, k])
        return result

    def _add(self, a: Tensor, pulled: Tensor) -> None:
        for j in range(self.parents):
            self.du.addcmul_(a[j][:, None], pulled[j])

    def mean(self, factor: float) -> Tensor:
        flat = self.u.flatten(1) @ self.weights.flatten(0, 1).t()  # (B, J*D)
        return flat.mul_(factor).view(-1, self.parents, self.dim).transpose(0, 1)

    def sum(self, a: Tensor) -> Tensor:
        return torch.bmm(self._weigh(a), self.weights.transpose(1, 2))

    def dot(self, x: Tensor) -> Tensor:
        return self._dot(self._pull(x))

    def add_mean(self, factor: float, x: Tensor) -> None:
        flat = (x * factor).transpose(0, 1).flatten(1)  # (B, J*D)
        if self.d_weights is not None:
            self.d_weights.flatten(0, 1).addmm_(flat.t(), self.u.flatten(1))
        self.du.flatten(1).addmm_(flat, self.weights.flatten(0, 1))

    def sum_add(self, a: Tensor, x: Tensor) -> Tensor:
        weighed = self._weigh(a)
        result = torch.bmm(weighed, self.weights.transpose(1, 2))
        if self.d_weights is not None:
            self.d_weights.baddbmm_(x.transpose(1, 2), weighed)
        self._add(a, self._pull(x))
        return result

    def dot_add(self, a: Tensor, x: Tensor) -> Tensor:
        if self.d_weights is not None:
            self.d_weights.baddbmm_(x.transpose(1, 2), self._weigh(a))
        pulled = self._pull(x)
        self._add(a, pulled)
        return self._dot(pulled)


def _flat_weight(weight: Tensor, memory: Memory) -> Tensor:
    """(I, J, D, K) -> (J, D, K*I), kept in memory while the weight stays the same."""
    I, J, D, K = weight.shape
    key = fingerprint(weight)
    if key is not None and memory.holds("dense", key):
        return memory.content("dense", (J, D, K * I), weight.dtype)
    flat = memory.block("dense", (J, D, K * I), weight.dtype)
    flat.view(J, D, K, I).copy_(weight.permute(1, 2, 3, 0))
    memory.remember("dense", key)
    return flat


def _runs(u: Tensor, weight: Tensor) -> list[slice]:
    """Runs of examples that make one chunk each, and for large tensors at least one for each thread."""
    I, J, _, K = weight.shape
    threads = slots(len(u)) if len(u) * I * J * K >= _WORTH_SHARING else 1
    fitting = max(_FEWEST, _CHUNK // (I * J * K * weight.element_size()))
    size = min(-(-len(u) // threads), fitting)
    return [slice(start, min(start + size, len(u))) for start in range(0, len(u), size)]


def _scratch(u: Tensor, weight: Tensor, run: slice, slot: int, memory: Memory) -> Tensor:
    I, J, _, K = weight.shape
    return memory.block(f"routing {slot}", (J * (run.stop - run.start) * K * I,), weight.dtype)


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, bias: Tensor | None, act: Tensor | None, options: Options, memory: Memory
    ) -> Tensor:
        runs = _runs(u, weight)
        saved: list[Saved] = [Saved() for _ in runs]
        poses = torch.empty(len(u), *weight.shape[1:3], dtype=weight.dtype)
        ctx.memory = memory
        with memory.exclusive() as memory:
            weights = _flat_weight(weight, memory)

            def work(slot: int, index: int) -> None:
                run = runs[index]
                children = u[run].transpose(1, 2).contiguous()
                votes = _Fused(weights, children, _scratch(u, weight, run, slot, memory))
                pose, saved[index] = _procedure.forward(votes, bias, None if act is None else act[run], options)
                poses[run] = pose.transpose(0, 1)

            each(range(len(runs)), work)
        ctx.save_for_backward(u, weight, bias, act)
        ctx.options, ctx.runs, ctx.saved = options, runs, saved
        return poses

    @staticmethod
    @in_single  # backward may be called under autocast too
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (u, weight, bias, act), options = gradients, ctx.saved_tensors, ctx.options
        if torch.is_grad_enabled():
            plain = options.plain
            reference = None if plain is None else lambda u, w, b, a: plain(_votes(u, w), b, a)
            needed = ctx.needs_input_grad[:4]
            return *_procedure.differentiable(reference, (u, weight, bias, act), needed, gradient), None, None
        I, J, D, K = weight.shape
        count = slots(len(ctx.runs))
        du, d_act = torch.empty_like(u), None if act is None else torch.empty_like(act)
        d_bias = torch.zeros(count, J, D, dtype=weight.dtype)  # one sum for each thread
        d_weights = [torch.zeros(J, D, K * I, dtype=weight.dtype) for _ in range(count * ctx.needs_input_grad[1])]
        with ctx.memory.exclusive() as memory:
            weights = _flat_weight(weight, memory)

            def work(slot: int, index: int) -> None:
                run = ctx.runs[index]
                children, scratch = u[run].transpose(1, 2).contiguous(), _scratch(u, weight, run, slot, memory)
                votes = _Fused(weights, children, scratch, d_weights[slot] if d_weights else None)
                d_pose, weigh = gradient[run].transpose(0, 1), None if act is None else act[run]
                db, da = _procedure.backward(votes, ctx.saved[index], weigh, d_pose, options)
                d_bias[slot] += db
                du[run] = votes.du.transpose(1, 2)
                if d_act is not None and da is not None:
                    d_act[run] = da

            each(range(len(ctx.runs)), work)
        for other in d_weights[1:]:
            d_weights[0] += other
        dw = d_weights[0].view(J, D, K, I).permute(3, 0, 1, 2).contiguous() if d_weights else None
        return du, dw, None if bias is None else d_bias.sum(0), d_act, None, None
