"""The Kuramoto model against its equation, term by term, and against Kuramoto's theory."""

import math

import pytest
import torch
from torch import Tensor

from capsnet.oscillators import (
    Distribution,
    critical_coupling,
    locked_order,
    lorentz,
    normal,
    phase_clusters,
    phase_colours,
    random_phases,
    simulate,
    unit,
)
from tests.reference.synchrony import kuramoto_velocity


@pytest.mark.parametrize("lag", [0.0, 0.7])
@pytest.mark.parametrize("mean_field", [True, False])
def test_simulation_equals_pairwise_loop(lag: float, mean_field: bool) -> None:
    N, K, dt = 7, 1.3, 0.01
    generator = torch.Generator().manual_seed(0)
    omega, start = (torch.randn(N, dtype=torch.float64, generator=generator) for _ in range(2))
    matrix = torch.full((N, N), K / N, dtype=torch.float64)
    if not mean_field:
        matrix = torch.randn(N, N, dtype=torch.float64, generator=generator)
    theta = start.tolist()
    for _ in range(200):  # midpoint rule
        k1 = kuramoto_velocity(theta, omega.tolist(), matrix.tolist(), lag)
        half = [t + 0.5 * dt * k for t, k in zip(theta, k1, strict=True)]
        k2 = kuramoto_velocity(half, omega.tolist(), matrix.tolist(), lag)
        theta = [t + dt * k for t, k in zip(theta, k2, strict=True)]
    result = simulate(omega, K if mean_field else matrix, time=2, dt=dt, lag=lag, start=start)
    assert (result.phases[-1] - torch.tensor(theta, dtype=torch.float64)).abs().max() < 1e-3


@pytest.mark.parametrize("frequencies", [lorentz(), normal()], ids=lambda d: d.name)
def test_order_is_that_of_the_theory_above_the_critical_coupling(frequencies: Distribution) -> None:
    """Near the critical coupling the order settles slowly: at 1.08 times it, it is 0.02 off after 60 time units."""
    ratios = torch.tensor([1.05, 1.08, 1.1, 1.25, 1.5, 2.0], dtype=torch.float64)
    couplings = ratios * critical_coupling(frequencies)
    result = simulate(frequencies.frequencies(500), couplings, time=300, dt=0.15, every=20)
    order = result.order[-20:].mean(dim=0)
    theory = torch.tensor([locked_order(float(K), frequencies) for K in couplings], dtype=torch.float64)
    assert (order - theory).abs().max() < 0.02


@pytest.mark.parametrize("width", [0.5, 0.001, 40.0])
def test_order_of_lorentz_frequencies_has_a_closed_form(width: float) -> None:
    """Also where the pull is a million times the width of the frequencies."""
    frequencies = lorentz(width)
    critical = critical_coupling(frequencies)
    assert critical == pytest.approx(2 * width)
    assert locked_order(critical, frequencies) == 0
    for ratio in (1.01, 1.05, 1.3, 4.0, 100.0, 3e3, 1e4, 1e6):
        assert locked_order(ratio * critical, frequencies) == pytest.approx(math.sqrt(1 - 1 / ratio), abs=1e-12)


def test_normal_frequencies_lock_completely_in_the_limit() -> None:
    """1 - r falls as E[omega^2] / (2 K^2)."""
    for coupling in (1e2, 1e3, 1e4):
        assert 1 - locked_order(coupling, normal()) == pytest.approx(0.5 / coupling**2, rel=1e-3)
    assert locked_order(1e6, normal()) == pytest.approx(1, abs=1e-12)


def test_order_stays_low_below_the_critical_coupling() -> None:
    result = simulate(normal().frequencies(2000), 0.5 * critical_coupling(normal()), time=40, every=100)
    assert result.order[-4:].max() < 0.1


def test_several_couplings_at_once_equal_single_simulations() -> None:
    omega = lorentz().frequencies(20)
    together = simulate(omega, torch.tensor([1.0, 3.0]), time=3)
    for k, K in enumerate((1.0, 3.0)):
        torch.testing.assert_close(together.phases[:, k], simulate(omega, K, time=3).phases)


