"""Synchronisation in plain loops over single oscillators: the Kuramoto model, and routing by it."""

import math

import torch
from torch import Tensor

from capsnet.functional import squash
from capsnet.oscillators import simplex


def kuramoto_velocity(theta: list[float], omega: list[float], coupling: list[list[float]], lag: float) -> list[float]:
    """The model, one pair at a time."""
    return [
        omega[i] + sum(coupling[i][j] * math.sin(theta[j] - theta[i] - lag) for j in range(len(theta)))
        for i in range(len(theta))
    ]


def unit(x: Tensor) -> Tensor:
    length = math.sqrt(float(x @ x))
    return x / length if length else x


def kuramoto_couplings(
    votes: Tensor,
    w: Tensor,
    iterations: int,
    beta: float,
    gain: float,
    gamma: float,
    repel: float,
    normalise: bool = False,
) -> Tensor:
    """The couplings of the last iteration of Kuramoto routing. votes (I, J, D), presences w (I,) -> (I, J)"""
    I, J, _ = votes.shape
    phi = list(simplex(J, dtype=torch.float64))
    theta = [torch.zeros_like(phi[0]) for _ in range(I)]
    coupling = torch.zeros(I, J, dtype=torch.float64)
    for iteration in range(iterations):
        for i in range(I):
            powers = [math.exp(beta * float(theta[i] @ phi[j])) for j in range(J)]
            coupling[i] = torch.tensor([power / sum(powers) for power in powers])
        poses = [
            squash(sum((coupling[i, j] * w[i] * votes[i, j] for i in range(I)), 0 * votes[0, 0])) for j in range(J)
        ]
        if iteration == iterations - 1:
            break
        heard = [[unit(votes[i, j]) if normalise else votes[i, j] for j in range(J)] for i in range(I)]
        agreement = [[float(heard[i][j] @ poses[j]) for j in range(J)] for i in range(I)]
        pull = [[gain * a / sum(abs(b) for b in row) for a in row] for row in agreement]
        turned_theta, turned_phi = [], []
        for i in range(I):
            force = sum((pull[i][j] * phi[j] for j in range(J)), 0 * phi[0])
            turned_theta.append(unit(theta[i] + gamma * (force - (force @ theta[i]) * theta[i])))
        for j in range(J):
            force = sum((float(w[i]) * pull[i][j] * theta[i] for i in range(I)), 0 * phi[0]) / float(w.sum())
            force = force - repel * sum((phi[k] for k in range(J) if k != j), 0 * phi[0])
            turned_phi.append(unit(phi[j] + gamma * (force - (force @ phi[j]) * phi[j])))
        theta, phi = turned_theta, turned_phi
    return coupling
