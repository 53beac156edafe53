"""Random numbers as a pure function of (seed, epoch, example index, draw, stream).

Nothing is consumed or remembered, so a resumed run, a run on eight processes and a run in another order see the same
numbers. The generator is SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"):
stream, seed and epoch are folded into a 64-bit key, key and index into a row state, and the draws of a row are the
SplitMix64 sequence that starts there. The golden values in tests/data/test_keyed.py pin it: changing them changes every
published result.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MASK = (1 << 64) - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd: successive states are as far apart as they can be


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64, element by element (a bijection, so distinct inputs never collide)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _key(seed: int, epoch: int, stream: str) -> NDArray[np.uint64]:
    """Fold the scalar arguments one after another, each fully mixed before the next. Shapes: -> (1,)"""
    state = np.frombuffer(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "<u8").astype(np.uint64)
    for word in (seed, epoch):
        state = _mix(state + _GAMMA + _mix(np.array([int(word) & _MASK], np.uint64) + _GAMMA))
    return state


def _as_indices(indices: ArrayLike) -> NDArray[np.uint64]:
    array = np.asarray(indices)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"indices must be one-dimensional integers, got shape {array.shape} of {array.dtype}")
    return array.astype(np.uint64)


def bits(seed: int, epoch: int, indices: ArrayLike, n: int, stream: str) -> NDArray[np.uint64]:
    """Draw ``n`` random 64-bit words for each example.

    Row r depends only on (seed, epoch, indices[r], stream), and its first m numbers do not depend on n.

    Shapes: indices (B,) -> (B, n)
    """
    row = _as_indices(indices) * _GAMMA + _key(seed, epoch, stream)  # (B,)
    steps = np.arange(1, n + 1, dtype=np.uint64) * _GAMMA  # (n,)
    return _mix(_mix(row)[:, None] + steps[None, :])


def uniform(
    seed: int, epoch: int, indices: ArrayLike, n: int, stream: str, *, dtype: Any = np.float64
) -> NDArray[np.floating]:
    """Draw uniform numbers in [0, 1): multiples of 2^-53, or of 2^-24 for float32, so that 1.0 never occurs.

    Shapes: indices (B,) -> (B, n)
    """
    digits = np.finfo(dtype).nmant + 1
    words = bits(seed, epoch, indices, n, stream) >> np.uint64(64 - digits)
    return words.astype(dtype) * np.asarray(2.0**-digits, dtype=dtype)


def integers(seed: int, epoch: int, indices: ArrayLike, n: int, stream: str, low: int, high: int) -> NDArray[np.int64]:
    """Draw integers in low..high-1 (as in numpy, ``high`` is left out). The bias is below 2^-32 for any range.

    The word is multiplied by the range and the top 64 of the 96 bits kept: no rejection loop, hence a fixed cost and
    one word per number, and no bias towards small numbers as ``% range`` would have.

    Shapes: indices (B,) -> (B, n)
    """
    span = high - low
    if not 0 < span < 1 << 32:
        raise ValueError(f"integers need low < high and a range below 2^32, got low={low}, high={high}")
    words = bits(seed, epoch, indices, n, stream)
    upper = (words >> np.uint64(32)) * np.uint64(span)
    lower = ((words & np.uint64(0xFFFFFFFF)) * np.uint64(span)) >> np.uint64(32)
    return ((upper + lower) >> np.uint64(32)).astype(np.int64) + low


def permutation(seed: int, epoch: int, n: int, stream: str = "shuffle") -> NDArray[np.int64]:
    """The order in which an epoch visits ``n`` examples: each gets a random word, and they are sorted by it.

    Shapes: -> (n,)
    """
    words = bits(seed, epoch, np.arange(n), 1, stream)[:, 0]
    return np.argsort(words, kind="stable").astype(np.int64)
