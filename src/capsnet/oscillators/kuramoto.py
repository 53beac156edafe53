"""The Kuramoto model: oscillators with frequencies of their own that pull each other into one rhythm.

    dtheta_i/dt = omega_i + sum_j A_ij sin(theta_j - theta_i - lag)

With A_ij = K / N for all pairs the sum is K Im(z exp(-i (theta_i + lag))), where z = r exp(i psi) is the mean of
exp(i theta): every oscillator sees only the mean, so a step costs O(N). r is the order: 0 without a common phase, 1 if
all agree. Kuramoto (1975) found that r stays near 0 up to a critical coupling, K_c = 2 / (pi g(0)) for frequencies
distributed as g (symmetric, with one peak), and that above it a part of them locks:

    1 = K integral over t in [-pi/2, pi/2] of cos(t)^2 g(K r sin t) dt

For Lorentz's distribution, r = sqrt(1 - K_c / K).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from capsnet.oscillators.checks import check_count, check_finite, check_positive


class Distribution(NamedTuple):
    """Natural frequencies, symmetric around 0 with one peak: ``density`` and ``quantile`` as functions of a tensor."""

    name: str
    density: Callable[[Tensor], Tensor]
    quantile: Callable[[Tensor], Tensor]

    def frequencies(self, count: int) -> Tensor:
        """``count`` frequencies at evenly spaced quantiles: the distribution without chance. Shapes: -> (count,)."""
        check_count("count", count)
        return self.quantile((torch.arange(count, dtype=torch.float64) + 0.5) / count)


def lorentz(width: float = 1.0) -> Distribution:
    """Half of the frequencies lie within ``width`` of 0; the others reach far."""
    check_positive("width", width)
    return Distribution(
        "Lorentz",
        lambda omega: width / (math.pi * (omega * omega + width * width)),
        lambda share: width * torch.tan(math.pi * (share - 0.5)),
    )


def normal(deviation: float = 1.0) -> Distribution:
    """The normal distribution with mean 0."""
    check_positive("deviation", deviation)
    scale = 1 / (deviation * math.sqrt(2 * math.pi))
    return Distribution(
        "normal",
        lambda omega: scale * torch.exp(-0.5 * (omega / deviation) ** 2),
        lambda share: deviation * torch.special.ndtri(share),
    )


def critical_coupling(frequencies: Distribution) -> float:
    """K_c = 2 / (pi g(0)): the coupling at which order begins."""
    return 2 / (math.pi * float(frequencies.density(torch.zeros((), dtype=torch.float64))))


def locked_order(coupling: float, frequencies: Distribution) -> float:
    """The order r of infinitely many oscillators at this coupling: 0 up to the critical one.

    Solved by bisection: the integral falls with r.
    """
    check_positive("coupling", coupling)
    if coupling <= critical_coupling(frequencies):
        return 0.0
    # Midpoints in t alone miss the peak of g(K r sin t) where K r is large. Those in s, with
    # sin t = sinh(reach sin s) / sinh(reach), lie dense on the scale of the frequencies. The integrand is smooth and
    # periodic in s, so that the rule converges fast.
    count = 5_000
    s = (torch.arange(count, dtype=torch.float64) + 0.5) / count * math.pi - math.pi / 2
    width = float(frequencies.quantile(torch.tensor(0.75, dtype=torch.float64)))
    low, high = 0.0, 1.0
    for _ in range(50):
        r = (low + high) / 2
        reach = math.asinh(coupling * r / width)
        sine = torch.sinh(reach * torch.sin(s)) / math.sinh(reach)
        slope = reach * torch.cosh(reach * torch.sin(s)) / math.sinh(reach) * torch.cos(s)
        squared = (1 - sine.square()).clamp_min(0).sqrt() * slope  # cos(t)^2 dt/ds
        integral = float((squared * frequencies.density(coupling * r * sine)).mean()) * math.pi
        low, high = (r, high) if coupling * integral > 1 else (low, r)
    return (low + high) / 2


class Trajectory(NamedTuple):
    """A simulation: ``times`` (T,), ``phases`` (T, ..., N) in radians, not reduced, and ``order`` (T, ...)."""

    times: Tensor
    phases: Tensor
    order: Tensor


def simulate(
    frequencies: Tensor,
    coupling: float | Tensor,
    *,
    time: float,
    dt: float = 0.05,
    lag: float = 0.0,
    start: Tensor | None = None,
    seed: int = 0,
    every: int = 1,
) -> Trajectory:
    """Integrate the model by Runge and Kutta's fourth-order method.

    Args:
        frequencies: (..., N) natural frequencies.
        coupling: K of the mean field, a number or (...,) for several simulations at once; or a matrix A (N, N) of the
            couplings of all pairs.
        time: how long.
        dt: the step, or a little less, so that ``time`` is a whole number of steps.
        lag: phase lag of the interaction, in radians.
        start: (..., N) phases at time 0; by default at random by ``seed``.
        every: keep each so many steps, the first and the last included.
    """
    check_positive("time", time)
    check_positive("dt", dt)
    check_count("every", every)
    for what, values in (("frequencies", frequencies), ("start", start)):
        if values is not None and not isinstance(values, Tensor):
            raise ValueError(f"{what} must be a tensor (torch.tensor makes one), got {type(values).__name__}")
    if start is None:
        generator = torch.Generator().manual_seed(seed)
        start = 2 * math.pi * torch.rand(frequencies.shape[-1:], generator=generator, dtype=torch.float64)
    omega, strength, theta = _arguments(frequencies, coupling, lag, start)
    matrix = strength if strength.ndim >= 2 else None

    def velocity(phase: Tensor) -> Tensor:
        cosine, sine = torch.cos(phase), torch.sin(phase)
        if matrix is None:
            field_cos, field_sin = (strength[..., None] * part.mean(dim=-1, keepdim=True) for part in (cosine, sine))
        else:
            field_cos, field_sin = cosine @ matrix.T, sine @ matrix.T
        if lag:  # sin(a - b - lag) with the sums turned by -lag
            field_cos, field_sin = (
                field_cos * math.cos(lag) + field_sin * math.sin(lag),
                field_sin * math.cos(lag) - field_cos * math.sin(lag),
            )
        return omega + field_sin * cosine - field_cos * sine

    steps = max(1, math.ceil(time / dt - 1e-9))
    dt = time / steps  # not longer than asked for, so that the last step ends at ``time``
    kept: list[tuple[float, Tensor]] = [(0.0, theta.clone())]
    for number in range(1, steps + 1):
        k1 = velocity(theta)
        k2 = velocity(theta + 0.5 * dt * k1)
        k3 = velocity(theta + 0.5 * dt * k2)
        k4 = velocity(theta + dt * k3)
        theta = theta + (dt / 6) * (k1 + 2 * k2 + 2 * k3 + k4)
        if number % every == 0 or number == steps:
            kept.append((number * dt, theta))
    times = torch.tensor([t for t, _ in kept], dtype=torch.float64)
    phases = torch.stack([phase for _, phase in kept])
    order = torch.hypot(phases.cos().mean(dim=-1), phases.sin().mean(dim=-1))
    return Trajectory(times, phases, order)


def _arguments(
    frequencies: Tensor, coupling: float | Tensor, lag: float, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Frequencies, coupling and the first phases of ``simulate`` in float64, if they fit each other."""
    omega, theta = frequencies.to(torch.float64), start.to(torch.float64)
    strength, turn = _numbers("coupling", coupling), _numbers("lag", lag)
    for what, values in (("frequencies", omega), ("coupling", strength), ("start", theta), ("lag", turn)):
        check_finite(what, values)
    if turn.ndim:
        raise ValueError(f"lag must be one number, got the shape {tuple(turn.shape)}")
    if omega.ndim < 1 or omega.shape[-1] < 1:
        raise ValueError(f"expected frequencies (..., N) of at least one oscillator, got {tuple(omega.shape)}")
    N = omega.shape[-1]
    if strength.ndim >= 2 and strength.shape != (N, N):
        raise ValueError(f"a coupling matrix of {N} oscillators is {N} x {N}, got {tuple(strength.shape)}")
    if theta.shape[-1:] != (N,):
        raise ValueError(f"start must have a phase for each of {N} oscillators, got the shape {tuple(theta.shape)}")
    several = (*strength.shape, N) if strength.ndim < 2 else (N,)
    try:
        shape = torch.broadcast_shapes(omega.shape, several, theta.shape)
    except RuntimeError:
        shapes = f"{tuple(omega.shape)}, {tuple(strength.shape)} and {tuple(theta.shape)}"
        raise ValueError(f"frequencies, coupling and start are not of as many simulations: {shapes}") from None
    return omega, strength, theta.expand(shape).clone()


def _numbers(what: str, values: float | Tensor) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{what} must be a number or a tensor, got {values!r}") from None
