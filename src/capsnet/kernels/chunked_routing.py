"""Any routing from children and matrices to parents, a chunk of examples at a time, without storing the votes.

An example's result does not depend on other examples, so ``Routing.route`` can run on a few of them, through all
iterations, with scratch memory that stays in cache. Each thread takes chunks of its own. The votes of a chunk
(``_Chunk``) are contracted with couplings and parents without being formed (votes.py).

Autograd records ``route`` on a chunk as usual. It stores couplings, but the gradients of children and matrices do not
pass through it: each contraction adds its own, in place. A routing that forms its votes is computed again in the
backward pass instead of being recorded, so that only the votes of one chunk exist at a time.

The reference is ``Routing.route`` on ``form_votes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from capsnet.kernels._memory import Memory, fingerprint
from capsnet.kernels._parallel import each, slots
from capsnet.kernels.cost import choose_routing
from capsnet.kernels.votes import LinearVotes, Votes, blocks, form_votes, gram, pack, rows

# votes, the children's factors (B, I) or None, learned tensors -> pose (B, J, D), activation (B, J)
Route: TypeAlias = Callable[[Tensor, Tensor | None, dict[str, Tensor]], tuple[Tensor, Tensor]]

# Bytes of scratch memory for c_j * u, and the least number of examples in a chunk. More bytes leave the cache, fewer
# examples read the weights more often. Other devices need larger operations.
_CHUNK, _CHUNK_ELSEWHERE, _FEWEST = 5 << 19, 1 << 26, 4
_WORTH_SHARING = 1 << 20  # numbers in c * u, for the whole batch and all parents, from which a second thread is used


def route(
    function: Route,
    u: Tensor,
    weight: Tensor,
    act: Tensor | None = None,
    params: Mapping[str, Tensor] | None = None,
    memory: Memory | None = None,
) -> tuple[Tensor, Tensor] | None:
    """``function`` on votes W u, or None where the caller should form the votes and call it itself.

    Shapes: u (B, I, K), weight (I, J, D, K), act (B, I) -> pose (B, J, D), activation (B, J).
    """
    learned = dict(params or {})
    method = choose_routing(u, weight, act, *learned.values())
    if method == "plain":
        return None
    dtype, low = _precision(u, weight)
    inputs = [None if t is None else t.to(dtype) for t in (u, act, *learned.values())]
    with _without_autocast(u.device.type):
        if method == "linear":
            child, factor, *rest = inputs
            votes = LinearVotes(cast(Tensor, child), weight.to(dtype), low)
            results = function(cast(Tensor, votes), factor, dict(zip(learned, cast(list[Tensor], rest), strict=True)))
        else:
            child, factor, *rest = inputs
            results = _Route.apply(function, tuple(learned), memory or Memory(), low, child, weight, factor, *rest)
        pose, activation = results
        # a network in half precision gets its own precision back, autocast float32
        return (pose, activation) if weight.dtype == dtype else (pose.to(weight.dtype), activation.to(weight.dtype))


def _precision(u: Tensor, weight: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """(at least float32, for logits and squashing; that of the products)."""
    dtype = torch.promote_types(torch.promote_types(u.dtype, weight.dtype), torch.float32)
    kind = u.device.type
    low = torch.get_autocast_dtype(kind) if _autocasts(kind) else weight.dtype
    if kind == "cpu" or low not in (torch.float16, torch.bfloat16):
        return dtype, dtype  # on CPUs the passes over memory dominate, and conversions cost more than they save
    return dtype, low


def _autocasts(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _without_autocast(kind: str) -> AbstractContextManager[object]:
    return torch.autocast(kind, enabled=False) if _autocasts(kind) else nullcontext()


def _product(a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> None:
    """out = a b, or out += a b, for each parent. A single product is faster than a batch of one."""
    if out.dtype != a.dtype:
        product = torch.bmm(a, b)
        out.add_(product) if add else out.copy_(product)
    elif len(a) == 1:
        torch.addmm(out[0], a[0], b[0], beta=int(add), out=out[0])
    else:
        torch.baddbmm(out, a, b, beta=int(add), out=out)


class _WeightGradient:
    """The sum of a thread's gradients of the matrices, in the layouts in which contractions add to it."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._sums: dict[str, Tensor] = {}

    def of(self, name: str, *shape: int) -> Tensor:
        if name not in self._sums:
            self._sums[name] = self.weight.new_zeros(shape)
        return self._sums[name]

    def packed(self) -> Tensor:
        I, J, D, K = self.weight.shape
        return self.of("packed", J, D, K * I)

    def votes(self) -> Tensor:
        I, J, D, K = self.weight.shape
        return self.of("votes", I, J * D, K)

    def gram(self) -> Tensor:
        I, J, _, K = self.weight.shape
        return self.of("gram", I, J, K * K)

    def add(self, other: _WeightGradient) -> None:
        for name, part in other._sums.items():
            self._sums[name] = self._sums[name].add_(part) if name in self._sums else part

    def total(self) -> Tensor:
        """(I, J, D, K)"""
        I, J, D, K = self.weight.shape
        total = self.packed().view(J, D, K, I).permute(3, 0, 1, 2).contiguous()
        if "votes" in self._sums:
            total.view(I, J * D, K).add_(self.votes())
        if "gram" in self._sums:  # of a symmetric matrix
            total.flatten(0, 1).baddbmm_(self.weight.flatten(0, 1), self.gram().view(I * J, K, K), alpha=2)
        return total


