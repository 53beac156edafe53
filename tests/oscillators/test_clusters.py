"""Phase clusters against loops over single oscillators, and how long a large simulation takes."""

import math
import time

import pytest
import torch
from torch import Tensor

from capsnet.oscillators import normal, phase_clusters, random_phases, simulate


def assign(x: list[list[float]], centres: list[list[float]]) -> list[int]:
    return [max(range(len(centres)), key=lambda k: sum(a * b for a, b in zip(p, centres[k], strict=True))) for p in x]


def centre(x: list[list[float]], labels: list[int], k: int) -> list[float]:
    total = [sum(p[d] for p, label in zip(x, labels, strict=True) if label == k) for d in range(len(x[0]))]
    length = math.sqrt(sum(value * value for value in total))
    return [value / length for value in total]


@pytest.mark.parametrize(("n", "clusters"), [(2, 3), (4, 5)])
def test_result_is_a_fixed_point_of_the_plain_procedure(n: int, clusters: int) -> None:
    x = random_phases(40, n, seed=1, dtype=torch.float64)
    found = phase_clusters(x, clusters)
    labels = assign(x.tolist(), found.centres.tolist())
    assert labels == found.labels.tolist()
    for k in range(clusters):
        torch.testing.assert_close(found.centres[k].tolist(), centre(x.tolist(), labels, k))
    fit = [
        sum(a * b for a, b in zip(p, found.centres[k].tolist(), strict=True))
        for p, k in zip(x.tolist(), labels, strict=True)
    ]
    assert found.score == pytest.approx(sum(fit) / len(fit))


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


def test_ten_thousand_oscillators_take_seconds() -> None:
    """1,000 steps in less than 5 seconds of one core: there is no loop over oscillators, and the mean field is O(N)."""
    started = time.process_time()
    run = simulate(normal().frequencies(10_000), 2.0, time=50, every=10**6)
    assert time.process_time() - started < 5
    assert run.phases.shape == (2, 10_000)
