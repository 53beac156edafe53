"""The votes of one chunk of examples: contracted into scratch memory, with gradients that are added up in place."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from capsnet.kernels.votes import Votes, blocks, form_votes, gram, rows


class VotesNeeded(Exception):
    """A routing forms the votes of a chunk that is too large for that."""


class Matrices:
    """The matrices of all chunks: as they are (I, J, D, K), packed (J, D, K*I), and products of each with itself."""

    def __init__(self, weight: Tensor, packed: Tensor) -> None:
        self.weight, self.packed = weight, packed
        self._gram: Tensor | None = None

    def gram(self) -> Tensor:
        if self._gram is None:
            self._gram = gram(self.weight)
        return self._gram


class WeightGradient:
    """The sum of a thread's gradients of the matrices, in the layouts in which contractions add to it."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._sums: dict[str, Tensor] = {}

    def _sum(self, name: str, *shape: int) -> Tensor:
        if name not in self._sums:
            self._sums[name] = self.weight.new_zeros(shape)
        return self._sums[name]

    def packed(self) -> Tensor:
        I, J, D, K = self.weight.shape
        return self._sum("packed", J, D, K * I)

    def votes(self) -> Tensor:
        I, J, D, K = self.weight.shape
        return self._sum("votes", I, J * D, K)

    def gram(self) -> Tensor:
        I, J, _, K = self.weight.shape
        return self._sum("gram", I, J, K * K)

    def add(self, other: WeightGradient) -> None:
        for name, part in other._sums.items():
            self._sums[name] = self._sums[name].add_(part) if name in self._sums else part

    def total(self) -> Tensor:
        """(I, J, D, K)"""
        I, J, D, K = self.weight.shape
        total = self.packed().view(J, D, K, I).permute(3, 0, 1, 2).contiguous()
        if "votes" in self._sums:
            total.view(I, J * D, K).add_(self.votes())
        if "gram" in self._sums:  # of symmetric matrices
            total.flatten(0, 1).baddbmm_(self.weight.flatten(0, 1), self.gram().view(I * J, K, K), alpha=2)
        return total


class State:
    """What a chunk shares with its detached form: matrices, scratch memory, and gradients in a backward pass."""

    def __init__(self, matrices: Matrices, big: Tensor) -> None:
        self.matrices, self.big = matrices, big  # big: for c_j * u of some parents
        self.du: Tensor | None = None  # (B, K, I)
        self.dw: WeightGradient | None = None


