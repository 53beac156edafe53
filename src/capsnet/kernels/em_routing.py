"""EM routing (diagonal) with a backward pass of its own, in chunks of examples whose votes stay in cache.

The reference is routing/em.py; u are votes less a constant, r couplings, m = r / sum_i r, all in its notation. Moments
and distances are the only steps that touch the votes, and each reads a chunk once or twice:

    moments   mu_j = sum_i m_ij u_ij,   second_j = sum_i m_ij u_ij^2
    logits    l_ij = offset_j + sum_h u_ij (mu_j / sigma_j^2 - u_ij / (2 sigma_j^2))

The derivative consists of the same two forms: gradients of logits are summed like moments, those of moments are spread
over the children like distances, and every contribution to the votes' gradient is a_ij (p_j u_ij + q_j). It needs the
couplings and the moments of each iteration. Votes are computed per chunk from children and weights, forward and again
backward, and are never stored for the whole batch.

The constant is the mean of the first iteration, whose couplings are equal: so that mean is zero.

Layouts: votes (I, N, J, D), as the matrix products with the weights return them, with N = examples x positions;
couplings (J, I, N), so that a softmax over parents is contiguous; moments (N, J, D).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet.kernels._memory import Memory
from capsnet.kernels._parallel import each, slots
from capsnet.kernels.cost import choose_em

# children or votes, weight or None, act, use_cost, act_cost -> pose and act
Plain: TypeAlias = Callable[[Tensor, "Tensor | None", "Tensor | None", Tensor, Tensor], tuple[Tensor, Tensor]]

_CHUNK, _FEWEST = 4 << 20, 4  # bytes of votes in a chunk; examples in it, because each chunk reads all weights
_WORTH_SHARING = 1 << 19  # votes of the whole batch from which a second thread is used


@dataclass(frozen=True)
class EMOptions:
    """Hyper-parameters of ``routing.EM``; ``plain`` is its reference form, for derivatives of derivatives."""

    inverse_temperatures: tuple[float, ...]  # of each iteration
    start_cost: float
    min_variance: float
    plain: Plain


def route_em(
    u: Tensor,
    weight: Tensor | None,
    act: Tensor | None,
    use_cost: Tensor,
    act_cost: Tensor,
    options: EMOptions,
    *,
    seen: Tensor | None = None,
    children: int = 0,
    memory: Memory | None = None,
) -> tuple[Tensor, Tensor] | None:
    """(pose, act) of EM routing, or None where the caller should use the plain form.

    Shapes: u (B, I, K) and weight (I, J, D, K), or votes u (B, I, J, D) and None; act (B, I); costs (J,) -> pose
    (B, J, D), act (B, J). Convolutional, with ``seen`` (P, I) which of ``children`` each position sees: u (B, P, I, K)
    or (B, P, I, J, D), act (B, children) -> (B, P, J, D) and (B, P, J).
    """
    if not choose_em(u, weight, act, use_cost, act_cost):
        return None
    windows = None if seen is None else _Windows(seen, children)
    return _RouteEM.apply(u, weight, act, use_cost, act_cost, options, windows, memory or Memory())


class _Windows:
    """Which children the positions see, and sums over all appearances of a child. (I, N) with N = examples x P."""

    def __init__(self, seen: Tensor, children: int) -> None:
        self.positions, self.children = len(seen), children
        self.child = seen.t().reshape(1, -1)  # (1, I*P)

    def _flat(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.unflatten(1, (-1, self.positions)).transpose(0, 1).flatten(1)  # (B, I*P)
        return flat, self.child.expand(len(flat), -1)

    def edges(self, values: Tensor) -> Tensor:
        """(B, children) -> (I, N)"""
        picked = values.index_select(1, self.child[0]).unflatten(1, (-1, self.positions))
        return picked.transpose(0, 1).flatten(1)

    def sum(self, x: Tensor) -> Tensor:
        """(I, N) -> (B, children)"""
        flat, child = self._flat(x)
        return flat.new_zeros(len(flat), self.children).scatter_add_(1, child, flat)

    def total(self, x: Tensor) -> Tensor:
        return self.edges(self.sum(x))

    def peak(self, x: Tensor) -> Tensor:
        flat, child = self._flat(x)
        least = flat.new_full((len(flat), self.children), -torch.inf)
        return self.edges(least.scatter_reduce_(1, child, flat, "amax"))


class _Source(Protocol):
    """Where votes come from: writes those of a run of examples (I, N, J*D), takes their gradient."""

    def fill(self, run: slice, votes: Tensor) -> None: ...

    def take(self, run: slice, d_votes: Tensor, slot: int) -> None: ...

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Those of u and of the weight."""
        ...


