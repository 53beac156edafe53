"""Overlap of two digits: tight boxes by hand, and the mean over MultiMNIST's pairs."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from capsnet.data import load
from capsnet.data.generated.multimnist import Pairs, box_overlap, multimnist


def boxes(*corners: tuple[int, int, int, int]) -> NDArray[np.uint8]:
    """One pair of pictures with ink in the corners (top, left) to (bottom, right), the ends left out."""
    pictures = np.zeros((1, len(corners), 12, 10), np.uint8)
    for which, (top, left, bottom, right) in enumerate(corners):
        if bottom > top:
            pictures[0, which, top, left] = pictures[0, which, bottom - 1, right - 1] = 1  # a box is its two corners
    return pictures


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0, 0, 4, 4), (0, 0, 4, 4), 1.0),
        ((0, 0, 4, 4), (4, 0, 8, 4), 0.0),  # they touch
        ((0, 0, 4, 4), (8, 6, 12, 10), 0.0),
        ((0, 0, 4, 4), (2, 1, 6, 5), 2 * 3 / 16),
        ((0, 0, 12, 10), (3, 3, 5, 5), 1.0),  # the smaller is inside
        ((2, 2, 3, 8), (0, 4, 12, 5), 1 / 6),  # a cross; the smaller has 6 pixels
        ((0, 0, 4, 4), (0, 0, 0, 0), 0.0),  # a picture without ink
    ],
)
def test_box_overlap_matches_hand_computed_values(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int], expected: float
) -> None:
    assert box_overlap(boxes(one, other)).tolist() == [pytest.approx(expected)]
    assert box_overlap(boxes(other, one)).tolist() == [pytest.approx(expected)]


def test_mean_overlap_is_near_the_papers() -> None:
    """The paper says 80 % on average, which is that of the 28x28 frames; tight boxes come near it."""
    pairs = multimnist("test")
    numbers = np.arange(2_000)
    tight = pairs.overlaps(numbers)
    offsets = pairs.offsets(numbers)
    frames = (1 - np.abs(offsets[:, 0] - offsets[:, 1]) / 28).prod(axis=1)
    print(f"\nmean overlap of 2,000 pairs: tight boxes {tight.mean():.3f}, frames {frames.mean():.3f}")
    assert 0.70 < tight.mean() < 0.80
    assert frames.mean() == pytest.approx(0.80, abs=0.01)
    assert tight.min() >= 0
    assert tight.max() == 1
    apart = multimnist("test", shift=20).overlaps(numbers)
    assert apart.mean() < 0.4
    assert (apart == 0).mean() > 0.2


@pytest.mark.parametrize(("spec", "expected"), [("multimnist", 0.727), ("multimnist:shift=6,canvas=36", 0.609)])
def test_mean_overlap_of_both_protocols_is_as_documented(spec: str, expected: float) -> None:
    """The paper's text and the authors' code, see docs/data.md."""
    pairs = load(spec, "test")
    assert isinstance(pairs, Pairs)
    assert pairs.image_size == (36, 36)
    assert pairs.overlaps(np.arange(10_000)).mean() == pytest.approx(expected, abs=0.005)


def test_cut_digit_is_cut_in_its_source_too() -> None:
    pairs = load("multimnist:shift=6,canvas=36", "test")
    larger = load("multimnist:shift=6,canvas=40", "test")  # the same digits and shifts, nothing cut
    batch, uncut = pairs.batch(range(200)), larger.batch(range(200))
    assert batch.sources is not None
    assert uncut.sources is not None
    torch.testing.assert_close(batch.sources.images, uncut.sources.images[..., 2:-2, 2:-2], rtol=0, atol=0)
    torch.testing.assert_close(batch.images, uncut.images[..., 2:-2, 2:-2], rtol=0, atol=0)
    assert float(uncut.images.sum()) > float(batch.images.sum())  # some ink was lost
