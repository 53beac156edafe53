"""Oscillators on the sphere: unit vectors, steps, energy, order."""

import functools
import math
import time

import pytest
import torch
from torch import Tensor

from capsnet import oscillators
from capsnet.oscillators import energy, order_parameter, random_phases, rotate, simplex, step, tangent, unit
from tests.reference import synchrony as reference

NAN = torch.tensor([[math.nan, 1.0], [0.0, 1.0]])


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rotation(n: int, seed: int = 0) -> Tensor:
    q, r = torch.linalg.qr(normal(seed, n, n))
    return q * r.diagonal().sign()


def symmetric(count: int, norm: float, seed: int = 3) -> Tensor:
    matrix = normal(seed, count, count)
    matrix = matrix + matrix.T
    return norm * matrix / torch.linalg.matrix_norm(matrix, 2)


def test_unit_vectors_have_length_one_and_zero_stays_zero() -> None:
    x = torch.cat([normal(0, 50, 4), 1e-9 * normal(1, 5, 4), 1e9 * normal(2, 5, 4)]).float()
    assert (unit(x).double().norm(dim=-1) - 1).abs().max() < 1e-6
    zero = torch.zeros(3, 4, requires_grad=True)
    unit(zero).sum().backward()
    assert (unit(zero) == 0).all()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "shortest"), [(torch.float32, 2.3e-13), (torch.float64, 2.8e-103)], ids=["float32", "float64"]
)
def test_unit_leaves_vectors_that_are_too_short_as_they_are(dtype: torch.dtype, shortest: float) -> None:
    direction = torch.tensor([0.0, 0.6, 0.8], dtype=dtype)
    longer, shorter = (factor * shortest * direction for factor in (1.05, 0.95))
    torch.testing.assert_close(unit(longer), direction)
    for x in (shorter, 0 * direction):
        assert torch.equal(unit(x), x)
        x.requires_grad_()
        assert torch.equal(torch.autograd.grad(unit(x).sum(), x)[0], 0 * direction + 1)


@pytest.mark.parametrize("length", [1e-8, 1e-13, 1e-16, 1e-19, 1e-30])
def test_gradient_of_short_vectors_is_finite(length: float) -> None:
    """Also of the plain operations, which ``torch.func`` sees: the derivative of a square root overflows there."""
    x = torch.full((2, 3), length)
    weights = torch.tensor([1.0, 2.0, 3.0])
    assert torch.func.grad(lambda x: (unit(x) * weights).sum())(x).isfinite().all()
    x.requires_grad_()
    (unit(x) * weights).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_unit_has_the_derivative_of_its_definition() -> None:
    x = normal(0, 5, 3).requires_grad_()
    for dim in (-1, 0):
        along = functools.partial(unit, dim=dim)
        assert torch.autograd.gradcheck(along, (x,))
        assert torch.autograd.gradgradcheck(along, (x,))
    forward, backward = torch.func.jacfwd(unit)(x.detach()), torch.func.jacrev(unit)(x.detach())
    torch.testing.assert_close(forward, torch.autograd.functional.jacobian(unit, x))
    torch.testing.assert_close(forward, backward)


