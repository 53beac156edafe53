"""EM routing (diagonal) in chunks of examples, with a backward pass of its own.

The procedure is _em_procedure.py. Votes are made for one chunk at a time, from children and weights, forward and again
backward, so that they stay in cache and are never stored for the whole batch. Layers whose votes are made in another
way pass the votes. The reference is routing/em.py.
"""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor

from capsnet.kernels._em_procedure import Chunk, EMOptions, Saved, Windows
from capsnet.kernels._memory import Memory
from capsnet.kernels._parallel import each, slots
from capsnet.kernels._procedure import differentiable
from capsnet.kernels.cost import choose_em

# Bytes of votes in a chunk: three times that is in use and should fit in cache. Rows of its matrix products: a multiple
# of four, for which they are much faster than for five, and not fewer, because each chunk reads all weights.
_CHUNK, _FEWEST = 8 << 20, 4
_WORTH_SHARING = 1 << 18  # votes of the whole batch from which a second thread is used


def route_em(
    u: Tensor,
    weight: Tensor | None,
    act: Tensor | None,
    use_cost: Tensor,
    act_cost: Tensor,
    options: EMOptions,
    *,
    edges: tuple[Tensor, int] | None = None,
    memory: Memory | None = None,
) -> tuple[Tensor, Tensor] | None:
    """(pose, act) of EM routing, or None where the caller should use the plain form.

    Shapes: u (B, I, K) and weight (I, J, D, K), or votes u (B, I, J, D) and None; act (B, I); costs (J,) -> pose
    (B, J, D), act (B, J). Convolutional, with ``edges`` = which children (P, I) each position sees and how many there
    are: u (B, P, I, K) or (B, P, I, J, D), act (B, children) -> pose (B, P, J, D), act (B, P, J).
    """
    if not choose_em(u, weight, act, use_cost, act_cost):
        return None
    windows = None if edges is None else Windows(*edges)
    return _RouteEM.apply(u, weight, act, use_cost, act_cost, options, windows, memory or Memory())