class _Matrices:
    """The matrices of all chunks of a pass: as they are, packed, and the products of each with itself."""

    def __init__(self, weight: Tensor, packed: Tensor) -> None:
        self.weight, self.packed = weight, packed
        self._gram: Tensor | None = None

    def gram(self) -> Tensor:
        if self._gram is None:
            self._gram = gram(self.weight)
        return self._gram


class _Chunk(Votes):
    """The votes of one chunk of examples. Gradients of the children and matrices are added up in place."""

    def __init__(self, u: Tensor, matrices: _Matrices, big: Tensor, recorded: bool) -> None:
        super().__init__(u, matrices.weight)
        self.matrices, self.packed = matrices, matrices.packed  # (J, D, K*I)
        self.u = u.transpose(1, 2).to(self.packed.dtype, memory_format=torch.contiguous_format)  # (B, K, I)
        self.big = big  # scratch for c_j * u of some parents
        self.anchor = torch.zeros((), device=u.device, requires_grad=True) if recorded else None
        self.du: Tensor | None = None  # (B, K, I)
        self.dw: _WeightGradient | None = None

    def detach(self) -> _Chunk:
        return _Chunk(self.children, self.matrices, self.big, recorded=False)

    def sum(self, a: Tensor) -> Tensor:
        return self._sum(a) if self.anchor is None else cast(Tensor, _Sum.apply(a, self.anchor, self))

    def dot(self, x: Tensor) -> Tensor:
        return self._dot(x) if self.anchor is None else cast(Tensor, _Dot.apply(x, self.anchor, self))

    def square(self) -> Tensor:
        square = self._square_of() if self.anchor is None else cast(Tensor, _Square.apply(self.anchor, self))
        return square.permute(1, 2, 0)

    def form(self) -> Tensor:
        if self.anchor is None:
            return form_votes(self.children, self.weight)
        return cast(Tensor, _Form.apply(self.anchor, self))

    def _scratch(self, parents: int) -> Tensor:
        return self.big[: parents * self.u.numel()].view(parents, *self.u.shape)

    def _block(self) -> int:
        return max(1, self.big.numel() // self.u.numel())

    def _weigh(self, a: Tensor) -> Tensor:
        return torch.mul(a[:, :, None], self.u, out=self._scratch(len(a))).flatten(2)  # (j, B, K*I)

    def _pull(self, x: Tensor, w: Tensor) -> Tensor:
        big = self._scratch(len(x))
        _product(x.to(w.dtype), w, big.flatten(2))  # W^T x
        return big

    def _sum(self, a: Tensor) -> Tensor:
        w = rows(self.packed, len(a))
        s = a.new_empty(len(a), len(self.u), w.shape[1])
        for block in blocks(len(a), self._block()):
            _product(self._weigh(a[block]), w[block].transpose(1, 2), s[block])
        return s

    def _dot(self, x: Tensor) -> Tensor:
        a = x.new_empty(len(x), len(self.u), self.u.shape[2])
        for block in blocks(len(x), self._block()):
            torch.sum(self._pull(x[block], self.packed[block]).mul_(self.u), 2, dtype=a.dtype, out=a[block])
        return a

    def _pairs(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """For blocks of children: which, their coordinates (i, K, B), and products of two of them (i, K, K, B)."""
        B, K, I = self.u.shape
        columns = self.children.permute(1, 2, 0).contiguous()
        for block in blocks(I, max(1, self.big.numel() // (B * K * K))):
            x = columns[block]
            size = x.numel() * K
            room = self.big if size <= self.big.numel() and self.big.dtype == x.dtype else x.new_empty(size)
            yield block, x, torch.mul(x[:, :, None], x[:, None], out=room[:size].view(len(x), K, K, B))

    def _square_of(self) -> Tensor:
        square = self.children.new_empty(self.shape[1], self.shape[2], len(self.u))  # (I, J, B)
        for block, _, pairs in self._pairs():
            torch.bmm(self.matrices.gram()[block], pairs.flatten(1, 2), out=square[block])
        return square.permute(1, 2, 0).contiguous()

    def add_square(self, a: Tensor) -> None:
        """d votes += 2 a votes"""
        assert self.du is not None
        a, gram = a.permute(2, 0, 1).contiguous(), self.matrices.gram()  # (I, J, B)
        for block, x, pairs in self._pairs():
            flat = pairs.flatten(1, 2)
            if self.dw is not None:
                self.dw.gram()[block].baddbmm_(a[block], flat.transpose(1, 2))
            torch.bmm(gram[block].transpose(1, 2), a[block], out=flat)
            self.du[:, :, block].add_(pairs.mul_(x[:, None]).sum(2).permute(2, 1, 0), alpha=2)

    def collect(self, dw: _WeightGradient | None) -> None:
        """Add gradients up from now on."""
        self.du, self.dw = self.u.new_zeros(self.u.shape, dtype=self.dtype), dw

    def add(self, a: Tensor, x: Tensor, *, dot: bool = False, sum: bool = False) -> Tensor | None:
        """d votes += a x; returns the contraction with x (``dot``), with a (``sum``) or nothing."""
        w, du = rows(self.packed, len(a)), self.du
        assert du is not None
        dw = None if self.dw is None else rows(self.dw.packed(), len(a))
        result = torch.empty_like(a) if dot else torch.empty_like(x) if sum else None
        for block in blocks(len(a), self._block()):
            if dw is not None or sum:
                weighed = self._weigh(a[block])
                if dw is not None:
                    _product(x[block].transpose(1, 2).to(weighed.dtype), weighed, dw[block], add=True)
                if sum and result is not None:
                    _product(weighed, w[block].transpose(1, 2), result[block])
            pulled = self._pull(x[block], w[block])
            for j, factor in enumerate(a[block]):
                du.addcmul_(factor[:, None], pulled[j])
            if dot and result is not None:
                torch.sum(pulled.mul_(self.u), 2, dtype=result.dtype, out=result[block])
        return result


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, anchor: Tensor, votes: _Chunk) -> Tensor:
        ctx.save_for_backward(a)
        ctx.votes = votes
        return votes._sum(a)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.votes.add(*ctx.saved_tensors, gradients[0].contiguous(), dot=ctx.needs_input_grad[0]), None, None


class _Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, votes: _Chunk) -> Tensor:
        ctx.save_for_backward(x)
        ctx.votes = votes
        return votes._dot(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.votes.add(gradients[0].contiguous(), *ctx.saved_tensors, sum=ctx.needs_input_grad[0]), None, None


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, votes: _Chunk) -> Tensor:
        ctx.votes = votes
        return votes._square_of()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        ctx.votes.add_square(gradients[0])
        return None, None


class _Form(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, votes: _Chunk) -> Tensor:
        ctx.votes = votes
        return form_votes(votes.children, votes.weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        votes: _Chunk = ctx.votes
        I, J, D, K = votes.weight.shape
        d_votes = gradients[0].transpose(0, 1).reshape(I, -1, J * D)  # (I, B, J*D)
        du = torch.bmm(d_votes, votes.weight.reshape(I, J * D, K))  # (I, B, K)
        assert votes.du is not None
        votes.du += du.permute(1, 2, 0)
        if votes.dw is not None:
            votes.dw.votes().baddbmm_(d_votes.transpose(1, 2), votes.children.transpose(0, 1))
        return None, None


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


def _runs(u: Tensor, weight: Tensor) -> list[slice]:
    """Runs of examples that make one chunk each, and for large tensors on CPUs at least one for each thread."""
    I, J, _, K = weight.shape
    cpu = u.device.type == "cpu"
    threads = slots(len(u)) if cpu and len(u) * I * J * K >= _WORTH_SHARING else 1
    fitting = max(_FEWEST, (_CHUNK if cpu else _CHUNK_ELSEWHERE) // (I * K * weight.element_size()))
    size = min(-(-len(u) // threads), fitting)
    return [slice(start, min(start + size, len(u))) for start in range(0, len(u), size)]


def _scratch(u: Tensor, parents: int, low: torch.dtype, slot: int, memory: Memory) -> Tensor:
    """Room for c_j * u of a chunk: of one parent, or of more if they fit."""
    room = (_CHUNK if u.device.type == "cpu" else _CHUNK_ELSEWHERE) // low.itemsize
    size = u.numel() * max(1, min(parents, room // u.numel()))
    return memory.block(f"routing {slot}", (size,), low, u.device)


class _Recorded:
    """``route`` on one chunk: its votes, the leaves of its graph, and its results."""

    def __init__(self, function: Route, votes: _Chunk, act: Tensor | None, params: dict[str, Tensor]) -> None:
        record = votes.anchor is not None

        def leaf(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.detach().requires_grad_(record and t.requires_grad)

        self.votes = votes
        self.act = leaf(act)
        self.params = {name: t.detach().requires_grad_(record and t.requires_grad) for name, t in params.items()}
        with torch.set_grad_enabled(record):
            self.results = tuple(function(cast(Tensor, votes), self.act, self.params))[:2]


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Route,
        names: tuple[str, ...],
        memory: Memory,
        low: torch.dtype,
        u: Tensor,
        weight: Tensor,
        act: Tensor | None,
        *learned: Tensor,
    ) -> tuple[Tensor, Tensor]:
        runs, params = _runs(u, weight), dict(zip(names, learned, strict=True))
        ctx.function, ctx.names, ctx.memory, ctx.low, ctx.runs = function, names, memory, low, runs
        ctx.save_for_backward(u, weight, act, *learned)
        needed = any(ctx.needs_input_grad)
        ctx.recorded = cast(list[_Recorded | None], [None] * len(runs))
        results: list[tuple[Tensor, ...]] = [()] * len(runs)
        with memory.exclusive() as memory:
            matrices = _Matrices(weight.detach().to(u.dtype), _packed(weight, ctx.low, memory))

            def work(slot: int, index: int) -> None:
                run = runs[index]
                big = _scratch(u[run], weight.shape[1], ctx.low, slot, memory)
                votes = _Chunk(u[run].detach(), matrices, big, needed)
                done = _Recorded(function, votes, None if act is None else act[run], params)
                results[index] = tuple(t.detach() for t in done.results)
                if needed and votes.formed is None:
                    ctx.recorded[index] = done

            each(range(len(runs)), work)
        pose, activation = (torch.cat(column) for column in zip(*results, strict=True))
        return pose, activation

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, act, *learned = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, None, None, *_differentiable(ctx, gradients, u, weight, act, learned)
        params, count = dict(zip(ctx.names, learned, strict=True)), slots(len(ctx.runs))
        _, _, _, _, _, need_weight, need_act, *_ = ctx.needs_input_grad
        du = torch.empty_like(u)
        d_act = torch.empty_like(act) if act is not None and need_act else None
        dw = [_WeightGradient(weight.detach().to(u.dtype)) for _ in range(count)] if need_weight else []
        d_learned: list[dict[str, Tensor]] = [{} for _ in range(count)]  # one sum for each thread
        with ctx.memory.exclusive() as memory:
            matrices = _Matrices(weight.detach().to(u.dtype), _packed(weight, ctx.low, memory))

            def work(slot: int, index: int) -> None:
                run, done = ctx.runs[index], ctx.recorded[index]
                big = _scratch(u[run], weight.shape[1], ctx.low, slot, memory)
                if done is None:
                    votes = _Chunk(u[run].detach(), matrices, big, recorded=True)
                    done = _Recorded(ctx.function, votes, None if act is None else act[run], params)
                ctx.recorded[index] = None  # a second backward pass computes it again
                votes = done.votes
                votes.big, votes.matrices, votes.packed = big, matrices, matrices.packed
                votes.collect(dw[slot] if dw else None)
                _backward(done, [g[run] for g in gradients])
                du[run] = votes.du.transpose(1, 2)
                if d_act is not None:
                    d_act[run] = 0 if done.act.grad is None else done.act.grad
                for name, tensor in done.params.items():
                    if tensor.grad is not None:
                        sums = d_learned[slot]
                        sums[name] = sums[name] + tensor.grad if name in sums else tensor.grad

            each(range(len(ctx.runs)), work)
        for other in dw[1:]:
            dw[0].add(other)
        sums = [_total([part.get(name) for part in d_learned]) for name in ctx.names]
        return None, None, None, None, du, dw[0].total().to(weight.dtype) if dw else None, d_act, *sums


def _backward(done: _Recorded, gradients: list[Tensor]) -> None:
    pairs = [(t, g) for t, g in zip(done.results, gradients, strict=True) if t.requires_grad]
    if pairs:
        torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])


def _total(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    for other in present[1:]:
        present[0] += other
    return present[0] if present else None


def _differentiable(
    ctx: Any, gradients: tuple[Tensor, ...], u: Tensor, weight: Tensor, act: Tensor | None, learned: list[Tensor]
) -> list[Tensor | None]:
    """Gradients with a graph, through the form that autograd knows: for derivatives of derivatives."""
    params = dict(zip(ctx.names, learned, strict=True))
    results = ctx.function(cast(Tensor, LinearVotes(u, weight.to(u.dtype), ctx.low)), act, params)[:2]
    arguments, needed = (u, weight, act, *learned), ctx.needs_input_grad[4:]
    inputs = [t for t, need in zip(arguments, needed, strict=True) if need and t is not None]
    pairs = [(t, g) for t, g in zip(results, gradients, strict=True) if t.requires_grad]
    found = torch.autograd.grad(
        [t for t, _ in pairs], inputs, [g for _, g in pairs], create_graph=True, allow_unused=True
    )
    values = iter(found)
    return [next(values) if need and t is not None else None for t, need in zip(arguments, needed, strict=True)]