def test_tangent_is_orthogonal_to_its_point() -> None:
    x, y = unit(normal(0, 20, 5)), normal(1, 20, 5)
    assert (tangent(x, y) * x).sum(-1).abs().max() < 1e-12
    torch.testing.assert_close(tangent(x, tangent(x, y)), tangent(x, y))


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_rotation_velocity_is_that_of_an_antisymmetric_matrix(n: int) -> None:
    x, rates = normal(0, 6, n), normal(1, n * (n - 1) // 2)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    number = 0
    for i in range(n):
        for j in range(i + 1, n):
            matrix[i, j], matrix[j, i] = -rates[number], rates[number]
            number += 1
    torch.testing.assert_close(rotate(x, rates), x @ matrix.T)
    assert (rotate(x, rates) * x).sum(-1).abs().max() < 1e-12


def test_positive_rate_turns_counter_clockwise() -> None:
    assert rotate(torch.tensor([1.0, 0.0]), torch.tensor([2.0])).tolist() == [0.0, 2.0]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_energy_never_rises_for_symmetric_coupling(n: int) -> None:
    matrix, stimulus = symmetric(30, 0.9), 0.1 * normal(5, 30, n)
    x = random_phases(30, n, seed=1, dtype=torch.float64)
    before = energy(x, matrix @ x, stimulus)
    for _ in range(100):
        x = step(x, matrix @ x + stimulus)
        after = energy(x, matrix @ x, stimulus)
        assert after <= before + 1e-12
        before = after
    assert (x.norm(dim=-1) - 1).abs().max() < 1e-12


@pytest.mark.parametrize("n", [2, 3, 5])
def test_energy_and_order_equal_loops_over_oscillators(n: int) -> None:
    """Of several groups at once; the coupling need not be symmetric, and one group has no weight."""
    matrix, stimulus, x = normal(0, 7, 7), normal(1, 3, 7, n), unit(normal(2, 3, 7, n))
    weights = normal(3, 3, 7).abs()
    weights[1] = 0
    for k in range(3):
        expected = reference.energy(x[k], matrix, stimulus[k])
        assert float(energy(x, matrix @ x, stimulus)[k]) == pytest.approx(expected, abs=1e-12)
        expected = reference.energy(x[k], matrix, 0 * stimulus[k])
        assert float(energy(x, matrix @ x)[k]) == pytest.approx(expected, abs=1e-12)
        assert float(order_parameter(x)[k]) == pytest.approx(reference.order_parameter(x[k], [1.0] * 7), abs=1e-12)
        expected = reference.order_parameter(x[k], weights[k].tolist())
        assert float(order_parameter(x, weights)[k]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_steps_commute_with_a_global_rotation(n: int) -> None:
    matrix, turn = normal(0, 12, 12), rotation(n)
    x = random_phases(12, n, seed=1, dtype=torch.float64)
    turned = x @ turn.T
    for _ in range(10):
        x, turned = step(x, matrix @ x, 0.3), step(turned, matrix @ turned, 0.3)
    assert (turned - x @ turn.T).abs().max() < 1e-12


def test_lengths_of_nan_are_nan_and_gradients_at_zero_are_zero() -> None:
    x = torch.tensor([[math.nan, 1.0], [0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    lengths = oscillators.magnitude(x)
    torch.testing.assert_close(lengths.detach(), torch.tensor([math.nan, 0.0, 5.0]), equal_nan=True)
    lengths[1:].sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[1:], torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    assert order_parameter(x.detach()).isnan()


def test_order_is_one_for_equal_and_zero_for_opposite_phases() -> None:
    x = torch.tensor([[1.0, 0], [-1.0, 0], [1.0, 0], [-1.0, 0]])
    assert order_parameter(x) == 0
    assert order_parameter(x.abs()) == 1
    assert order_parameter(x, torch.tensor([1.0, 0, 2, 0])) == 1
    assert order_parameter(x, torch.zeros(4)) == 0


@pytest.mark.parametrize("count", [2, 3, 5, 10, 40])
def test_simplex_corners_are_equally_far_apart(count: int) -> None:
    corners = simplex(count, dtype=torch.float64)
    products = corners @ corners.T
    expected = torch.full_like(products, -1 / (count - 1)).fill_diagonal_(1)
    torch.testing.assert_close(products, expected, atol=1e-12, rtol=0)
    assert corners.shape[1] >= 3


@pytest.mark.parametrize(
    ("count", "dim"),
    [(1, 1), (1, 3), (2, 1), (2, 3), (3, 3), (4, 3), (5, 7), (10, 9), (10, 20), (100, 99), (100, 100), (150, 149)],
)
def test_simplex_equals_loop_over_corners(count: int, dim: int) -> None:
    expected = reference.simplex(count, dim)
    torch.testing.assert_close(simplex(count, dim, dtype=torch.float64), expected, rtol=0, atol=1e-12)
    assert torch.equal(simplex(count, dim), expected.float())


def test_simplex_of_many_corners_takes_no_loop_over_them() -> None:
    """At 1,000 corners a loop over triples takes half a minute; routing makes them in every forward."""
    began = time.perf_counter()
    corners = simplex(1000, dtype=torch.float64)
    assert time.perf_counter() - began < 5
    assert corners.shape == (1000, 999)
    torch.testing.assert_close(corners[0] @ corners[1:].T, torch.full((999,), -1 / 999, dtype=torch.float64))


def test_simplex_is_a_constant_to_exporters() -> None:
    class Corners(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ simplex(x.shape[-1], dtype=x.dtype)

    x = normal(0, 2, 10)
    expected = x @ simplex(10, dtype=torch.float64)
    program = torch.export.export(Corners(), (x,), strict=False)
    assert not [node for node in program.graph.nodes if "arange" in str(node.target)]
    for run in (program.module(), torch.compile(Corners(), backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(run(x), expected, rtol=0, atol=1e-15)


def test_random_phases_repeat_with_their_seed() -> None:
    assert torch.equal(random_phases(4, 3, seed=1), random_phases(4, 3, seed=1))
    assert not torch.equal(random_phases(4, 3, seed=1), random_phases(4, 3, seed=2))


def stuck(n: int, starts: int = 100, count: int = 24) -> float:
    """The share of random starts after which a ring with nearest neighbours is not in phase."""
    x = random_phases(starts, count, n, seed=0, dtype=torch.float64)
    for _ in range(4000):
        x = step(x, x.roll(1, dims=1) + x.roll(-1, dims=1), 0.3)
    return float((order_parameter(x) < 0.99).double().mean())


def test_ring_gets_stuck_on_the_circle_and_not_on_the_sphere() -> None:
    assert 0.3 < stuck(2) < 0.8
    assert stuck(3) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: step(torch.eye(2), torch.eye(2), 0.0), "gamma must be positive"),
        (lambda: step(torch.eye(2), torch.eye(2), math.nan), "gamma must be positive"),
        (lambda: step(torch.eye(2), torch.eye(2), "a"), "gamma must be positive and finite, got 'a'"),  # type: ignore[arg-type]
        (lambda: step(torch.ones(5, 1), torch.ones(5, 1)), "at least 2 components, got n = 1"),
        (lambda: rotate(torch.eye(3), torch.ones(2)), "have 3 rates, got 2"),
        (lambda: rotate(torch.ones(5, 1), torch.ones(0)), "at least 2 components, got n = 1"),
        (lambda: random_phases(5, 1, seed=0), "at least 2 components, got n = 1"),
        (lambda: random_phases(5, 0, seed=0), "at least 2 components, got n = 0"),
        (lambda: random_phases(seed=0), "at least 2 components"),
        (lambda: simplex(10, 4), "need at least 9 dimensions, got 4"),
        (lambda: simplex("a"), "a simplex has a whole number of corners, got 'a'"),  # type: ignore[arg-type]
        (lambda: simplex(math.nan), "a simplex has a whole number of corners, got nan"),  # type: ignore[arg-type]
        (lambda: simplex(3, 2.5), "dim must be a whole number of at least 1, got 2.5"),  # type: ignore[arg-type]
        (lambda: oscillators.normal().frequencies(-3), "count must be a whole number of at least 1, got -3"),
        (lambda: oscillators.normal().frequencies(1.5), "count must be a whole number of at least 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: simplex(0), "a simplex has at least 1 corner, got 0"),
        (lambda: simplex(2.5), "a simplex has a whole number of corners, got 2.5"),  # type: ignore[arg-type]
        (lambda: oscillators.phase_colours(torch.ones(4, 1)), "at least 2 components"),
        (lambda: oscillators.phase_colours(NAN), "oscillators must be finite, got nan"),
        (lambda: oscillators.phase_colours(torch.full((4, 3), math.inf)), "oscillators must be finite, got inf"),
        (lambda: oscillators.phase_colours(torch.eye(2), NAN[0]), "weights must be finite, got nan"),
        (lambda: oscillators.phase_colours(torch.eye(2), torch.tensor([1.0, -2])), "at least 0, got -2"),
        (
            lambda: oscillators.phase_colours(torch.ones(4, 3), torch.ones(3)),
            r"weights of shape \(4,\), as x, got \(3,\)",
        ),
        (lambda: oscillators.phase_clusters(torch.eye(2), 3), "at least 3 oscillators"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 0), "clusters must be a whole number of at least 1, got 0"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 1.5), "clusters must be a whole number .*, got 1.5"),  # type: ignore[arg-type]
        (lambda: oscillators.phase_clusters(torch.eye(2), 2, starts=0), "starts must be a whole number .*, got 0"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 2, iterations=0.5), "iterations must be .*, got 0.5"),  # type: ignore[arg-type]
        (lambda: random_phases(5, 2.5, seed=0), "n, .*, must be a whole number, got 2.5"),  # type: ignore[arg-type]
        (lambda: oscillators.phase_clusters(torch.ones(4, 1), 2), "at least 2 components, got n = 1"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 2, weights=torch.zeros(2)), "all weights are zero"),
        (lambda: oscillators.simulate(torch.zeros(3), torch.eye(2), time=1), "is 3 x 3, got"),
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=0), "time must be positive"),
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time="a"), "time must be positive and finite, got 'a'"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(3), "a", time=1), "coupling must be a number or a tensor, got 'a'"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=1, lag="a"), "lag must be a number"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=1, lag=torch.zeros(2)), r"one number, got .*\(2,\)"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=1, every=1.5), "whole number of at least 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=1, every=0), "whole number of at least 1, got 0"),
        (lambda: oscillators.phase_clusters(NAN, 2), "oscillators must be finite, got nan"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 2, weights=NAN[0]), "weights must be finite, got nan"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 2, weights=torch.tensor([2.0, -1])), "at least 0, got -1"),
        (lambda: oscillators.phase_clusters(torch.eye(2), 2, weights=torch.ones(3)), "a weight for each of 2"),
        (lambda: oscillators.simulate(torch.zeros(3), math.nan, time=1), "coupling must be finite, got nan"),
        (lambda: oscillators.simulate(torch.zeros(2), NAN, time=1), "coupling must be finite, got nan"),
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=1, lag=math.inf), "lag must be finite, got inf"),
        (lambda: oscillators.simulate(NAN[0], 1.0, time=1), "frequencies must be finite"),
        (lambda: oscillators.simulate(torch.tensor(1.0), 1.0, time=1), "at least one oscillator"),
        (lambda: oscillators.simulate([0.0, 1.0], 1.0, time=1), "must be a tensor .*, got list"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(1), 1.0, time=1, start=[0.0]), "start must be a tensor"),  # type: ignore[arg-type]
        (lambda: oscillators.simulate(torch.zeros(3), 1.0, time=1, start=torch.zeros(4)), "each of 3 oscillators"),
        (lambda: oscillators.simulate(torch.zeros(2, 3), torch.ones(4), time=1), r"simulations: \(2, 3\), \(4,\) and"),
        (lambda: oscillators.simulate(torch.zeros(3), torch.ones(2), time=1, start=torch.zeros(4, 3)), "simulations"),
        (lambda: oscillators.lorentz(0), "width must be positive"),
        (lambda: oscillators.locked_order(-1, oscillators.normal()), "coupling must be positive"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
