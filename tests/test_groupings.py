"""The adjusted Rand index and the mean best overlap against tables counted by hand."""

from itertools import combinations

import numpy as np
import pytest

from capsnet.metrics import adjusted_rand_index, mean_best_overlap


def by_pairs(a: list[int], b: list[int]) -> float:
    """The definition: agreements of all pairs of elements, minus what is expected by chance."""
    pairs = list(combinations(range(len(a)), 2))
    together_a = sum(a[i] == a[j] for i, j in pairs)
    together_b = sum(b[i] == b[j] for i, j in pairs)
    both = sum(a[i] == a[j] and b[i] == b[j] for i, j in pairs)
    expected = together_a * together_b / len(pairs)
    return (both - expected) / ((together_a + together_b) / 2 - expected)


def test_index_equals_its_definition_over_pairs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 3, 15).tolist(), rng.integers(0, 4, 15).tolist()
        assert adjusted_rand_index(a, b) == pytest.approx(by_pairs(a, b))


def test_known_table() -> None:
    """Hubert and Arabie's formula by hand: rows 2+1, 0+3 of six elements."""
    truth, predicted = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]
    pairs, rows, columns, all_pairs = 1 + 3, 3 + 3, 1 + 6, 15
    expected = rows * columns / all_pairs
    assert adjusted_rand_index(truth, predicted) == pytest.approx(
        (pairs - expected) / ((rows + columns) / 2 - expected)
    )


def test_names_of_groups_do_not_matter() -> None:
    assert adjusted_rand_index([0, 0, 1, 2], [7, 7, 3, 5]) == 1
    assert mean_best_overlap([0, 0, 1, 2], [7, 7, 3, 5]) == 1


def test_index_of_random_groups_is_about_zero() -> None:
    rng = np.random.default_rng(0)
    values = [adjusted_rand_index(rng.integers(0, 3, 300), rng.integers(0, 3, 300)) for _ in range(50)]
    assert abs(np.mean(values)) < 0.005


def test_trivial_groupings_agree() -> None:
    assert adjusted_rand_index([0, 0, 0], [1, 1, 1]) == 1
    assert adjusted_rand_index([0, 1, 2], [4, 5, 6]) == 1


def test_background_is_left_out() -> None:
    truth = np.array([[0, 0, 1], [0, 2, 2]])
    predicted = np.array([[5, 1, 1], [2, 2, 2]])
    assert adjusted_rand_index(truth, predicted, background=0) == 1
    assert adjusted_rand_index(truth, predicted) < 1


def test_best_overlap_is_the_mean_of_the_best_intersections_over_unions() -> None:
    truth, predicted = [1, 1, 1, 1, 2, 2], [3, 3, 3, 4, 4, 4]
    assert mean_best_overlap(truth, predicted) == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert mean_best_overlap([0, 0, 1, 1], [5, 5, 5, 6], background=0) == pytest.approx(1 / 2)


def test_unequal_and_empty_groupings_are_refused() -> None:
    with pytest.raises(ValueError, match="as many predicted labels as true ones, 2, got 3"):
        adjusted_rand_index([0, 1], [0, 1, 2])
    with pytest.raises(ValueError, match="no elements to compare"):
        adjusted_rand_index([0, 0], [1, 1], background=0)
    with pytest.raises(ValueError, match="no group besides the background"):
        mean_best_overlap([0, 0], [1, 1], background=0)
