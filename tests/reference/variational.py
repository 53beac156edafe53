"""Variational Bayes routing, one capsule at a time, by the equations of Bishop 2006, Section 10.2, for ONE example."""

import math

import torch
from scipy.special import digamma, gammaln
from torch import Tensor


class Posterior:
    """The variational posterior of parent j for couplings r (I, J)."""

    def __init__(self, votes: Tensor, r: Tensor, j: int, diagonal: bool, concentration: float, strength: float) -> None:
        u, r = votes[:, j], r[:, j]
        D = self.dim = u.shape[1]
        self.count = float(r.sum())
        mean = sum(float(r[i]) * u[i] for i in range(len(u))) / self.count
        assert isinstance(mean, Tensor)
        self.alpha, self.kappa = concentration + self.count, strength + self.count
        self.nu = D + 1 + self.count
        self.m = self.count * mean / self.kappa
        inverse = torch.eye(D, dtype=torch.float64) + strength * self.count / self.kappa * torch.outer(mean, mean)
        for i in range(len(u)):
            inverse += r[i] * torch.outer(u[i] - mean, u[i] - mean)
        self.psi = torch.linalg.inv(torch.diag(inverse.diagonal()) if diagonal else inverse)
        self.log_precision = sum(digamma((self.nu - d) / 2) for d in range(D)) + D * math.log(2)
        self.log_precision += float(torch.logdet(self.psi))

    def log_density(self, u: Tensor) -> float:
        D = self.dim
        distance = float((u - self.m) @ self.psi @ (u - self.m))
        return 0.5 * (self.log_precision - D / self.kappa - self.nu * distance - D * math.log(2 * math.pi))


def fit(votes: Tensor, r: Tensor, diagonal: bool, concentration: float = 1.0, strength: float = 1.0) -> tuple:
    """The posteriors of all parents, and the expected logarithms of their shares."""
    parents = [Posterior(votes, r, j, diagonal, concentration, strength) for j in range(votes.shape[1])]
    total = sum(parent.alpha for parent in parents)
    return parents, [digamma(parent.alpha) - digamma(total) for parent in parents]


def variational_bayes(votes: Tensor, act: Tensor, iterations: int, **options) -> tuple:
    """Posteriors, expected logarithms of their shares, couplings (I, J). Options: those of ``fit``."""
    I, J = votes.shape[:2]
    coupling = torch.full((I, J), 1 / J, dtype=torch.float64)
    parents, log_pi = fit(votes, coupling * act[:, None], **options)
    for _ in range(iterations - 1):
        for i in range(I):
            log_p = torch.tensor([log_pi[j] + parents[j].log_density(votes[i, j]) for j in range(J)])
            coupling[i] = (log_p - log_p.max()).exp() / (log_p - log_p.max()).exp().sum()
        parents, log_pi = fit(votes, coupling * act[:, None], **options)
    return parents, log_pi, coupling


def lower_bound(votes: Tensor, coupling: Tensor, act: Tensor) -> float:
    """The evidence's lower bound of couplings and of the posteriors fitted to them [Eqs. 10.70 to 10.77], up to a
    constant. A child of presence a counts a times."""
    parents, log_pi = fit(votes, coupling * act[:, None], diagonal=False)
    D = votes.shape[2]
    bound = 0.0
    for j, parent in enumerate(parents):
        for i in range(len(votes)):
            r = float(coupling[i, j])
            bound += float(act[i]) * r * (parent.log_density(votes[i, j]) + log_pi[j] - math.log(max(r, 1e-300)))
        # E[log p(mu, Lambda)] with kappa_0 = 1, m_0 = 0, W_0 = I, nu_0 = D + 1
        bound += 0.5 * (D * math.log(1 / (2 * math.pi)) + parent.log_precision - D / parent.kappa)
        bound -= 0.5 * parent.nu * float(parent.m @ parent.psi @ parent.m)
        bound += 0.5 * (D + 1 - D - 1) * parent.log_precision - 0.5 * parent.nu * float(parent.psi.trace())
        # minus E[log q(mu, Lambda)]: the Gaussian's and the Wishart's entropy
        bound -= 0.5 * parent.log_precision + 0.5 * D * (math.log(parent.kappa / (2 * math.pi)) - 1)
        log_b = -0.5 * parent.nu * float(torch.logdet(parent.psi)) - 0.5 * parent.nu * D * math.log(2)
        log_b -= sum(gammaln((parent.nu - d) / 2) for d in range(D))
        bound -= log_b + 0.5 * (parent.nu - D - 1) * parent.log_precision - 0.5 * parent.nu * D
        bound -= (parent.alpha - 1) * log_pi[j] - gammaln(parent.alpha)  # the Dirichlet's entropy; its prior is flat
    return bound - gammaln(sum(parent.alpha for parent in parents))
