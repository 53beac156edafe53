"""Votes that are not in memory: a child's pose times a matrix for each pair, contracted before they are formed.

The votes u_hat[j|i] = W[ij] u[i] are the largest tensor of a capsule network: 94 MB in the paper's, for 128 images.
Nearly all that a routing needs are two contractions of them, with couplings and with parents. Both move past W:

    gather:  sum_i c_ij W_ij u_i = W_j (c_j * u)         one product (B x K*I)(K*I x D) for each parent
    agree:   (W_ij u_i) . x_j    = (W_j^T x_j)_i . u_i   one product (B x D)(D x K*I) for each parent

They are derivatives of one form, T = sum a_jbi u_bki w_jdki x_jbd, by x and by a. So are the gradients of both: the
backward pass consists of the same kind of products. The intermediate c_j * u is made for a few parents at a time.

Layouts: parents first, children last (a (J, B, I), x (J, B, D), u (B, K, I), w (J, D, K*I)), so that every element-wise
step is contiguous. Couplings appear as (B, I, J), a view of that.

In half precision, and under autocast, the products are in that precision and everything else in float32.

A coupling that is the same for all parents (``stride(-1) == 0``, as in a first iteration) needs one product for all of
them: it is the case of a single parent of dimension J*D.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

_BLOCKS = 8  # into how many blocks of parents a product is cut, so that its intermediate stays small


class Votes:
    """Votes (B, I, J, D) of children u (B, I, K) and matrices (I, J, D, K), as a routing gets them.

    ``gather``, ``agree`` and ``distance`` of ``routing.steps`` contract them without forming them. In all other
    operations they act as the tensor, which is then formed, once (``tensor``). So no method has a name of a tensor's
    method and another meaning.
    """

    def __init__(self, u: Tensor, weight: Tensor) -> None:
        I, J, D, _ = weight.shape
        self.children, self.weight = u, weight
        self.shape, self.ndim = torch.Size((len(u), I, J, D)), 4
        self.dtype, self.device = weight.dtype, u.device
        self.formed: Tensor | None = None
        self._square: Tensor | None = None

    def _over_children(self, a: Tensor) -> Tensor:
        """(J, B, I) -> (J, B, D), or (1, B, I) -> (1, B, J*D)"""
        raise NotImplementedError

    def _over_pose(self, x: Tensor) -> Tensor:
        """(J, B, D) -> (J, B, I)"""
        raise NotImplementedError

    def _form(self) -> Tensor:
        """The votes as a tensor."""
        raise NotImplementedError

    def detach(self) -> Votes:
        raise NotImplementedError

    def coupled(self, coupling: Tensor) -> Tensor:
        """``gather``: (B, I, J) -> (B, J, D)"""
        B, _, J, D = self.shape
        even = coupling.stride(-1) == 0 and J > 1
        s = self._over_children(
            (coupling[..., :1] if even else coupling).expand(B, -1, -1).permute(2, 0, 1).contiguous()
        )
        return s.view(B, J, D) if even else s.transpose(0, 1)

    def agreement(self, pose: Tensor) -> Tensor:
        """``agree``: (B, J, D) -> (B, I, J)"""
        return self._over_pose(pose.transpose(0, 1).contiguous()).permute(1, 2, 0)

    def square_length(self) -> Tensor:
        """Squared lengths (B, I, J), computed at the first call."""
        if self._square is None:
            _, J, D, K = self.weight.shape
            small = K * K <= J * D  # else the products of two coordinates are larger than the votes
            self._square = self._square_length() if small else self.tensor().square().sum(-1)
        return self._square

    def _square_length(self) -> Tensor:
        """u_i^T (W_ij^T W_ij) u_i: the squared lengths from products of two coordinates of each child (B, I, J)."""
        raise NotImplementedError

    def tensor(self) -> Tensor:
        """The votes, formed at the first call."""
        if self.formed is None:
            self.formed = self._form()
        return self.formed

    def new_zeros(self, *size: Any, **options: Any) -> Tensor:
        return self.children.new_zeros(*size, **{"dtype": self.dtype, **options})

    def new_ones(self, *size: Any, **options: Any) -> Tensor:
        return self.children.new_ones(*size, **{"dtype": self.dtype, **options})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def formed(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(formed, value))
            return value.tensor() if isinstance(value, Votes) else value

        return function(*formed(args), **{name: formed(value) for name, value in (kwargs or {}).items()})


def _operator(name: str) -> Any:
    return lambda self, *others: getattr(self.tensor(), name)(*others)


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul", "radd", "rsub", "rmul", "rtruediv", "neg", "getitem"):
    setattr(Votes, f"__{_name}__", _operator(f"__{_name}__"))


def form_votes(u: Tensor, weight: Tensor) -> Tensor:
    """(B, I, K), (I, J, D, K) -> (B, I, J, D), as one matrix product per child."""
    I, J, D, K = weight.shape
    votes = torch.bmm(u.transpose(0, 1), weight.reshape(I, J * D, K).transpose(1, 2))  # (I, B, J*D)
    return votes.transpose(0, 1).unflatten(2, (J, D))


def pack(weight: Tensor) -> Tensor:
    """(I, J, D, K) -> (J, D, K*I)"""
    return weight.permute(1, 2, 3, 0).flatten(2)


def gram(weight: Tensor) -> Tensor:
    """W_ij^T W_ij: (I, J, D, K) -> (I, J, K*K)"""
    each = weight.flatten(0, 1)
    return torch.bmm(each.transpose(1, 2), each).flatten(1).unflatten(0, weight.shape[:2])


def rows(packed: Tensor, count: int) -> Tensor:
    """The matrices of ``count`` parents: of all, or of the single one that stands for all."""
    return packed if count == len(packed) else packed.flatten(0, 1)[None]


def blocks(parents: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, parents, size))


class LinearVotes(Votes):
    """The contractions in operations that autograd and compilers know: for ``torch.compile`` and second derivatives."""

    def __init__(self, u: Tensor, weight: Tensor, low: torch.dtype | None = None) -> None:
        super().__init__(u, weight)
        self.low = low or weight.dtype
        self.u, self.packed = u.to(self.low).transpose(1, 2), pack(weight.to(self.low))

    def _over_children(self, a: Tensor) -> Tensor:
        s = cast(Tensor, _Sum.apply(a.to(self.low), self.u, rows(self.packed, len(a))))
        return s.to(self.dtype)

    def _over_pose(self, x: Tensor) -> Tensor:
        return cast(Tensor, _Dot.apply(self.u, self.packed, x.to(self.low))).to(self.dtype)

    def _square_length(self) -> Tensor:
        pairs = self.children.permute(1, 2, 0)  # (I, K, B)
        pairs = (pairs[:, :, None] * pairs[:, None]).flatten(1, 2)  # (I, K*K, B)
        return torch.bmm(gram(self.weight), pairs).permute(2, 0, 1)

    def _form(self) -> Tensor:
        return form_votes(self.children, self.weight)

    def detach(self) -> LinearVotes:
        return LinearVotes(self.children.detach(), self.weight.detach(), self.low)


def _by_x(a: Tensor, u: Tensor, w: Tensor) -> Tensor:
    parts = []
    for block in blocks(len(w), -(-len(w) // _BLOCKS)):
        weighed = (a[block, :, None] * u).flatten(2)  # (j, B, K*I)
        parts.append(torch.bmm(weighed, w[block].transpose(1, 2)))
    return torch.cat(parts)


def _by_a(u: Tensor, w: Tensor, x: Tensor) -> Tensor:
    parts = []
    for block in blocks(len(w), -(-len(w) // _BLOCKS)):
        pulled = torch.bmm(x[block], w[block]).unflatten(2, u.shape[1:])  # (j, B, K, I)
        parts.append((pulled * u).sum(2))
    return torch.cat(parts)


def _by_u(a: Tensor, w: Tensor, x: Tensor, u: Tensor) -> Tensor:
    total = torch.zeros_like(u)
    for block in blocks(len(w), -(-len(w) // _BLOCKS)):
        pulled = torch.bmm(x[block], w[block]).unflatten(2, u.shape[1:])
        total = total + (a[block, :, None] * pulled).sum(0)
    return total


def _by_w(a: Tensor, u: Tensor, x: Tensor) -> Tensor:
    parts = []
    for block in blocks(len(x), -(-len(x) // _BLOCKS)):
        weighed = (a[block, :, None] * u).flatten(2)
        parts.append(torch.bmm(x[block].transpose(1, 2), weighed))
    return torch.cat(parts)


class _Sum(torch.autograd.Function):
    """T by x: a (J, B, I), u (B, K, I), w (J, D, K*I) -> (J, B, D)"""

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(a, u, w)
        return _by_x(a, u, w)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (a, u, w), (x,) = ctx.saved_tensors, gradients
        da, du, dw = ctx.needs_input_grad
        return (_by_a(u, w, x) if da else None, _by_u(a, w, x, u) if du else None, _by_w(a, u, x) if dw else None)


class _Dot(torch.autograd.Function):
    """T by a: u (B, K, I), w (J, D, K*I), x (J, B, D) -> (J, B, I)"""

    @staticmethod
    def forward(ctx: Any, u: Tensor, w: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(u, w, x)
        return _by_a(u, w, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (u, w, x), (a,) = ctx.saved_tensors, gradients
        du, dw, dx = ctx.needs_input_grad
        return (_by_u(a, w, x, u) if du else None, _by_w(a, u, x) if dw else None, _by_x(a, u, w) if dx else None)
