"""EM routing (diagonal) of the votes of some examples, and its derivative. The reference is routing/em.py.

u are the votes less a constant, r couplings times activations, m = r / sum_i r, the rest as there. Only moments and
distances touch the votes:

    moments   mu_j = sum_i m_ij u_ij,   second_j = sum_i m_ij u_ij^2
    logits    l_ij = offset_j - sum_h (u_ijh - mu_jh)^2 / (2 sigma_jh^2)

The derivative has the same two forms: gradients of logits are gathered like moments, those of moments are spread over
the children like distances, and the gradient of the votes is a sum of few terms a_ij (2 p_j u_ij + q_j), formed at the
end by two matrix products. It needs the couplings and the moments of each iteration.

The constant is the mean of the first iteration, in which couplings are equal: that mean becomes zero.

Layouts: votes (N, J, I, D) with N = examples x positions; couplings (N, J, I); moments (N, J, D). Each parent's votes
are one matrix, and the long axis of children is last where there is no D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

# children or votes, weight or None, act or None, use_cost, act_cost -> pose, act
Plain: TypeAlias = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class EMOptions:
    """Hyper-parameters of ``routing.EM``; ``plain`` is its reference form, for derivatives of derivatives."""

    inverse_temperatures: tuple[float, ...]  # of each iteration
    start_cost: float
    min_variance: float
    plain: Plain


class Windows:
    """Which of ``children`` each of P positions sees, (P, I). Values of edges are (N, I) with N = examples x P."""

    def __init__(self, seen: Tensor, children: int) -> None:
        self.positions, self.children, self.child = len(seen), children, seen.flatten()
        counts = torch.bincount(self.child, minlength=children)
        self.appearances = counts[self.child].view(seen.shape)  # (P, I): positions that see the edge's child

    def edges(self, values: Tensor) -> Tensor:
        """Values of children (B, children), for each edge."""
        return values.index_select(1, self.child).view(len(values) * self.positions, -1)

    def _scatter(self, x: Tensor, start: float, reduce: str) -> Tensor:
        flat = x.view(-1, len(self.child))
        result = flat.new_full((len(flat), self.children), start)
        return result.scatter_reduce_(1, self.child.expand_as(flat), flat, reduce)

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all edges of a child: (N, I) -> (B, children)"""
        return self._scatter(x, 0.0, "sum")

    def total(self, x: Tensor) -> Tensor:
        """The same, again for each edge."""
        return self.edges(self.sum(x))

    def peak(self, x: Tensor) -> Tensor:
        return self.edges(self._scatter(x, -torch.inf, "amax"))


@dataclass
class Fit:
    """An M-step: what it came from, moments (N, J, D), and what follows from them."""

    coupling: Tensor | None  # (N, J, I), None if equal
    total: Tensor  # (N, J): the sum of the couplings times activations
    mean: Tensor
    second: Tensor
    spread: Tensor  # second - mean^2; rounding may make it negative
    precision: Tensor  # 1 / sigma^2
    log_sigma: Tensor  # (N, J): summed over the dimensions
    price: Tensor  # (N, J): the cost per vote
    act_logit: Tensor  # (N, J)


@dataclass
class Saved:
    """What backward needs."""

    centre: Tensor  # (N, J, D)
    fits: list[Fit]


