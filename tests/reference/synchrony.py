"""Synchronisation in plain loops over single oscillators, units and patches."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from capsnet.functional import squash


def kuramoto_velocity(theta: list[float], omega: list[float], coupling: list[list[float]], lag: float) -> list[float]:
    """The model, one pair at a time."""
    return [
        omega[i] + sum(coupling[i][j] * math.sin(theta[j] - theta[i] - lag) for j in range(len(theta)))
        for i in range(len(theta))
    ]


def simplex(count: int, dim: int) -> Tensor:
    """Unit vectors, one after the other, with the same inner product with all earlier ones: (count, dim).

    The rest of the length of each is a new direction. The last of several has none left.
    """
    corners = [[0.0] * dim for _ in range(count)]
    for k, corner in enumerate(corners):
        for j in range(k):
            rest = sum(a * b for a, b in zip(corner[:j], corners[j][:j], strict=True))
            corner[j] = (-1 / (count - 1) - rest) / corners[j][j]
        if k == 0 or k < count - 1:
            corner[k] = math.sqrt(1 - sum(a * a for a in corner[:k]))
    return torch.tensor(corners, dtype=torch.float64)


def unit(x: Tensor) -> Tensor:
    length = math.sqrt(float(x @ x))
    return x / length if length else x


def energy(x: Tensor, coupling: Tensor, stimulus: Tensor) -> float:
    """Every pair of oscillators counts half for each of its two; x and stimulus (N, n), coupling (N, N)."""
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total -= 0.5 * float(coupling[i, j] * (x[i] @ x[j]))
        total -= float(x[i] @ stimulus[i])
    return total


def order_parameter(x: Tensor, weights: list[float]) -> float:
    """The length of the weighted mean of oscillators (N, n), 0 without weight."""
    mean = [sum(w * float(one[d]) for one, w in zip(x, weights, strict=True)) for d in range(x.shape[1])]
    total = sum(weights)
    return math.hypot(*mean) / total if total else 0.0


class Iteration(NamedTuple):
    """An iteration of Kuramoto routing: couplings (P, K, J), phases of children (I, N) and of parents (P, J, N)."""

    coupling: Tensor
    children: Tensor
    parents: Tensor


def kuramoto_routing(
    votes: Tensor,
    w: Tensor,
    index: Tensor,
    iterations: int,
    beta: float,
    gain: float,
    gamma: float,
    repel: float,
    normalise: bool = False,
) -> list[Iteration]:
    """The iterations of Kuramoto routing, where position p sees the children index[p].

    Dense routing has one position, which sees all. votes (P, K, J, D), presences w (I,), index (P, K)
    """
    P, K, J, _ = votes.shape
    phi = [list(simplex(J, max(3, J - 1))) for _ in range(P)]
    theta = [torch.zeros_like(phi[0][0]) for _ in w]
    done: list[Iteration] = []
    seen = [[(p, k) for p in range(P) for k in range(K) if index[p, k] == i] for i in range(len(w))]  # by each child
    for iteration in range(iterations):
        coupling = torch.zeros(P, K, J, dtype=torch.float64)
        for i, edges in enumerate(seen):
            powers = [[math.exp(beta * float(theta[i] @ phi[p][j])) for j in range(J)] for p, _ in edges]
            total = sum(sum(row) for row in powers)
            for (p, k), row in zip(edges, powers, strict=True):
                coupling[p, k] = torch.tensor([power / total for power in row], dtype=torch.float64)
        done.append(Iteration(coupling, torch.stack(theta), torch.stack([torch.stack(row) for row in phi])))
        if iteration == iterations - 1:
            break
        pull = torch.zeros_like(coupling)
        for p in range(P):
            for j in range(J):
                pose = squash(
                    sum((coupling[p, k, j] * w[index[p, k]] * votes[p, k, j] for k in range(K)), 0 * votes[0, 0, 0])
                )
                for k in range(K):
                    pull[p, k, j] = (unit(votes[p, k, j]) if normalise else votes[p, k, j]) @ pose
        for edges in seen:
            total = sum(float(pull[p, k, j].abs()) for p, k in edges for j in range(J))
            for p, k in edges:
                pull[p, k] *= gain / total
        turned_theta = []
        for i, edges in enumerate(seen):
            force = sum((pull[p, k, j] * phi[p][j] for p, k in edges for j in range(J)), 0 * theta[0])
            turned_theta.append(sphere_step(theta[i], force, gamma))
        turned_phi = []
        for p in range(P):
            present = sum(float(w[i]) for i in index[p])
            row = []
            for j in range(J):
                force = sum((w[i] * pull[p, k, j] * theta[i] for k, i in enumerate(index[p])), 0 * theta[0]) / present
                force = force - repel * sum((phi[p][m] for m in range(J) if m != j), 0 * theta[0])
                row.append(sphere_step(phi[p][j], force, gamma))
            turned_phi.append(row)
        theta, phi = turned_theta, turned_phi
    return done


def sphere_step(x: Tensor, force: Tensor, gamma: float, omega: Tensor | None = None) -> Tensor:
    """One oscillator, pulled along the sphere; omega (n, n) turns it."""
    velocity = force - (force @ x) * x
    return unit(x + gamma * (velocity if omega is None else velocity + omega @ x))


def akorn_steps(
    x: Tensor, stimulus: Tensor, couple: Callable[[Tensor], Tensor], rates: Tensor, gamma: float, steps: int
) -> Tensor:
    """T steps of oscillators (C, n, H, W) with the coupling J x = couple(x) and rates (C, n (n - 1) / 2)."""
    C, n, H, W = x.shape
    for _ in range(steps):
        force, moved = couple(x) + stimulus, torch.empty_like(x)
        for c in range(C):
            omega, entries = torch.zeros(n, n, dtype=x.dtype), iter(rates[c])
            for i in range(n):
                for j in range(i + 1, n):
                    rate = next(entries)
                    omega[i, j], omega[j, i] = -rate, rate
            for h in range(H):
                for w in range(W):
                    moved[c, :, h, w] = sphere_step(x[c, :, h, w], force[c, :, h, w], gamma, omega)
        x = moved
    return x


def attention(x: Tensor, project: Tensor, offset: Tensor, join: Tensor, end: Tensor, heads: int) -> Tensor:
    """Every place of x (C, N) hears all: x -> project x + offset = query, key, value; -> join (heads) + end."""
    C, N = x.shape
    width = C // heads
    mapped = [project @ x[:, k] + offset for k in range(N)]
    result = torch.empty_like(x)
    for here in range(N):
        heard = []
        for head in range(heads):
            query, key, value = (slice(part * C + head * width, part * C + (head + 1) * width) for part in range(3))
            powers = [math.exp(float(mapped[here][query] @ there[key]) / math.sqrt(width)) for there in mapped]
            parts = [power / sum(powers) * there[value] for power, there in zip(powers, mapped, strict=True)]
            heard.append(sum(parts[1:], parts[0]))
        result[:, here] = join @ torch.cat(heard) + end
    return result


def rotating(z: Tensor, matrix: Tensor, bias: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
    """Rotating features z (n, I) of one example through the linear map matrix (O, I). bias (n, O) -> (n, O)"""
    n, I = z.shape
    O = len(matrix)
    psi, lengths = torch.zeros(n, O, dtype=z.dtype), torch.zeros(O, dtype=z.dtype)
    for o in range(O):
        for k in range(n):
            psi[k, o] = sum(float(matrix[o, i] * z[k, i]) for i in range(I))
        chi = sum(float(matrix[o, i]) * math.hypot(*z[:, i].tolist()) for i in range(I))
        lengths[o] = 0.5 * math.hypot(*psi[:, o].tolist()) + 0.5 * chi
    strength = norm(lengths)
    return torch.stack([max(0.0, float(strength[o])) * unit(psi[:, o] + bias[:, o]) for o in range(O)], dim=1)


def decoupled_convolution(x: Tensor, weight: Tensor, rho: list[float], h: str, g: str) -> Tensor:
    """h(|patch|) g(angle between patch and filter), patch by patch. x (C, H, W), weight (O, C, K, K) -> (O, H', W')"""
    (O, _, K, _), (_, H, W) = weight.shape, x.shape
    result = torch.empty(O, H - K + 1, W - K + 1, dtype=x.dtype)
    for o in range(O):
        for top in range(H - K + 1):
            for left in range(W - K + 1):
                patch = x[:, top : top + K, left : left + K].flatten()
                size = math.sqrt(float(patch @ patch))
                cosine = float(unit(weight[o].flatten()) @ patch) / size
                strength = {
                    "sphere": 1.0,
                    "ball": min(size, rho[o]) / rho[o],
                    "tanh": math.tanh(size / rho[o]),
                    "linear": size,
                    "segmented": size if size < rho[o] else rho[o] + 0.5 * (size - rho[o]),
                    "logarithmic": math.log(1 + size),
                }[h]
                angle = {
                    "cosine": cosine,
                    "linear": 1 - 2 / math.pi * math.acos(cosine),
                    "squared": math.copysign(cosine**2, cosine),
                }[g]
                result[o, top, left] = strength * angle
    return result
