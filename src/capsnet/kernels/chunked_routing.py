"""Any routing from children and matrices to parents, a chunk of examples at a time, without storing the votes.

An example's result does not depend on other examples, so ``Routing.route`` can run on a few of them, through all
iterations, with scratch memory that stays in cache. Each thread takes chunks of its own. The votes of a chunk
(_chunk.py) are contracted with couplings and parents without being formed (votes.py).

Autograd records ``route`` on a chunk as usual. It stores couplings, but the gradients of children and matrices do not
pass through it: each contraction adds its own, in place. A routing that forms its votes is computed again in the
backward pass instead of being recorded, in smaller chunks, so that the votes of few examples exist at a time. Of a
routing that stores much besides (``recompute``) all chunks but the first are computed again, too.

The reference is ``Routing.route`` on ``form_votes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from capsnet.functional import without_autocast
from capsnet.kernels._chunk import Chunk, Matrices, State, VotesNeeded, WeightGradient
from capsnet.kernels._memory import Memory, fingerprint
from capsnet.kernels._parallel import each, slots
from capsnet.kernels._procedure import differentiable
from capsnet.kernels.cost import choose_routing
from capsnet.kernels.votes import LinearVotes, pack

# votes, the children's factors (B, I) or None, learned tensors -> pose (B, J, D), activation (B, J)
Route: TypeAlias = Callable[[Tensor, Tensor | None, dict[str, Tensor]], tuple[Tensor, Tensor]]

# Bytes of scratch memory for c_j * u, and the least number of examples in a chunk. More bytes leave the cache, fewer
# examples read the weights more often. Other devices need larger operations.
_CHUNK, _CHUNK_ELSEWHERE, _FEWEST = 5 << 19, 1 << 26, 4
_VOTES = 1 << 22  # bytes of votes in a chunk whose votes are formed
_WORTH_SHARING = 1 << 20  # numbers in c * u, for the whole batch and all parents, from which a second thread is used


def route(
    function: Route,
    u: Tensor,
    weight: Tensor,
    act: Tensor | None = None,
    params: Mapping[str, Tensor] | None = None,
    memory: Memory | None = None,
    forms: bool = False,
    recompute: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """``function`` on votes W u, or None where the caller should form the votes and call it itself.

    ``forms``: it needs the votes as a tensor. ``recompute``: a backward pass computes all chunks but the first again.

    Shapes: u (B, I, K), weight (I, J, D, K), act (B, I) -> pose (B, J, D), activation (B, J).
    """
    learned = dict(params or {})
    method = choose_routing(u, weight, act, *learned.values(), forms=forms)
    if method == "plain":
        return None
    dtype, low = _precision(u, weight)
    u, act = u.to(dtype), None if act is None else act.to(dtype)
    learned = {name: t.to(dtype) for name, t in learned.items()}
    with without_autocast(u):
        if method == "linear":
            pose, activation = function(cast(Tensor, LinearVotes(u, weight.to(dtype), low)), act, learned)
        else:
            inputs = (u, weight, act, *learned.values())
            record = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
            options = function, tuple(learned), memory or Memory(), low, record, recompute
            try:
                pose, activation = _Route.apply(*options, False, *inputs)
            except VotesNeeded:
                pose, activation = _Route.apply(*options, True, *inputs)
        # a network in half precision gets its own precision back, autocast float32
        return (pose, activation) if weight.dtype == dtype else (pose.to(weight.dtype), activation.to(weight.dtype))


def _precision(u: Tensor, weight: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """(at least float32, for logits and squashing; that of the products)."""
    dtype = torch.promote_types(torch.promote_types(u.dtype, weight.dtype), torch.float32)
    kind = u.device.type
    autocasts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    low = torch.get_autocast_dtype(kind) if autocasts else weight.dtype
    if kind == "cpu" or low not in (torch.float16, torch.bfloat16):
        return dtype, dtype  # on CPUs the passes over memory dominate, and conversions cost more than they save
    return dtype, low


def _packed(weight: Tensor, low: torch.dtype, memory: Memory) -> Tensor:
    """(I, J, D, K) -> (J, D, K*I), on CPUs kept in memory while the weight stays the same."""
    if weight.device.type != "cpu":
        return pack(weight.detach().to(low))
    I, J, D, K = weight.shape
    key = fingerprint(weight)
    if key is not None and memory.holds("dense", (key, low)):
        return memory.content("dense", (J, D, K * I), low)
    flat = memory.block("dense", (J, D, K * I), low)
    flat.view(J, D, K, I).copy_(weight.detach().permute(1, 2, 3, 0))
    memory.remember("dense", None if key is None else (key, low))
    return flat


def _runs(u: Tensor, weight: Tensor, forms: bool, recompute: bool = False) -> list[slice]:
    """Runs of examples that make one chunk each, and for large tensors on CPUs at least one for each thread.

    ``recompute``: smaller ones, since all of the first is stored.
    """
    I, J, _, K = weight.shape
    cpu = u.device.type == "cpu"
    threads = slots(len(u)) if cpu and len(u) * I * J * K >= _WORTH_SHARING else 1
    fitting = max(_FEWEST, (_CHUNK if cpu else _CHUNK_ELSEWHERE) // (I * K * weight.element_size()))
    fitting = max(_FEWEST, fitting // 3) if recompute else fitting
    size = min(-(-len(u) // threads), _most_votes(weight) if forms else fitting)
    return [slice(start, min(start + size, len(u))) for start in range(0, len(u), size)]


def _most_votes(weight: Tensor) -> int:
    """The number of examples in a chunk whose votes are formed."""
    room = _VOTES if weight.device.type == "cpu" else _CHUNK_ELSEWHERE
    return max(_FEWEST, room // (weight[..., 0].numel() * weight.element_size()))


def _scratch(u: Tensor, parents: int, low: torch.dtype, slot: int, memory: Memory) -> Tensor:
    """Room for c_j * u of a chunk: of one parent, or of more if they fit."""
    room = (_CHUNK if u.device.type == "cpu" else _CHUNK_ELSEWHERE) // low.itemsize
    size = u.numel() * max(1, min(parents, room // u.numel()))
    return memory.block(f"routing {slot}", (size,), low, u.device)


class _Recorded:
    """``route`` on one chunk: its votes, the leaves of its graph, and its results."""

    def __init__(self, function: Route, votes: Chunk, act: Tensor | None, params: dict[str, Tensor]) -> None:
        record = votes.anchor is not None
        self.votes = votes
        self.act = None if act is None else act.detach().requires_grad_(record and act.requires_grad)
        self.params = {name: t.detach().requires_grad_(record and t.requires_grad) for name, t in params.items()}
        with torch.set_grad_enabled(record):
            self.results = function(cast(Tensor, votes), self.act, self.params)

    def backward(self, gradients: list[Tensor]) -> None:
        """Fill ``votes.state`` and the leaves' ``grad``."""
        pairs = [(t, g) for t, g in zip(self.results, gradients, strict=True) if t.requires_grad]
        if pairs:
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Route,
        names: tuple[str, ...],
        memory: Memory,
        low: torch.dtype,
        record: bool,
        recompute: bool,
        forms: bool,
        u: Tensor,
        weight: Tensor,
        act: Tensor | None,
        *learned: Tensor,
    ) -> tuple[Tensor, Tensor]:
        runs, params = _runs(u, weight, forms, recompute), dict(zip(names, learned, strict=True))
        ctx.function, ctx.names, ctx.memory, ctx.low, ctx.runs = function, names, memory, low, runs
        ctx.save_for_backward(u, weight, act, *learned)
        ctx.recorded = cast(list[_Recorded | None], [None] * len(runs))
        results: list[tuple[Tensor, ...]] = [()] * len(runs)
        with memory.exclusive() as memory:
            matrices = Matrices(weight.detach().to(u.dtype), _packed(weight, low, memory))

            def work(slot: int, index: int) -> None:
                run = runs[index]
                state = State(matrices, _scratch(u[run], weight.shape[1], low, slot, memory))
                keep = record and not (recompute and index)
                votes = Chunk(u[run].detach(), state, recorded=keep, most_votes=_most_votes(weight))
                done = _Recorded(function, votes, None if act is None else act[run], params)
                results[index] = tuple(t.detach() for t in done.results)
                if keep and votes.formed is None:
                    ctx.recorded[index] = done

            each(range(len(runs)), work)
        pose, activation = (torch.cat(column) for column in zip(*results, strict=True))
        return pose, activation

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, act, *learned = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *[None] * 7, *differentiable(
                partial(_again, ctx), ctx.saved_tensors, ctx.needs_input_grad[7:], gradients
            )
        params, count = dict(zip(ctx.names, learned, strict=True)), slots(len(ctx.runs))
        need_weight, need_act = ctx.needs_input_grad[8:10]
        du = torch.empty_like(u)
        d_act = torch.zeros_like(act) if act is not None and need_act else None
        # one sum for each thread
        dw = [WeightGradient(weight.detach().to(u.dtype)) for _ in range(count)] if need_weight else []
        d_learned: list[dict[str, Tensor]] = [{} for _ in range(count)]
        with ctx.memory.exclusive() as memory:
            matrices = Matrices(weight.detach().to(u.dtype), _packed(weight, ctx.low, memory))

            def work(slot: int, index: int) -> None:
                run, done = ctx.runs[index], ctx.recorded[index]
                ctx.recorded[index] = None  # a second backward pass computes it again
                big = _scratch(u[run], weight.shape[1], ctx.low, slot, memory)
                if done is None:
                    state = State(matrices, big)
                    votes = Chunk(u[run].detach(), state, recorded=True, most_votes=_most_votes(weight))
                    done = _Recorded(ctx.function, votes, None if act is None else act[run], params)
                votes, state = done.votes, done.votes.state
                state.matrices, state.big, state.dw = matrices, big, dw[slot] if dw else None
                state.du = torch.zeros(votes.u.shape, dtype=u.dtype, device=u.device)
                done.backward([g[run] for g in gradients])
                du[run] = state.du.transpose(1, 2)
                if d_act is not None and done.act is not None and done.act.grad is not None:
                    d_act[run] = done.act.grad
                for name, tensor in done.params.items():
                    if tensor.grad is not None:
                        sums = d_learned[slot]
                        sums[name] = sums[name] + tensor.grad if name in sums else tensor.grad

            each(range(len(ctx.runs)), work)
        for other in dw[1:]:
            dw[0].add(other)
        sums = [_total([part.get(name) for part in d_learned]) for name in ctx.names]
        return *[None] * 7, du, dw[0].total().to(weight.dtype) if dw else None, d_act, *sums


def _total(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    for other in present[1:]:
        present[0] += other
    return present[0] if present else None


def _again(ctx: Any, u: Tensor, weight: Tensor, act: Tensor | None, *learned: Tensor) -> tuple[Tensor, Tensor]:
    """``route`` in the form that autograd knows."""
    params = dict(zip(ctx.names, learned, strict=True))
    return ctx.function(cast(Tensor, LinearVotes(u, weight.to(u.dtype), ctx.low)), act, params)[:2]