class _FromChildren:
    def __init__(self, u: Tensor, weight: Tensor, needs: tuple[bool, bool] = (False, False), threads: int = 0) -> None:
        self.u, self.shape = u, weight.shape
        I, J, D, K = weight.shape
        self.weight = weight.permute(0, 3, 1, 2).reshape(I, K, J * D)
        self.du = torch.empty(u.shape, dtype=u.dtype) if needs[0] else None
        self.d_weights = [torch.zeros(I, K, J * D, dtype=u.dtype) for _ in range(threads * needs[1])]

    def _children(self, run: slice) -> Tensor:
        return self.u[run].reshape(-1, *self.u.shape[-2:]).transpose(0, 1)  # (I, N, K)

    def fill(self, run: slice, votes: Tensor) -> None:
        torch.bmm(self._children(run), self.weight, out=votes)

    def take(self, run: slice, d_votes: Tensor, slot: int) -> None:
        if self.du is not None:
            du = torch.bmm(d_votes, self.weight.transpose(1, 2))
            self.du[run] = du.transpose(0, 1).reshape(self.du[run].shape)
        if self.d_weights:
            self.d_weights[slot].baddbmm_(self._children(run).transpose(1, 2), d_votes)

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        if not self.d_weights:
            return self.du, None
        for other in self.d_weights[1:]:
            self.d_weights[0] += other
        I, J, D, K = self.shape
        return self.du, self.d_weights[0].view(I, K, J, D).permute(0, 2, 3, 1)


class _FromVotes:
    def __init__(self, votes: Tensor, needs: bool = False) -> None:
        self.votes = votes
        self.d_votes = torch.empty_like(votes) if needs else None

    def _view(self, votes: Tensor, run: slice) -> Tensor:
        return votes[run].movedim(-3, 0)  # (I, B, J, D) or (I, B, P, J, D)

    def fill(self, run: slice, votes: Tensor) -> None:
        view = self._view(self.votes, run)
        votes.view(view.shape).copy_(view)

    def take(self, run: slice, d_votes: Tensor, slot: int) -> None:
        if self.d_votes is not None:
            view = self._view(self.d_votes, run)
            view.copy_(d_votes.view(view.shape))

    def gradients(self) -> tuple[Tensor | None, None]:
        return self.d_votes, None


@dataclass
class _Moments:
    """The result of one M-step: totals (J, N), mean and second moment (N, J, D); the couplings (J, I, N) that led to
    it, None for equal ones."""

    coupling: Tensor | None
    total: Tensor
    mean: Tensor
    second: Tensor


@dataclass
class _Fit:
    """What follows from the moments: variance (N, J, D), log sigma summed over dimensions and act's logit (N, J)."""

    above: Tensor  # second - mean^2
    variance: Tensor
    log_sigma: Tensor
    price: Tensor
    act_logit: Tensor


