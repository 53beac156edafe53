"""The keyed generator: addressable, uniform, uncorrelated, pinned."""

import numpy as np
import pytest

from capsnet.data import keyed


def test_values_are_pinned() -> None:
    """Changing these changes every shuffled order and every augmentation of published results."""
    assert [hex(v) for v in keyed.bits(0, 0, [0, 1], 2, "shuffle").ravel().tolist()] == GOLDEN_BITS
    assert keyed.bits(123, 45, [10_000_000], 1, "augment").item() == GOLDEN_FAR
    assert keyed.permutation(7, 3, 8).tolist() == GOLDEN_ORDER
    assert keyed.integers(1, 2, [3, 4, 5], 2, "x", -2, 3).tolist() == GOLDEN_INTEGERS


GOLDEN_BITS = ["0xc49a018eccaff8c5", "0x79bb2b3c5d628e26", "0xbd3034b969b800c9", "0xf099eaae2a59efe8"]
GOLDEN_FAR = 11962977436170437761
GOLDEN_ORDER = [4, 6, 3, 1, 2, 5, 0, 7]
GOLDEN_INTEGERS = [[0, 1], [-2, -2], [1, 2]]


def scalar_mix(z: int) -> int:
    """The finaliser of SplitMix64 on one Python integer."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def test_matches_scalar_splitmix64() -> None:
    """The vectorised mix equals plain Python integers, wrap-around included."""
    words = [0, 1, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15]
    assert keyed._mix(np.array(words, dtype=np.uint64)).tolist() == [scalar_mix(w) for w in words]
    # the published first outputs of SplitMix64 from state 0
    assert scalar_mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert scalar_mix((2 * 0x9E3779B97F4A7C15) % 2**64) == 0x6E789E6AA1B965F4


def test_rows_do_not_depend_on_the_batch_or_on_n() -> None:
    everything = keyed.bits(5, 2, np.arange(1000), 6, "a")
    some = np.array([999, 3, 500, 3])
    np.testing.assert_array_equal(keyed.bits(5, 2, some, 4, "a"), everything[some, :4])
    np.testing.assert_array_equal(keyed.bits(5, 2, [10**7], 3, "a"), keyed.bits(5, 2, [0, 10**7], 3, "a")[1:])
    assert keyed.bits(5, 2, [], 3, "a").shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniform_is_uniform(dtype: type) -> None:
    draws = keyed.uniform(1, 0, np.arange(50_000), 2, "u", dtype=dtype)
    assert draws.dtype == dtype
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=64, range=(0, 1))[0]
    expected = draws.size / 64
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert 30 < chi_square < 110  # 63 degrees of freedom: mean 63, standard deviation 11


def test_every_bit_is_fair() -> None:
    words = keyed.bits(3, 1, np.arange(20_000), 1, "b")
    ones = ((words >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 0.018  # five standard deviations


@pytest.mark.parametrize("change", ["index", "draw", "epoch", "seed", "stream", "swap"])
def test_neighbours_are_uncorrelated(change: str) -> None:
    index = np.arange(40_000)
    base = keyed.uniform(8, 4, index, 2, "s")
    other = {
        "index": lambda: keyed.uniform(8, 4, index + 1, 2, "s"),
        "draw": lambda: base[:, ::-1],
        "epoch": lambda: keyed.uniform(8, 5, index, 2, "s"),
        "seed": lambda: keyed.uniform(9, 4, index, 2, "s"),
        "stream": lambda: keyed.uniform(8, 4, index, 2, "t"),
        "swap": lambda: keyed.uniform(4, 8, index, 2, "s"),
    }[change]()
    assert abs(np.corrcoef(base[:, 0], other[:, 0])[0, 1]) < 0.025  # five standard deviations
    assert np.intersect1d(base[:, 0], other[:, 0]).size <= (39_999 if change == "index" else 0)


def test_integers_fill_their_range_evenly() -> None:
    draws = keyed.integers(0, 0, np.arange(50_000), 1, "i", -2, 3)
    values, counts = np.unique(draws, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts - 10_000).max() < 450
    large = keyed.integers(0, 0, np.arange(1000), 1, "i", 0, 2**32 - 1)
    assert large.min() >= 0
    assert 2**31 < large.max() < 2**32 - 1
    with pytest.raises(ValueError, match="low < high"):
        keyed.integers(0, 0, [0], 1, "i", 3, 3)


def test_permutation_is_keyed() -> None:
    order = keyed.permutation(0, 0, 5000)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(5000))
    for other in (keyed.permutation(0, 1, 5000), keyed.permutation(1, 0, 5000), np.arange(5000)):
        assert (order == other).mean() < 0.01
        assert abs(np.corrcoef(order, other)[0, 1]) < 0.08
    assert keyed.permutation(0, 0, 0).shape == (0,)


@pytest.mark.parametrize("indices", [[0.5], [[1, 2]], 3])
def test_bad_indices_are_refused(indices: object) -> None:
    with pytest.raises(ValueError, match="one-dimensional integers"):
        keyed.bits(0, 0, indices, 1, "a")  # pyright: ignore[reportArgumentType]