class Chunk(Votes):
    """Votes of children u (B, I, K). ``recorded``: with gradients.

    Autograd knows the contractions as functions of couplings and poses, and of an anchor, so that it calls their
    derivative even if those are constants.
    """

    def __init__(self, u: Tensor, state: State, *, recorded: bool, most_votes: int) -> None:
        super().__init__(u, state.matrices.weight)
        self.u = u.transpose(1, 2).to(state.matrices.packed.dtype).contiguous()  # (B, K, I)
        self.state, self.most_votes = state, most_votes
        self.anchor = torch.zeros((), device=u.device, requires_grad=True) if recorded else None
        self.constant = not recorded
        self._detached: Chunk | None = None  # as long as these votes, until the backward pass

    def detach(self) -> Chunk:
        if self.constant:
            return self
        if self._detached is None:
            self._detached = copy.copy(self)
            self._detached.formed, self._detached._square, self._detached.constant = None, None, True
        return self._detached

    def _over_children(self, a: Tensor) -> Tensor:
        return self.sum_of(a) if self.anchor is None else cast(Tensor, _Sum.apply(a, self.anchor, self))

    def _over_pose(self, x: Tensor) -> Tensor:
        return self.dot_of(x) if self.anchor is None else cast(Tensor, _Dot.apply(x, self.anchor, self))

    def _square_length(self) -> Tensor:
        square = self.square_of() if self.constant else cast(Tensor, _Square.apply(self.anchor, self))
        return square.permute(1, 2, 0)

    def _form(self) -> Tensor:
        if len(self.u) > self.most_votes:
            raise VotesNeeded
        if self.constant:
            return form_votes(self.children, self.weight)
        return cast(Tensor, _Form.apply(self.anchor, self))

    def _block(self) -> int:
        """The number of parents whose c_j * u fit into the scratch memory."""
        return max(1, self.state.big.numel() // self.u.numel())

    def _scratch(self, parents: int) -> Tensor:
        return self.state.big[: parents * self.u.numel()].view(parents, *self.u.shape)

    def _weigh(self, a: Tensor) -> Tensor:
        return torch.mul(a[:, :, None], self.u, out=self._scratch(len(a))).flatten(2)  # (j, B, K*I)

    def _pull(self, x: Tensor, w: Tensor) -> Tensor:
        big = self._scratch(len(x))
        _product(x.to(w.dtype), w, big.flatten(2))  # W^T x
        return big

    def sum_of(self, a: Tensor) -> Tensor:
        w = rows(self.state.matrices.packed, len(a))
        s = a.new_empty(len(a), len(self.u), w.shape[1])
        for block in blocks(len(a), self._block()):
            _product(self._weigh(a[block]), w[block].transpose(1, 2), s[block])
        return s

    def dot_of(self, x: Tensor) -> Tensor:
        a, w = x.new_empty(len(x), len(self.u), self.u.shape[2]), self.state.matrices.packed
        for block in blocks(len(x), self._block()):
            torch.sum(self._pull(x[block], w[block]).mul_(self.u), 2, dtype=a.dtype, out=a[block])
        return a

    def accumulate(self, a: Tensor, x: Tensor, *, dot: bool = False, sum: bool = False) -> Tensor | None:
        """d votes += a x; returns the contraction with x (``dot``), with a (``sum``) or nothing."""
        if self.constant:
            return self.dot_of(x) if dot else self.sum_of(a) if sum else None
        w, du, gradient = rows(self.state.matrices.packed, len(a)), self.state.du, self.state.dw
        assert du is not None
        dw = None if gradient is None else rows(gradient.packed(), len(a))
        result = torch.empty_like(a if dot else x)
        for block in blocks(len(a), self._block()):
            if dw is not None or sum:
                weighed = self._weigh(a[block])
                if dw is not None:
                    _product(x[block].transpose(1, 2).to(weighed.dtype), weighed, dw[block], add=True)
                if sum:
                    _product(weighed, w[block].transpose(1, 2), result[block])
            pulled = self._pull(x[block], w[block])
            for factor, part in zip(a[block], pulled, strict=True):
                du.addcmul_(factor[:, None], part)
            if dot:
                torch.sum(pulled.mul_(self.u), 2, dtype=result.dtype, out=result[block])
        return result if dot or sum else None

    def _pairs(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """For blocks of children: which, their coordinates (i, K, B), and products of two of them (i, K, K, B)."""
        (B, K, I), big = self.u.shape, self.state.big
        columns = self.children.permute(1, 2, 0).contiguous()
        for block in blocks(I, max(1, big.numel() // (B * K * K))):
            x = columns[block]
            size = x.numel() * K
            room = big if size <= big.numel() and big.dtype == x.dtype else x.new_empty(size)
            yield block, x, torch.mul(x[:, :, None], x[:, None], out=room[:size].view(len(x), K, K, B))

    def square_of(self) -> Tensor:
        square = self.children.new_empty(*self.shape[1:3], len(self.u))  # (I, J, B)
        for block, _, pairs in self._pairs():
            torch.bmm(self.state.matrices.gram()[block], pairs.flatten(1, 2), out=square[block])
        return square.permute(1, 2, 0).contiguous()

    def accumulate_square(self, a: Tensor) -> None:
        """d votes += 2 a votes"""
        a, matrices, du, dw = a.permute(2, 0, 1).contiguous(), self.state.matrices.gram(), self.state.du, self.state.dw
        assert du is not None
        for block, x, pairs in self._pairs():
            flat = pairs.flatten(1, 2)
            if dw is not None:
                dw.gram()[block].baddbmm_(a[block], flat.transpose(1, 2))
            torch.bmm(matrices[block].transpose(1, 2), a[block], out=flat)
            du[:, :, block].add_(pairs.mul_(x[:, None]).sum(2).permute(2, 1, 0), alpha=2)

    def accumulate_formed(self, d_votes: Tensor) -> None:
        I, J, D, K = self.weight.shape
        flat, du, dw = d_votes.transpose(0, 1).reshape(I, -1, J * D), self.state.du, self.state.dw  # (I, B, J*D)
        assert du is not None
        du += torch.bmm(flat, self.weight.reshape(I, J * D, K)).permute(1, 2, 0)
        if dw is not None:
            dw.votes().baddbmm_(flat.transpose(1, 2), self.children.transpose(0, 1))


def _product(a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> None:
    """out = a b, or out += a b, for each parent. A single product is faster than a batch of one."""
    if out.dtype != a.dtype:
        product = torch.bmm(a, b)
        out.add_(product) if add else out.copy_(product)
    elif len(a) == 1:
        torch.addmm(out[0], a[0], b[0], beta=int(add), out=out[0])
    else:
        torch.baddbmm(out, a, b, beta=int(add), out=out)


# What follows has weak references to the votes: these keep results of it (``formed``, ``_square``), and a cycle through
# autograd's graph is never collected. Who calls backward holds them.
class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, anchor: Tensor, votes: Chunk) -> Tensor:
        ctx.save_for_backward(a)
        ctx.votes = weakref.ref(votes)
        return votes.sum_of(a)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (a,), x = ctx.saved_tensors, gradients[0].contiguous()
        return ctx.votes().accumulate(a, x, dot=ctx.needs_input_grad[0]), None, None


class _Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, votes: Chunk) -> Tensor:
        ctx.save_for_backward(x)
        ctx.votes = weakref.ref(votes)
        return votes.dot_of(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,), a = ctx.saved_tensors, gradients[0].contiguous()
        return ctx.votes().accumulate(a, x, sum=ctx.needs_input_grad[0]), None, None


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, votes: Chunk) -> Tensor:
        ctx.votes = weakref.ref(votes)
        return votes.square_of()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        ctx.votes().accumulate_square(gradients[0])
        return None, None


class _Form(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, votes: Chunk) -> Tensor:
        ctx.votes = weakref.ref(votes)
        return form_votes(votes.children, votes.weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        ctx.votes().accumulate_formed(gradients[0])
        return None, None
