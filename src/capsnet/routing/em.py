"""Routing as a mixture of Gaussians, fitted by expectation-maximisation (EM).

*Diagonal*, as in Hinton, Sabour, Frosst, *Matrix capsules with EM routing*, ICLR 2018, Procedure 1. Child i with
activation a_i votes u_ij for parent j; R_ij is how much of the child parent j explains, at first equal for all parents.

    M:  r_ij = R_ij a_i,   mu_j = sum_i r_ij u_ij / sum_i r_ij,   sigma_j^2 likewise, per dimension h
        cost_jh = (beta_u + log sigma_jh) sum_i r_ij            the cost of describing the votes
        a_j = sigmoid(lambda (beta_a - sum_h cost_jh))          a parent is active if the cost is low
    E:  R_ij = a_j N(u_ij; mu_j, sigma_j) / the sum of that over all parents of child i

beta_u (counted from ``start_cost``) and beta_a are learned; lambda = final (1 - 0.95^(iteration + 1)) is the inverse
temperature. Two common bugs of re-implementations are an input activation a_i that cancels instead of weighing the
votes in the M-step, and a posterior that is not normalised across positions.

*Full*, an ordinary mixture: p(child i) = sum_j pi_j N(u_ij; mu_j, Sigma_j), a_j = pi_j. Its log-likelihood never
decreases.

A minimum variance e keeps both finite. In the full form it blurs the votes by e: Sigma = S + e I maximises the expected
log-likelihood of the blurred votes, log N(u; mu, Sigma) - e/2 tr(Sigma^-1), and this is what never decreases.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnet import kernels
from capsnet.functional import full_precision, without_autocast
from capsnet.routing.base import Edges, Formula, Routed, Routing, check_count
from capsnet.routing.steps import couple, gather, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class EM(Routing):
    """Mixture of Gaussians by EM: matrix capsules' routing, or an ordinary mixture with full covariance.

    Args:
        iterations: at least 1.
        covariance: ``"diagonal"`` with learned costs and an inverse temperature, or ``"full"`` without either.
        inverse_temperature: the final lambda of the diagonal form; the paper's is 0.01.
        start_cost: the initial beta_u; with minus the log of the votes' spread the cost starts at zero. Otherwise a
            parent of many children with small votes is fully active for any input, and does not learn.
        min_variance: added to every variance.

    Shapes: votes (B, I, J, D) -> pose (B, J, D) = the means, act (B, J). Convolutional: see ``routing.base``. Learned
    (diagonal): ``use_cost`` (J,) = beta_u - start_cost, ``act_cost`` (J,) = beta_a.
    """

    name: ClassVar[str] = "em"
    sentence: ClassVar[str] = (
        "Each parent fits a Gaussian to its votes; each child goes to the parents that explain it."
    )
    iteration_name: ClassVar[str] = "EM step"
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"em-full": {"covariance": "full"}}
    # a start_cost of -log 0.1: votes of unit poses times W ~ N(0, 0.1^2) have a spread of 0.1
    dense_options: ClassVar[Mapping[str, Any]] = {"inverse_temperature": 0.1, "start_cost": 2.3}
    wants_presence: ClassVar[bool] = True
    vote_free: ClassVar[bool] = False
    presence_is_length: ClassVar[bool] = False
    iterations: int = 3
    covariance: Literal["diagonal", "full"] = "diagonal"
    inverse_temperature: float = 0.01
    start_cost: float = 0.0
    min_variance: float = 5e-4

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        if self.covariance not in ("diagonal", "full"):
            raise ValueError(f'covariance must be "diagonal" or "full", got {self.covariance!r}')
        for what in ("inverse_temperature", "min_variance"):
            if not 0 < getattr(self, what) < math.inf:
                raise ValueError(f"{what} must be positive and finite, got {getattr(self, what)!r}")
        if not math.isfinite(self.start_cost):
            raise ValueError(f"start_cost must be finite, got {self.start_cost!r}")

    @property
    def formula(self) -> Formula:
        presence = "a_j = sigmoid(λ (β_a - Σ_h cost_jh))" if self.covariance == "diagonal" else "a_j = π_j"
        return Formula("c_ij = a_j p_ij / Σ_k a_k p_ik", presence)

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"use_cost": (J,), "act_cost": (J,)} if self.covariance == "diagonal" else {}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        routed = None if trace else self._fused(votes, None, weights, edges, params, None)
        if routed is not None:
            return routed
        with without_autocast(votes):
            return self.plain(votes, weights, edges, params, trace)

    def fused(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, params: dict[str, Tensor], memory: kernels.Memory
    ) -> Routed | None:
        routed = self._fused(u, weight, weights, None, params, memory)
        return super().fused(u, weight, weights, params, memory) if routed is None else routed

    def fused_windows(
        self, u: Tensor, weight: Tensor, weights: Tensor | None, edges: Edges, params: dict[str, Tensor], memory: Any
    ) -> Routed | None:
        return self._fused(u, weight, weights, edges, params, memory)

    def _fused(
        self,
        u: Tensor,
        weight: Tensor | None,
        weights: Tensor | None,
        edges: Edges | None,
        params: dict[str, Tensor],
        memory: kernels.Memory | None,
    ) -> Routed | None:
        """The kernel, from children and matrices, or from votes if ``weight`` is None; in at least single precision."""
        u = full_precision(u)  # under autocast routing is in float32
        dtype = u.dtype
        if type(self) is not EM or self.covariance != "diagonal" or dtype == torch.float16:
            return None

        def plain(
            u: Tensor, weight: Tensor | None, weights: Tensor | None, use_cost: Tensor, act_cost: Tensor
        ) -> tuple[Tensor, Tensor]:
            votes = u if weight is None else torch.einsum("...ik,ijdk->...ijd", u, weight)
            return self.plain(votes, weights, edges, {"use_cost": use_cost, "act_cost": act_cost}, False)[:2]

        J = u.shape[-2] if weight is None else weight.shape[1]
        costs = [params.get(name, u.new_zeros(())).expand(J) for name in ("use_cost", "act_cost")]
        temperatures = tuple(self.temperature(iteration) for iteration in range(self.iterations))
        options = kernels.EMOptions(temperatures, self.start_cost, self.min_variance, plain)
        with without_autocast(u):
            weight, weights = (None if t is None else at_least_single(t) for t in (weight, weights))
            use_cost, act_cost = map(at_least_single, costs)
            routed = kernels.route_em(
                at_least_single(u), weight, weights, use_cost, act_cost, options, edges=edges, memory=memory
            )
        return None if routed is None else Routed(routed[0].to(dtype), routed[1].to(dtype))

    def temperature(self, iteration: int) -> float:
        """lambda, the inverse temperature of an iteration."""
        return self.inverse_temperature * (1 - 0.95 ** (iteration + 1))

    def plain(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        """The procedure in operations that autograd knows: the reference for the kernel."""
        dtype, votes = votes.dtype, at_least_single(votes)  # half precision is too coarse for variances
        even = weigh(votes.new_ones(votes.shape[:-1]), weights, edges).to(votes.dtype)
        centre = gather(even / even.sum(dim=-2, keepdim=True).clamp_min(tiny(votes)), votes).detach()  # (B, J, D)
        votes = votes - centre.unsqueeze(-3)  # numbers near zero are more exact; ``centre`` is added again below
        squares = votes.square() if self.covariance == "diagonal" else None
        logits = votes.new_zeros(votes.shape[:-1])  # (B, I, J)
        pose = act = votes.new_zeros(())
        history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for iteration in range(self.iterations):
            posterior = couple(logits, edges)
            counted = weigh(posterior, weights, edges).to(votes.dtype)
            total = counted.sum(dim=-2)  # (B, J)
            mean_weights = counted / total.clamp_min(tiny(votes)).unsqueeze(-2)
            mean = gather(mean_weights, votes)  # (B, J, D)
            if squares is not None:
                act, density = self.diagonal(mean_weights, total, mean, votes, squares, params, iteration)
            else:
                act, density = self.full(mean_weights, total, votes - mean.unsqueeze(-3), edges is not None)
            any_vote = total > 0  # a parent without votes is absent
            pose, act = (mean + centre) * any_vote.unsqueeze(-1), act * any_vote
            if trace:
                history.append((posterior.to(dtype), logits.to(dtype), pose.to(dtype), act.to(dtype)))
            if iteration < self.iterations - 1:
                logits = density
        return Routed(pose.to(dtype), act.to(dtype), stack_trace(history) if trace else None)

    def diagonal(
        self,
        mean_weights: Tensor,
        total: Tensor,
        mean: Tensor,
        votes: Tensor,
        squares: Tensor,
        params: dict[str, Tensor],
        iteration: int,
    ) -> tuple[Tensor, Tensor]:
        """Activations (B, J) and the log of each parent's weighted density at each vote (B, I, J).

        The variance is multiplied out, so that moments are matrix products with the votes and with their squares.
        """
        spread = (gather(mean_weights, squares) - mean.square()).clamp_min(0)
        variance = spread + self.min_variance  # (B, J, D)
        log_sigma = 0.5 * variance.log().sum(dim=-1)  # (B, J), summed over the dimensions
        D = votes.shape[-1]
        use_cost, act_cost = (params.get(name, votes.new_zeros(())) for name in ("use_cost", "act_cost"))
        cost = (D * (self.start_cost + use_cost) + log_sigma) * total
        act_logit = self.temperature(iteration) * (act_cost - cost)
        scale = variance.rsqrt()
        away = votes * scale.unsqueeze(-3) - (mean * scale).unsqueeze(-3)
        distance = away.square().sum(dim=-1)  # (B, I, J); multiplied out it would be less exact
        log_act = -F.softplus(-act_logit, threshold=40)  # ONNX would take the log of a rounded sigmoid
        density = log_act.unsqueeze(-2) - 0.5 * distance - log_sigma.unsqueeze(-2)
        return act_logit.sigmoid(), density

    def full(self, mean_weights: Tensor, total: Tensor, away: Tensor, positions: bool) -> tuple[Tensor, Tensor]:
        """Mixing weights (B, J) and the log of pi_j N(u_ij; mu_j, Sigma_j) of the blurred votes (B, I, J)."""
        columns = away.transpose(-3, -2)  # (B, J, I, D)
        spread = (columns * mean_weights.transpose(-2, -1).unsqueeze(-1)).transpose(-2, -1) @ columns  # (B, J, D, D)
        D = away.shape[-1]
        size = spread.diagonal(dim1=-2, dim2=-1).sum(dim=-1).detach()  # (B, J)
        blur = self.min_variance + 100 * torch.finfo(away.dtype).eps * size  # enough for the factor to exist
        eye = torch.eye(D, dtype=away.dtype, device=away.device)
        factor = torch.linalg.cholesky_ex(spread + blur[..., None, None] * eye).L  # (B, J, D, D)
        white = torch.linalg.solve_triangular(factor, columns.transpose(-2, -1), upper=False)  # (B, J, D, I)
        inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)  # (B, J): half of the covariance's
        lost = 0.5 * blur * inverse.square().sum(dim=(-2, -1)) + log_det + 0.5 * D * math.log(2 * math.pi)
        parents = (-2, -1) if positions else (-1,)
        mixing = total / total.sum(dim=parents, keepdim=True).clamp_min(tiny(away))
        density = mixing.clamp_min(tiny(away)).log() - lost  # (B, J)
        return mixing, density.unsqueeze(-2) - 0.5 * white.square().sum(dim=-2).transpose(-2, -1)


def at_least_single(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def tiny(like: Tensor) -> float:
    """The least divisor of a parent's total: with much less the backward pass would overflow."""
    return torch.finfo(like.dtype).eps ** 2
