"""Inverted attention and variational Bayes against loops that follow the papers' equations, one capsule at a time."""

import math
from itertools import pairwise

import pytest
import torch
from scipy.special import digamma, gammaln
from torch import Tensor

from capsnet import routing

I, J, D = 6, 3, 4


def votes_and_act(seed: int, children: int = I) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    votes = 1.5 * torch.randn(children, J, D, dtype=torch.float64, generator=generator)
    return votes, torch.rand(children, dtype=torch.float64, generator=generator)


def softmax(values: Tensor) -> Tensor:
    return (values - values.max()).exp() / (values - values.max()).exp().sum()


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_inverted_attention_equals_reference_loop(iterations: int) -> None:
    votes, act = votes_and_act(0)
    params = {
        name: 0.3 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(name)))
        for name, shape in routing.get("inverted-attention").param_shapes(I, J, D).items()
    }
    poses = [torch.zeros(D, dtype=torch.float64)] * J
    for _ in range(iterations):
        coupling = [softmax(torch.stack([votes[i, j] @ poses[j] for j in range(J)]) / math.sqrt(D)) for i in range(I)]
        for j in range(J):
            total = torch.stack([coupling[i][j] * act[i] * votes[i, j] for i in range(I)]).sum(0)
            mean = total.mean()
            normal = (total - mean) / torch.sqrt((total - mean).square().mean() + 1e-5)
            poses[j] = normal * (1 + params["gain"]) + params["shift"]
    expected = torch.stack(poses)
    presence = (expected @ params["readout"] + params["readout_bias"]).sigmoid()
    routed = routing.get("inverted-attention", iterations=iterations)(votes[None], act[None], params=params)
    torch.testing.assert_close(routed.pose[0], expected)
    torch.testing.assert_close(routed.act[0], presence)


class Posterior:
    """The variational posterior of parent j for couplings r (I, J), by the equations of Bishop 2006, Section 10.2."""

    def __init__(self, votes: Tensor, r: Tensor, j: int, diagonal: bool, concentration: float, strength: float) -> None:
        u, r = votes[:, j], r[:, j]
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
        distance = float((u - self.m) @ self.psi @ (u - self.m))
        return 0.5 * (self.log_precision - D / self.kappa - self.nu * distance - D * math.log(2 * math.pi))


def fit(votes: Tensor, r: Tensor, diagonal: bool, concentration: float = 1.0, strength: float = 1.0) -> tuple:
    parents = [Posterior(votes, r, j, diagonal, concentration, strength) for j in range(J)]
    total = sum(parent.alpha for parent in parents)
    return parents, [digamma(parent.alpha) - digamma(total) for parent in parents]


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_variational_bayes_equals_reference_loop(covariance: str, iterations: int) -> None:
    votes, act = votes_and_act(1)
    options = {"concentration": 0.7, "strength": 2.0}
    scale, offset = (torch.tensor(values, dtype=torch.float64) for values in ([0.1, -0.2, 0.3], [0.5, 0.0, -0.5]))
    coupling = torch.full((I, J), 1 / J, dtype=torch.float64)
    parents, log_pi = fit(votes, coupling * act[:, None], covariance == "diagonal", **options)
    for _ in range(iterations - 1):
        for i in range(I):
            coupling[i] = softmax(torch.tensor([log_pi[j] + parents[j].log_density(votes[i, j]) for j in range(J)]))
        parents, log_pi = fit(votes, coupling * act[:, None], covariance == "diagonal", **options)
    route = routing.get("variational-bayes", iterations=iterations, covariance=covariance, **options)
    routed = route(votes[None], act[None], params={"scale": scale, "offset": offset}, trace=True)
    assert routed.trace is not None
    torch.testing.assert_close(routed.trace.couplings[-1, 0], coupling)
    for j, parent in enumerate(parents):
        torch.testing.assert_close(routed.pose[0, j], parent.m)
        entropy = 0.5 * (D * math.log(2 * math.pi * math.e) - parent.log_precision)
        presence = torch.sigmoid((1 + scale[j]) * (offset[j] - math.exp(log_pi[j]) * entropy))
        torch.testing.assert_close(routed.act[0, j], presence)


def lower_bound(votes: Tensor, coupling: Tensor, act: Tensor) -> float:
    """The evidence's lower bound of couplings and of the posteriors fitted to them [Bishop 2006, Eqs. 10.70 to 10.77],
    up to a constant. A child of presence a counts a times."""
    parents, log_pi = fit(votes, coupling * act[:, None], diagonal=False)
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


def test_iterations_never_lower_the_lower_bound_of_the_full_form() -> None:
    for seed in range(3):
        votes, act = votes_and_act(seed, children=20)
        route = routing.get("variational-bayes", iterations=8, covariance="full")
        trace = route(votes[None], act[None], trace=True).trace
        assert trace is not None
        bounds = [lower_bound(votes, coupling[0], act) for coupling in trace.couplings]
        gains = [after - before for before, after in pairwise(bounds)]
        assert min(gains) > -1e-6
        assert max(gains) > 1e-3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("inverted-attention", {"iterations": 0}, "iterations must be"),
        ("variational-bayes", {"covariance": "round"}, "covariance.* must be"),
        ("variational-bayes", {"strength": 0.0}, "strength must be positive"),
        ("variational-bayes", {"concentration": float("nan")}, "concentration must be positive"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        routing.get(name, **options)