@dataclass
class _Chunk:
    """The votes of some examples and the procedure on them."""

    votes: Tensor  # (I, N, J, D), less the centre
    scratch: Tensor  # the same size
    weights: Tensor | None  # (I, N)
    windows: _Windows | None
    use_cost: Tensor
    act_cost: Tensor
    options: EMOptions
    gradient: Tensor | None = None  # of the votes, to be filled
    centre: Tensor = field(init=False)
    first: Tensor = field(init=False)
    share: Tensor | float = field(init=False)
    total: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Equal couplings, the votes' mean under them, and votes less that mean."""
        I, N, J, D = self.votes.shape
        ones = self.votes.new_ones(I, N)
        self.share = 1 / J if self.windows is None else (J * self.windows.total(ones)).reciprocal_()
        counted = self.share * (ones if self.weights is None else self.weights)  # (I, N)
        self.total = counted.sum(0)  # (N,)
        self.first = counted / self.total.clamp_min(self.tiny)
        self.centre = self._mean(self.votes)
        self.votes -= self.centre

    @property
    def pose(self) -> torch.Size:
        return self.votes.shape[1:]

    @property
    def d_votes(self) -> Tensor:
        assert self.gradient is not None
        return self.gradient

    @property
    def tiny(self) -> float:
        return torch.finfo(self.votes.dtype).eps ** 2

    def _mean(self, x: Tensor) -> Tensor:
        """sum_i of first_i x_i: (N, J, D)"""
        return torch.bmm(self.first.t().contiguous().unsqueeze(1), x.flatten(2).transpose(0, 1)).view(x.shape[1:])

    def _spread(self, a: Tensor) -> Tensor:
        return a.permute(1, 2, 0).unsqueeze(-1)  # (J, I, N) -> (I, N, J, 1)

    def gather(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """sum_i a_ij u_ij and sum_i a_ij u_ij^2: (J, I, N) -> twice (N, J, D)"""
        torch.mul(self.votes, self._spread(a), out=self.scratch)
        once = self.scratch.sum(0)
        return once, self.scratch.mul_(self.votes).sum(0)

    def agree(self, p: Tensor, q: Tensor) -> Tensor:
        """sum_h u_ijh (p_jh u_ijh + q_jh): twice (N, J, D) -> (J, I, N)"""
        I, N, J, D = self.votes.shape
        product = torch.addcmul(q, self.votes, p, out=self.scratch).mul_(self.votes).view(I * N, J, D)
        ones, result = self.votes.new_ones(D), self.votes.new_empty(J, I * N)
        for j in range(J):  # a product with ones is the fastest sum over a short axis
            torch.mv(product[:, j], ones, out=result[j])
        return result.view(J, I, N)

    def add(self, a: Tensor, p: Tensor, q: Tensor) -> None:
        """d votes_ij += a_ij (p_j u_ij + q_j)"""
        self.d_votes.addcmul_(self._spread(a), torch.addcmul(q, self.votes, p, out=self.scratch))

    def couple(self, logits: Tensor) -> Tensor:
        if self.windows is None:
            return logits.softmax(0)
        shifted = logits.sub_(self.windows.peak(logits.amax(0))).exp_()
        return shifted.div_(self.windows.total(shifted.sum(0)))

    def fit(self, moments: _Moments, iteration: int) -> _Fit:
        above = moments.second - moments.mean.square()
        variance = above.clamp_min(0) + self.options.min_variance
        log_sigma = 0.5 * variance.log().sum(-1)
        price = variance.shape[-1] * (self.options.start_cost + self.use_cost) + log_sigma
        act_logit = self.options.inverse_temperatures[iteration] * (self.act_cost - price * moments.total.t())
        return _Fit(above, variance, log_sigma, price, act_logit)

    def forward(self) -> tuple[Tensor, Tensor, list[_Moments]]:
        """pose (N, J, D), act (N, J), and what backward needs."""
        J, last = self.votes.shape[2], len(self.options.inverse_temperatures) - 1
        second = self._mean(torch.mul(self.votes, self.votes, out=self.scratch))
        history = [_Moments(None, self.total.expand(J, -1), torch.zeros_like(second), second)]
        for iteration in range(last):
            now = history[-1]
            fit = self.fit(now, iteration)
            precision = fit.variance.reciprocal()
            pull = now.mean * precision
            offset = F.logsigmoid(fit.act_logit) - fit.log_sigma - 0.5 * (now.mean * pull).sum(-1)
            logits = self.agree(-0.5 * precision, pull).add_(offset.t().unsqueeze(1))
            coupling = self.couple(logits)
            counted = coupling if self.weights is None else coupling * self.weights
            total = counted.sum(1)  # (J, N)
            mean, second = self.gather(counted / total.clamp_min(self.tiny).unsqueeze(1))
            history.append(_Moments(coupling, total, mean, second))
        present = history[-1].total.t() > 0  # a parent without votes is absent
        pose = (history[-1].mean + self.centre) * present.unsqueeze(-1)
        return pose, self.fit(history[-1], last).act_logit.sigmoid() * present, history

    def backward(
        self, history: list[_Moments], d_pose: Tensor, d_act: Tensor, needs_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Sets the gradient of the votes; returns those of both costs (J,) and of the weights (I, N)."""
        self.d_votes.zero_()
        D = self.votes.shape[-1]
        d_use, d_cost = torch.zeros_like(self.use_cost), torch.zeros_like(self.act_cost)
        d_weights = torch.zeros_like(self.first) if needs_weights else None
        present = history[-1].total.t() > 0
        d_mean, d_precision, d_log_sigma = d_pose * present.unsqueeze(-1), None, None
        d_logits = None
        for iteration in range(len(history) - 1, -1, -1):
            now, fit = history[iteration], self.fit(history[iteration], iteration)
            precision = fit.variance.reciprocal()
            if d_logits is None:
                act = fit.act_logit.sigmoid()
                d_act_logit = d_act * present * act * (1 - act)
                d_variance, d_log_sigma = 0.0, 0.0
            else:  # of the E-step
                pull = now.mean * precision
                count = d_logits.sum(1).t()  # (N, J)
                once, twice = self.gather(d_logits)
                self.add(d_logits, -precision, pull)
                each_count = count.unsqueeze(-1)
                d_precision = now.mean * (once - 0.5 * now.mean * each_count) - 0.5 * twice
                d_variance = -d_precision * precision.square()
                d_mean = precision * once - pull * each_count
                d_act_logit, d_log_sigma = count * (-fit.act_logit).sigmoid(), -count
            temperature = self.options.inverse_temperatures[iteration]
            total = now.total.t()  # (N, J)
            d_price = -temperature * d_act_logit * total
            d_cost += temperature * d_act_logit.sum(0)
            d_use += D * d_price.sum(0)
            d_total = -temperature * d_act_logit * fit.price
            d_variance = d_variance + 0.5 * (d_log_sigma + d_price).unsqueeze(-1) * precision
            d_second = d_variance * (fit.above >= 0)
            d_mean = d_mean - 2 * now.mean * d_second
            divisor = total.clamp_min(self.tiny)
            if now.coupling is None:
                weights = self.first.expand(self.votes.shape[2], -1, -1)
            else:
                counted = now.coupling if self.weights is None else now.coupling * self.weights
                weights = counted / divisor.t().unsqueeze(1)
            self.add(weights, 2 * d_second, d_mean)
            if now.coupling is None and d_weights is None:
                break
            d_counted = self.agree(d_second, d_mean)
            # d total contains the part of the divisor: sum_i of m d_m is a product of the moments
            through = (now.mean * d_mean + now.second * d_second).sum(-1) * (total >= self.tiny)
            d_counted.div_(divisor.t().unsqueeze(1)).add_((d_total - through / divisor).t().unsqueeze(1))
            if now.coupling is None:
                d_weights += d_counted.sum(0) * self.share
                break
            if self.weights is not None:
                if d_weights is not None:
                    d_weights += (d_counted * now.coupling).sum(0)
                d_counted *= self.weights
            inner = (d_counted * now.coupling).sum(0)
            inner = inner if self.windows is None else self.windows.total(inner)
            d_logits = d_counted.sub_(inner).mul_(now.coupling)
        return d_use, d_cost, d_weights


class _Call:
    """The arguments of a call, cut into runs of examples that make one chunk each."""

    def __init__(
        self, tensors: tuple[Tensor | None, ...], options: EMOptions, windows: _Windows | None, gradient: bool
    ) -> None:
        u, weight, self.act, self.use_cost, self.act_cost = tensors
        assert u is not None
        self.options, self.windows, self.gradient = options, windows, gradient
        J, D = u.shape[-2:] if weight is None else weight.shape[1:3]
        self.positions = () if windows is None else (windows.positions,)
        self.shape = (u.shape[-3] if weight is None else u.shape[-2], *self.positions, J, D)
        self.dtype, votes = u.dtype, prod(self.shape)
        threads = slots(len(u)) if len(u) * votes >= _WORTH_SHARING else 1
        fitting = max(_FEWEST, _CHUNK // (votes * u.element_size()))
        chunks = -(-len(u) // (fitting * threads)) * threads  # as many for each thread
        size = -(-len(u) // chunks)
        self.runs = [slice(start, min(start + size, len(u))) for start in range(0, len(u), size)]

    def chunk(self, source: _Source, run: slice, slot: int, memory: Memory) -> _Chunk:
        I, *_, J, D = self.shape
        examples = run.stop - run.start
        shape, size = (I, examples * prod(self.positions), J, D), examples * prod(self.shape)
        blocks = memory.block(f"em {slot}", ((3 if self.gradient else 2) * size,), self.dtype).split(size)
        votes, scratch, *d_votes = (block.view(shape) for block in blocks)
        source.fill(run, votes.flatten(2))
        weights = None if self.act is None else self.act[run]
        if weights is not None:
            weights = weights.t().contiguous() if self.windows is None else self.windows.edges(weights)  # (I, N)
        return _Chunk(votes, scratch, weights, self.windows, self.use_cost, self.act_cost, self.options, *d_votes)


class _RouteEM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        tensors, (options, windows, memory) = arguments[:5], arguments[5:]
        call = _Call(tensors, options, windows, gradient=False)
        ctx.save_for_backward(*tensors)
        ctx.options, ctx.windows, ctx.memory = options, windows, memory
        source = _FromVotes(tensors[0]) if tensors[1] is None else _FromChildren(*tensors[:2])
        poses = tensors[0].new_empty(len(tensors[0]), *call.shape[1:])
        acts = poses.new_empty(poses.shape[:-1])
        ctx.histories = [[] for _ in call.runs]

        def work(slot: int, index: int) -> None:
            run = call.runs[index]
            pose, act, ctx.histories[index] = call.chunk(source, run, slot, memory).forward()
            poses[run], acts[run] = pose.view(poses[run].shape), act.view(acts[run].shape)

        with memory.exclusive() as memory:
            each(range(len(call.runs)), work)
        return poses, acts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (u, weight, act, use_cost, _), needed = ctx.saved_tensors, ctx.needs_input_grad[:5]
        if torch.is_grad_enabled():
            return *_differentiable(ctx.options.plain, ctx.saved_tensors, needed, gradients), None, None, None
        call = _Call(ctx.saved_tensors, ctx.options, ctx.windows, gradient=True)
        threads = slots(len(call.runs))
        source = _FromVotes(u, needed[0]) if weight is None else _FromChildren(u, weight, needed[:2], threads)
        d_act = torch.empty_like(act) if needed[2] else None
        d_costs = u.new_zeros(threads, 2, *use_cost.shape)  # one sum for each thread

        def work(slot: int, index: int) -> None:
            run = call.runs[index]
            chunk = call.chunk(source, run, slot, memory)
            d_pose, d_presence = (d[run].reshape(chunk.pose[: d.ndim - len(call.positions)]) for d in gradients)
            *costs, d_weights = chunk.backward(ctx.histories[index], d_pose, d_presence, needed[2])
            d_costs[slot] += torch.stack(costs)
            if d_act is not None and d_weights is not None:
                d_act[run] = d_weights.t() if ctx.windows is None else ctx.windows.sum(d_weights)
            source.take(run, chunk.d_votes.flatten(2), slot)

        with ctx.memory.exclusive() as memory:
            each(range(len(call.runs)), work)
        return *source.gradients(), d_act, *d_costs.sum(0), None, None, None


def _differentiable(
    plain: Plain, arguments: tuple[Tensor | None, ...], needed: tuple[bool, ...], gradients: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The arguments' gradients with a graph, through the reference form: for derivatives of derivatives."""
    inputs = [t for t, need in zip(arguments, needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(plain(*arguments), inputs, gradients, create_graph=True))
    return [next(found) if need else None for need in needed]
