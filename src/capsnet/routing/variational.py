"""Variational Bayes routing: Ribeiro, Leontidis, Kollias, AAAI 2020 (arXiv 1905.11455).

A mixture of Gaussians over the votes, as in EM, but with prior distributions instead of point estimates: Dirichlet over
the mixing proportions, Gaussian-Wishart over each parent's mean and precision (Bishop 2006, Section 10.2). A parent
that explains few votes keeps its prior's wide variance, so it cannot collapse onto one of them.

R_ij are the couplings, a_i the children's presences, r_ij = R_ij a_i, N_j = sum_i r_ij, mean_j = sum_i r_ij u_ij / N_j:

    alpha_j = alpha_0 + N_j,   kappa_j = kappa_0 + N_j,   nu_j = nu_0 + N_j,   m_j = N_j mean_j / kappa_j
    Psi_j^-1 = I + sum_i r_ij (u_ij - mean_j)(u_ij - mean_j)^T + kappa_0 N_j / kappa_j mean_j mean_j^T
    log R_ij = E[log pi_j] + 1/2 E[log |Lambda_j|] - 1/2 (D / kappa_j + nu_j (u_ij - m_j)^T Psi_j (u_ij - m_j)) + const

where E[log pi_j] = digamma(alpha_j) - digamma(sum_k alpha_k) and E[log |Lambda_j|] = sum_d digamma((nu_j + 1 - d) / 2)
+ D log 2 + log |Psi_j|. Iterations never lower the evidence's lower bound. A parent is present if it has many votes
and its entropy H_j = D/2 log(2 pi e) - 1/2 E[log |Lambda_j|] is low:

    a_j = sigmoid((1 + scale_j) (offset_j - exp(E[log pi_j]) H_j))

The authors standardise poses and presences over the batch; a routing has no state, so scale and offset are learned.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from capsnet.functional import without_autocast
from capsnet.routing.base import Edges, Formula, Routed, Routing, check_count
from capsnet.routing.em import at_least_single, tiny
from capsnet.routing.steps import agree, couple, gather, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class VariationalBayes(Routing):
    """A Bayesian mixture of Gaussians, fitted by variational inference.

    Args:
        iterations: at least 1. With 1 the couplings are equal.
        covariance: ``"diagonal"`` (products of squared votes) or ``"full"`` (D x D matrices, slower).
        concentration: alpha_0 of the Dirichlet prior; below 1 favours few parents.
        strength: kappa_0, how many votes the prior mean of zero counts for.

    nu_0 is D + 1, the scale matrix of the Wishart prior the identity, as the authors have it.

    Shapes: votes (B, I, J, D) -> pose (B, J, D), act (B, J). Learned: ``scale`` and ``offset`` (J,).
    """

    name: ClassVar[str] = "variational-bayes"
    sentence: ClassVar[str] = "Each parent is a Gaussian with a prior; each child goes to those that explain its vote."
    iteration_name: ClassVar[str] = "step"
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"variational-bayes-full": {"covariance": "full"}}
    wants_presence: ClassVar[bool] = True
    vote_free: ClassVar[bool] = False
    formula: ClassVar[Formula] = Formula("c_ij = π_j p_ij / Σ_k π_k p_ik", "a_j = sigmoid(s_j (o_j - π_j H_j))")
    presence_is_length: ClassVar[bool] = False
    iterations: int = 3
    covariance: Literal["diagonal", "full"] = "diagonal"
    concentration: float = 1.0
    strength: float = 1.0

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        if self.covariance not in ("diagonal", "full"):
            raise ValueError(f'covariance must be "diagonal" or "full", got {self.covariance!r}')
        for what in ("concentration", "strength"):
            if not 0 < getattr(self, what) < math.inf:
                raise ValueError(f"{what} must be positive and finite, got {getattr(self, what)!r}")

    def param_shapes(self, I: int, J: int, D: int) -> dict[str, tuple[int, ...]]:
        return {"scale": (J,), "offset": (J,)}

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        with without_autocast(votes):
            return self._route(votes, weights, edges, params, trace)

    def _route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        dtype, votes = votes.dtype, at_least_single(votes)  # half precision is too coarse for variances
        scale, offset = (params.get(name, votes.new_zeros(())) for name in ("scale", "offset"))
        fit = self._diagonal if self.covariance == "diagonal" else self._full
        logits = votes.new_zeros(votes.shape[:-1])  # (B, I, J)
        pose = act = votes.new_zeros(())
        D, history = votes.shape[-1], []
        below = torch.arange(D, dtype=votes.dtype, device=votes.device)
        for iteration in range(self.iterations):
            coupling = couple(logits, edges)
            counted = weigh(coupling, weights, edges).to(votes.dtype)
            total = counted.sum(dim=-2)  # (B, J)
            mean = gather(counted / total.clamp_min(tiny(votes)).unsqueeze(-2), votes)  # (B, J, D)
            kappa, nu = self.strength + total, D + 1 + total
            pose = mean * (total / kappa).unsqueeze(-1)
            log_det, distance = fit(votes, counted, total, mean, pose, total * self.strength / kappa)
            alpha = self.concentration + total
            log_pi = alpha.digamma() - alpha.sum(dim=-1, keepdim=True).digamma()  # over the parents of a position
            log_precision = ((nu.unsqueeze(-1) - below) / 2).digamma().sum(dim=-1) + D * math.log(2) + log_det
            entropy = 0.5 * (D * math.log(2 * math.pi * math.e) - log_precision)
            act = ((1 + scale) * (offset - log_pi.exp() * entropy)).sigmoid() * (total > 0)  # without votes: absent
            if trace:
                history.append((coupling.to(dtype), logits.to(dtype), pose.to(dtype), act.to(dtype)))
            if iteration < self.iterations - 1:
                constant = log_pi + 0.5 * (log_precision - D / kappa - D * math.log(2 * math.pi))
                logits = constant.unsqueeze(-2) - 0.5 * nu.unsqueeze(-2) * distance
        return Routed(pose.to(dtype), act.to(dtype), stack_trace(history) if trace else None)

    @staticmethod
    def _diagonal(
        votes: Tensor, counted: Tensor, total: Tensor, mean: Tensor, pose: Tensor, shrunk: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log |Psi_j| (B, J) and (u_ij - m_j)^T Psi_j (u_ij - m_j) (B, I, J), of a diagonal Psi."""
        squares = votes.square()
        spread = (gather(counted, squares) - total.unsqueeze(-1) * mean.square()).clamp_min(0)
        inverse = 1 + spread + shrunk.unsqueeze(-1) * mean.square()  # (B, J, D)
        psi = inverse.reciprocal()
        middle = (pose.square() * psi).sum(dim=-1).unsqueeze(-2)
        distance = agree(squares, psi) - 2 * agree(votes, pose * psi) + middle
        return -inverse.log().sum(dim=-1), distance.clamp_min(0)

    @staticmethod
    def _full(
        votes: Tensor, counted: Tensor, total: Tensor, mean: Tensor, pose: Tensor, shrunk: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same, of a full Psi."""
        away = (votes - mean.unsqueeze(-3)).transpose(-3, -2)  # (B, J, I, D)
        spread = (away * counted.transpose(-2, -1).unsqueeze(-1)).transpose(-2, -1) @ away  # (B, J, D, D)
        spread = spread + shrunk[..., None, None] * mean.unsqueeze(-1) * mean.unsqueeze(-2)
        eye = torch.eye(votes.shape[-1], dtype=votes.dtype, device=votes.device)
        size = spread.diagonal(dim1=-2, dim2=-1).sum(dim=-1).detach()
        blur = 1 + 100 * torch.finfo(votes.dtype).eps * size  # the prior's 1, and enough for the factor to exist
        factor = torch.linalg.cholesky_ex(blur[..., None, None] * eye + spread).L
        columns = (votes - pose.unsqueeze(-3)).transpose(-3, -2).transpose(-2, -1)  # (B, J, D, I)
        white = torch.linalg.solve_triangular(factor, columns, upper=False)
        log_det = -2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        return log_det, white.square().sum(dim=-2).transpose(-2, -1)