class _Source(Protocol):
    """Where votes come from."""

    def votes(self, run: slice, buffer: Tensor) -> Tensor:
        """Those of a run of examples, (N, J, I, D) with any strides, in ``buffer`` if need be."""
        ...

    def take(self, run: slice, d_votes: Tensor, buffer: Tensor, slot: int) -> None:
        """Use their gradient."""
        ...

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Those of u and of the weight."""
        ...


class _Children:
    """Votes = weight times children, one matrix product per child."""

    def __init__(self, u: Tensor, weight: Tensor, needs: tuple[bool, ...] = (False, False), threads: int = 0) -> None:
        self.u, (I, J, D, K) = u, weight.shape
        self.weight, self.pose = weight.permute(0, 3, 1, 2).reshape(I, K, J * D), (J, D)
        self.du = torch.empty_like(u, memory_format=torch.contiguous_format) if needs[0] else None
        self.d_weights = [torch.zeros_like(self.weight) for _ in range(threads * needs[1])]  # one sum for each thread

    def _children(self, run: slice) -> Tensor:
        return self.u[run].reshape(-1, *self.u.shape[-2:]).transpose(0, 1)  # (I, N, K)

    def votes(self, run: slice, buffer: Tensor) -> Tensor:
        children = self._children(run)
        made = buffer.view(*children.shape[:2], self.weight.shape[2])
        return torch.bmm(children, self.weight, out=made).unflatten(2, self.pose).permute(1, 2, 0, 3)

    def take(self, run: slice, d_votes: Tensor, buffer: Tensor, slot: int) -> None:
        children = self._children(run)
        d = buffer.view(*children.shape[:2], *self.pose).copy_(d_votes.permute(2, 0, 1, 3)).flatten(2)  # (I, N, J*D)
        if self.du is not None:
            du = self.du[run]
            du.copy_(torch.bmm(d, self.weight.transpose(1, 2)).transpose(0, 1).reshape(du.shape))
        if self.d_weights:
            self.d_weights[slot].baddbmm_(children.transpose(1, 2), d)

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        if not self.d_weights:
            return self.du, None
        for other in self.d_weights[1:]:
            self.d_weights[0] += other
        return self.du, self.d_weights[0].unflatten(2, self.pose).permute(0, 2, 3, 1)


class _Votes:
    """Votes that the caller made."""

    def __init__(self, given: Tensor, needs: bool = False) -> None:
        self.given, self.d_given = given, torch.empty_like(given) if needs else None

    def votes(self, run: slice, buffer: Tensor) -> Tensor:
        given = self.given[run].transpose(-3, -2)  # (B, J, I, D) or (B, P, J, I, D)
        return given.reshape(-1, *given.shape[-3:])

    def take(self, run: slice, d_votes: Tensor, buffer: Tensor, slot: int) -> None:
        if self.d_given is not None:
            d = self.d_given[run].transpose(-3, -2)
            d.copy_(d_votes.view(d.shape))

    def gradients(self) -> tuple[Tensor | None, None]:
        return self.d_given, None


class _Call:
    """The arguments of a call, cut into runs of examples that make one chunk each."""

    def __init__(self, tensors: tuple[Any, ...], options: EMOptions, windows: Windows | None) -> None:
        u, weight, self.act, self.use_cost, self.act_cost = tensors
        self.options, self.windows = options, windows
        J, D = u.shape[-2:] if weight is None else weight.shape[1:3]
        self.positions = () if windows is None else (windows.positions,)
        self.pose = (*self.positions, J, D)
        self.children = u.shape[-3] if weight is None else u.shape[-2]
        self.dtype, votes = u.dtype, self.children * prod(self.pose)  # of one example
        threads = slots(len(u)) if len(u) * votes >= _WORTH_SHARING else 1
        least = -(-_FEWEST // prod(self.positions))
        fitting = max(1, _CHUNK // (votes * u.element_size()) // least) * least
        chunks = -(-len(u) // (fitting * threads)) * threads  # as many for each thread
        size = -(-len(u) // (chunks * least)) * least
        self.runs = [slice(start, min(start + size, len(u))) for start in range(0, len(u), size)]

    def chunk(self, source: _Source, run: slice, slot: int, memory: Memory) -> Chunk:
        examples, (*_, J, D) = run.stop - run.start, self.pose
        shape = (examples * prod(self.positions), J, self.children, D)
        votes, squares, scratch = memory.block(f"em {slot}", (3, *shape), self.dtype)
        weights = None if self.act is None else self.act[run]
        if weights is not None and self.windows is not None:
            weights = self.windows.edges(weights)
        given = source.votes(run, scratch)
        costs = self.use_cost, self.act_cost
        return Chunk(given, votes, squares, scratch, weights, self.windows, *costs, self.options)


class _RouteEM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        tensors, (options, windows, memory) = arguments[:5], arguments[5:]
        u, weight = tensors[:2]
        call = _Call(tensors, options, windows)
        source = _Votes(u) if weight is None else _Children(u, weight)
        poses = u.new_empty(len(u), *call.pose)
        acts = u.new_empty(poses.shape[:-1])
        saved: list[Saved | None] = [None for _ in call.runs]
        ctx.save_for_backward(*tensors)
        ctx.options, ctx.windows, ctx.memory, ctx.runs, ctx.saved = options, windows, memory, call.runs, saved
        with memory.exclusive() as memory:

            def work(slot: int, index: int) -> None:
                run = call.runs[index]
                pose, act, saved[index] = call.chunk(source, run, slot, memory).forward()
                poses[run], acts[run] = pose.view(poses[run].shape), act.view(acts[run].shape)

            each(range(len(call.runs)), work)
        return poses, acts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (u, weight, act, use_cost, _), needed = ctx.saved_tensors, ctx.needs_input_grad[:5]
        if torch.is_grad_enabled():
            return *differentiable(ctx.options.plain, ctx.saved_tensors, needed, gradients), None, None, None
        call = _Call(ctx.saved_tensors, ctx.options, ctx.windows)
        call.runs = ctx.runs  # the number of threads may have changed
        threads = slots(len(call.runs))
        source = _Votes(u, needed[0]) if weight is None else _Children(u, weight, needed, threads)
        d_act = torch.empty_like(act) if needed[2] else None
        d_costs = u.new_zeros(threads, 2, len(use_cost))
        with ctx.memory.exclusive() as memory:

            def work(slot: int, index: int) -> None:
                run = call.runs[index]
                chunk = call.chunk(source, run, slot, memory)
                d_pose, d_presence = (d[run].flatten(0, len(call.positions)) for d in gradients)
                d_votes, *costs, d_weights = chunk.backward(ctx.saved[index], d_pose, d_presence, needed[2])
                source.take(run, d_votes, chunk.votes, slot)
                d_costs[slot] += torch.stack(costs)
                if d_act is not None and d_weights is not None:
                    d_act[run] = d_weights if ctx.windows is None else ctx.windows.sum(d_weights)

            each(range(len(call.runs)), work)
        return *source.gradients(), d_act, *d_costs.sum(0), None, None, None