def test_every_keeps_first_and_last() -> None:
    result = simulate(torch.zeros(3), 1.0, time=1, dt=0.1, every=4)
    torch.testing.assert_close(result.times, torch.tensor([0.0, 0.4, 0.8, 1.0], dtype=torch.float64))


@pytest.mark.parametrize(("time", "dt"), [(1.0, 0.3), (0.01, 0.3), (1.0, 0.1)])
def test_simulation_ends_at_the_time_asked_for(time: float, dt: float) -> None:
    result = simulate(torch.ones(2), 0.0, time=time, dt=dt, start=torch.zeros(2))
    assert result.times[-1].item() == pytest.approx(time)
    assert result.phases[-1].tolist() == pytest.approx([time] * 2, abs=1e-6)


def groups(n: int) -> tuple[Tensor, Tensor]:
    labels = torch.arange(60) % 3
    centres = random_phases(3, n, seed=4, dtype=torch.float64)
    noise = torch.randn(60, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return unit(centres[labels] + 0.05 * noise), labels


@pytest.mark.parametrize("n", [2, 4])
def test_clusters_are_found_whatever_their_numbers(n: int) -> None:
    x, labels = groups(n)
    result = phase_clusters(x, 3)
    pairs = set(zip(labels.tolist(), result.labels.tolist(), strict=True))
    assert len(pairs) == 3
    assert result.score > 0.98
    assert torch.equal(phase_clusters(x, 3).labels, result.labels)


def test_oscillators_of_weight_zero_move_no_centre() -> None:
    x, _ = groups(3)
    extra = torch.cat([x, -x[:5]])
    weights = torch.cat([torch.ones(60), torch.zeros(5)])
    torch.testing.assert_close(phase_clusters(extra, 3, weights=weights).score, phase_clusters(x, 3).score)


def test_more_clusters_than_directions_are_accepted() -> None:
    result = phase_clusters(torch.eye(2).repeat(3, 1), 4)
    assert result.score == pytest.approx(1.0)


def test_hue_is_the_angle() -> None:
    third = 2 * math.pi / 3
    x = torch.tensor([[math.cos(k * third), math.sin(k * third)] for k in range(3)])
    torch.testing.assert_close(phase_colours(x), torch.eye(3, dtype=torch.float64), atol=1e-6, rtol=0)


def test_one_oscillator_has_one_colour() -> None:
    assert phase_colours(torch.tensor([1.0, 0.0])).tolist() == [1, 0, 0]


def test_colours_of_a_map_are_its_pixels_darkened_by_weights() -> None:
    x, weights = random_phases(5, 6, 4, seed=0), torch.rand(5, 6)
    colours = phase_colours(x, weights)
    assert colours.shape == (5, 6, 3)
    assert ((colours >= 0) & (colours <= 1)).all()
    assert (colours <= weights[..., None].double() + 1e-9).all()


@pytest.mark.parametrize("seed", range(4))
def test_colours_of_a_sphere_are_those_of_its_principal_plane(seed: int) -> None:
    """The axes have a fixed sign, what lies outside of their plane is paler, and what has no weight does not count."""
    drawn = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    first, second, away = (axis * axis[axis.abs().argmax()].sign() for axis in torch.linalg.qr(drawn).Q.T)
    angles = torch.tensor([0.3, 0.6, -0.3, -0.6], dtype=torch.float64)
    angles = torch.cat([angles, angles + math.pi])
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)
    plane = circle @ torch.stack([first, second])
    torch.testing.assert_close(phase_colours(plane), phase_colours(circle))
    tilted = math.cos(0.4) * first + math.sin(0.4) * torch.stack([away, -away])
    pale = phase_colours(torch.cat([plane, tilted, -tilted]))[len(plane)]
    torch.testing.assert_close(pale, torch.tensor([1, 1 - math.cos(0.4), 1 - math.cos(0.4)], dtype=torch.float64))
    weights = torch.cat([torch.ones(8), torch.zeros(40)])
    colours = phase_colours(torch.cat([plane, away.expand(20, 3), -away.expand(20, 3)]), weights)
    torch.testing.assert_close(colours[:8], phase_colours(circle))