@dataclass
class Chunk:
    """Votes of some examples. ``votes``, ``squares`` and ``scratch`` are memory for (N, J, I, D), to be overwritten."""

    given: Tensor  # (N, J, I, D) with any strides; may be ``scratch``
    votes: Tensor
    squares: Tensor
    scratch: Tensor
    weights: Tensor | None  # (N, I)
    windows: Windows | None
    use_cost: Tensor
    act_cost: Tensor
    options: EMOptions
    terms: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)  # a, p, q of the votes' gradient

    def _begin(self, centre: Tensor | None) -> Tensor:
        """Equal couplings; votes less their mean under them, which is returned."""
        N, J, I, _ = self.votes.shape
        self.tiny = torch.finfo(self.votes.dtype).eps ** 2  # the least divisor of a parent's total
        if self.windows is None:
            self.share = self.votes.new_full((N, I), 1 / J)  # equal couplings
        else:
            share = (J * self.windows.appearances).to(self.votes.dtype).reciprocal_()
            self.share = share.expand(N // len(share), -1, -1).reshape(N, I)
        counted = self.share if self.weights is None else self.share * self.weights
        self.total = counted.sum(1, keepdim=True).expand(N, J)
        self.first = (counted / self.total[:, :1].clamp_min(self.tiny)).unsqueeze(1).expand(N, J, I).contiguous()
        if centre is None:
            centre = self._sum(self.first, self.given)
        torch.sub(self.given, centre.unsqueeze(2), out=self.votes)
        torch.mul(self.votes, self.votes, out=self.squares)
        return centre

    def _sum(self, a: Tensor, x: Tensor) -> Tensor:
        """(N, J, I), (N, J, I, D) -> (N, J, D)"""
        N, J, I, D = x.shape
        return torch.bmm(a.view(N * J, 1, I), x.reshape(N * J, I, D)).view(N, J, D)

    def gather(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """sum_i a_ij u_ij and sum_i a_ij u_ij^2: (N, J, I) -> twice (N, J, D)"""
        return self._sum(a, self.votes), self._sum(a, self.squares)

    def agree(self, p: Tensor, q: Tensor) -> Tensor:
        """sum_h u_ijh (p_jh u_ijh + q_jh): twice (N, J, D) -> (N, J, I)"""
        return self._total(torch.addcmul(q.unsqueeze(2), self.votes, p.unsqueeze(2), out=self.scratch).mul_(self.votes))

    def distance(self, fit: Fit, zero: bool) -> Tensor:
        """sum_h (u_ijh - mu_jh)^2 / (2 sigma_jh^2): (N, J, I); ``zero``: the mean is zero. Not multiplied out, which
        would be less exact."""
        if zero:
            return self._total(torch.mul(self.squares, 0.5 * fit.precision.unsqueeze(2), out=self.scratch))
        scale = (0.5 * fit.precision).sqrt_()
        shift = (fit.mean * scale).neg_().unsqueeze(2)
        return self._total(torch.addcmul(shift, self.votes, scale.unsqueeze(2), out=self.scratch).square_())

    def _total(self, x: Tensor) -> Tensor:
        """The sum over D, as a product with ones: the fastest for a short axis."""
        D = x.shape[-1]
        return torch.mv(x.view(-1, D), x.new_ones(D)).view(x.shape[:3])

    def couple(self, logits: Tensor) -> Tensor:
        """The softmax over all parents of a child."""
        if self.windows is None:
            return logits.softmax(1)
        shifted = logits.sub_(self.windows.peak(logits.amax(1)).unsqueeze(1)).exp_()
        return shifted.div_(self.windows.total(shifted.sum(1)).unsqueeze(1))

    def weigh(self, coupling: Tensor) -> Tensor:
        return coupling if self.weights is None else coupling * self.weights.unsqueeze(1)

    def fit(self, coupling: Tensor | None, total: Tensor, mean: Tensor, second: Tensor, iteration: int) -> Fit:
        spread = torch.addcmul(second, mean, mean, value=-1)
        variance = spread.clamp_min(0).add_(self.options.min_variance)
        log_sigma = variance.log().sum(-1).mul_(0.5)
        price = log_sigma + mean.shape[-1] * (self.options.start_cost + self.use_cost)
        act_logit = self.options.inverse_temperatures[iteration] * (self.act_cost - price * total)
        return Fit(coupling, total, mean, second, spread, variance.reciprocal_(), log_sigma, price, act_logit)

    def forward(self) -> tuple[Tensor, Tensor, Saved]:
        """pose (N, J, D), act (N, J), and what backward needs."""
        centre = self._begin(None)
        second = self._sum(self.first, self.squares)
        now = self.fit(None, self.total, torch.zeros_like(second), second, 0)
        saved = Saved(centre, [now])
        for iteration in range(1, len(self.options.inverse_temperatures)):
            offset = F.logsigmoid(now.act_logit).sub_(now.log_sigma).unsqueeze(2)
            coupling = self.couple(offset - self.distance(now, zero=iteration == 1))
            counted = self.weigh(coupling)
            total = counted.sum(2)  # (N, J)
            mean, second = self.gather(counted / total.clamp_min(self.tiny).unsqueeze(2))
            now = self.fit(coupling, total, mean, second, iteration)
            saved.fits.append(now)
        present = now.total > 0  # a parent without votes is absent
        return (now.mean + centre).mul_(present.unsqueeze(2)), now.act_logit.sigmoid().mul_(present), saved

    def backward(
        self, saved: Saved, d_pose: Tensor, d_act: Tensor, needs_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Gradients of votes (N, J, I, D), in ``scratch``, of both costs (J,) and of the weights (N, I)."""
        self._begin(saved.centre)
        d_use, d_act_cost = torch.zeros_like(self.use_cost), torch.zeros_like(self.act_cost)
        d_weights = torch.zeros_like(self.share) if needs_weights else None
        present, d_logits = saved.fits[-1].total > 0, None
        d_mean = d_pose * present.unsqueeze(2)
        for now, temperature in zip(reversed(saved.fits), reversed(self.options.inverse_temperatures), strict=True):
            precision = now.precision
            # the E-step: logits from variance, mean and the parent's logit
            if d_logits is None:
                act = now.act_logit.sigmoid()
                d_act_logit = d_act * present * act * (1 - act)
                d_log_sigma, d_second = 0.0, 0.0
            else:
                count, pull = d_logits.sum(2), now.mean * precision
                once, twice = self.gather(d_logits)
                self.terms.append((d_logits, -0.5 * precision, pull))
                each = count.unsqueeze(2)
                d_mean = precision * once - pull * each
                d_second = (0.5 * twice - now.mean * (once - 0.5 * now.mean * each)) * precision.square()
                d_log_sigma, d_act_logit = -count, count * torch.sigmoid(-now.act_logit)
            # the cost
            d_cost = -temperature * d_act_logit  # of price * total
            d_price = d_cost * now.total
            d_act_cost -= d_cost.sum(0)
            d_use += self.votes.shape[-1] * d_price.sum(0)
            # the M-step: moments from weights
            d_second = (d_second + 0.5 * (d_log_sigma + d_price).unsqueeze(2) * precision) * (now.spread >= 0)
            d_mean = d_mean - 2 * now.mean * d_second
            divisor = now.total.clamp_min(self.tiny).unsqueeze(2)
            counted = None if now.coupling is None else self.weigh(now.coupling)
            self.terms.append((self.first if counted is None else counted / divisor, d_second, d_mean))
            if now.coupling is None and d_weights is None:
                break
            # sum_i m_ij d m_ij is a product of the moments
            through = (now.mean * d_mean + now.second * d_second).sum(2) * (now.total >= self.tiny)
            d_counted = self.agree(d_second, d_mean)
            d_counted.sub_(through.unsqueeze(2)).div_(divisor).add_((d_cost * now.price).unsqueeze(2))
            if now.coupling is None:
                assert d_weights is not None
                d_weights += d_counted.sum(1).mul_(self.share)
                break
            inner = (d_counted * now.coupling).sum(1)
            if d_weights is not None:
                d_weights += inner
            if self.weights is not None:
                d_counted *= self.weights.unsqueeze(1)
                inner *= self.weights
            if self.windows is not None:
                inner = self.windows.total(inner)
            d_logits = d_counted.sub_(inner.unsqueeze(1)).mul_(now.coupling)
        return self._spread(), d_use, d_act_cost, d_weights

    def _spread(self) -> Tensor:
        """The sum of all terms a_ij (2 p_j u_ij + q_j): (N, J, I, D)"""
        N, J, I, D = self.votes.shape
        a, p, q = (
            torch.stack(column, dim=2).view(N * J, len(self.terms), -1) for column in zip(*self.terms, strict=True)
        )
        result, a = self.scratch.view(N * J, I, D), a.transpose(1, 2)
        torch.bmm(a, p.mul_(2), out=result).mul_(self.votes.view(result.shape))
        return result.baddbmm_(a, q).view(self.votes.shape)
