"""Phase clusters against loops over single oscillators, and the memory of a large simulation."""

import pytest
import torch
from torch import Tensor

from capsnet.oscillators import Clusters, clusters, normal, phase_clusters, random_phases, simulate
from tests.kernels._bytes import counted
from tests.reference.clusters import spherical_kmeans


def assert_equal(found: Clusters, expected: tuple[list[int], list[list[float]], float]) -> None:
    labels, centres, score = expected
    assert found.labels.tolist() == labels
    torch.testing.assert_close(found.centres, torch.tensor(centres, dtype=torch.float64), rtol=0, atol=1e-12)
    assert found.score == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(("n", "count"), [(2, 3), (4, 5)])
def test_result_is_a_fixed_point_of_the_plain_procedure(n: int, count: int) -> None:
    x = random_phases(40, n, seed=1, dtype=torch.float64)
    found = phase_clusters(x, count)
    assert_equal(found, spherical_kmeans(x.tolist(), [1.0] * 40, found.centres.tolist(), 1))


@pytest.mark.parametrize("iterations", [1, 2, 3, 50])
def test_iterations_equal_loop_over_oscillators(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same centres, of which the last has no oscillator; three oscillators have no weight."""
    x = random_phases(40, 3, seed=1, dtype=torch.float64)
    x[:, 2] = x[:, 2].abs()
    weights = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights[:3] = 0
    begin = torch.cat([random_phases(3, 3, seed=2, dtype=torch.float64), torch.tensor([[0.0, 0, -1]])])
    monkeypatch.setattr(clusters, "_spread_out", lambda *_: begin)
    found = phase_clusters(x, 4, weights=weights, starts=1, iterations=iterations)
    assert 3 not in found.labels
    assert_equal(found, spherical_kmeans(x.tolist(), weights.tolist(), begin.tolist(), iterations))


def best_of_all(x: Tensor) -> float:
    """The largest score of any division of a few oscillators into two groups: the length of both sums."""
    count, best = len(x), 0.0
    for code in range(2**count):
        first = torch.tensor([(code >> k) & 1 for k in range(count)], dtype=torch.bool)
        best = max(best, float(x[first].sum(0).norm() + x[~first].sum(0).norm()) / count)
    return best


def test_several_starts_find_the_best_division() -> None:
    for seed in range(3):
        x = random_phases(8, 3, seed=seed, dtype=torch.float64)
        assert phase_clusters(x, 2, starts=20).score == pytest.approx(best_of_all(x))


def test_simulation_of_many_oscillators_has_no_matrix_of_them() -> None:
    """The mean field is O(N). ``python -m benchmarks oscillators`` times it."""
    with counted() as memory:
        run = simulate(normal().frequencies(10_000), 2.0, time=1, every=20)
    assert run.phases.shape == (2, 10_000)
    assert memory.peak < 100 * 10_000 * 8  # a matrix of all pairs has 10,000 times 10,000 numbers
