"""MultiMNIST: pairs as in the paper, in any batch and order."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from capsnet.data import ArrayDataset, Augment, batches, keyed, load
from capsnet.data.generated.multimnist import Pairs, multimnist
from tests.data.idx_files import write_idx

module = sys.modules["capsnet.data.generated.multimnist"]  # the package's attribute of that name may be the function


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return multimnist("test")


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """An IDX folder in which each digit has its own grey level, not square: a pixel's value identifies the digit.

    Training digits are 1 to 30 (the last five of them validation), test digits 101 to 112; four classes.
    """
    for part, count, first in (("train", 30, 1), ("t10k", 12, 101)):
        values = np.arange(first, first + count, dtype=np.uint8)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", np.tile(values[:, None, None], (1, 6, 5)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", (np.arange(count) % 4).astype(np.uint8))
    return tmp_path


def toy(targets: list[int], side: int = 3, **changes: object) -> Pairs:
    """Pairs of small random digits of these classes."""
    images = np.random.default_rng(len(targets)).integers(1, 256, (len(targets), 1, side, side), dtype=np.uint8)
    digits = ArrayDataset(images, np.array(targets), [str(j) for j in range(max(targets) + 1)], name="toy")
    options = {"pairs": 50, "shift": 2, "canvas": side + 4, "seed": 3, "fresh": False, "name": "toy pairs"} | changes
    return Pairs(digits, **options)  # pyright: ignore[reportArgumentType]


def reference_pair(pairs: Pairs, number: int) -> tuple[NDArray[np.float32], NDArray[np.float32], list[int]]:
    """Pair ``number`` in plain Python: a list of candidates, digits pasted pixel by pixel."""
    digits, targets = pairs.digits.images[:, 0], pairs.digits.targets
    first = number % len(digits)
    candidates = [k for j in range(pairs.num_classes) for k in range(len(digits)) if targets[k] == j != targets[first]]
    drawn = float(keyed.uniform(pairs.seed, 0, [number], 1, "multimnist.partner")[0, 0])
    chosen = [first, candidates[int(drawn * len(candidates))]]
    moves = keyed.integers(pairs.seed, 0, [number], 4, "multimnist.shift", -pairs.shift, pairs.shift + 1)[0]
    height, width = pairs.image_size
    sources = np.zeros((2, height, width), np.float32)
    for which, k in enumerate(chosen):
        h, w = digits[k].shape
        top, left = (height - h) // 2 + moves[2 * which], (width - w) // 2 + moves[2 * which + 1]
        for y in range(h):
            for x in range(w):
                if 0 <= top + y < height and 0 <= left + x < width:
                    sources[which, top + y, left + x] = np.float32(digits[k, y, x]) / np.float32(255)
    merged = np.minimum(sources[0] + sources[1], np.float32(1))
    return merged, sources, [int(targets[k]) for k in chosen]


def check_against_reference(pairs: Pairs, indices: list[int], epoch: int = 0) -> None:
    batch = pairs.batch(indices, epoch=epoch)
    assert batch.sources is not None
    for row, index in enumerate(indices):
        merged, sources, classes = reference_pair(pairs, index + (epoch * len(pairs) if pairs.fresh else 0))
        np.testing.assert_array_equal(batch.images[row, 0].numpy(), merged)
        np.testing.assert_array_equal(batch.sources.images[row, :, 0].numpy(), sources)
        assert batch.sources.classes[row].tolist() == classes
        assert batch.targets[row].nonzero()[:, 0].tolist() == sorted(classes)


def test_pairs_equal_the_reference(pairs: Pairs, marked: Path) -> None:
    check_against_reference(pairs, [0, 1, 2, 4321, 9999])
    check_against_reference(multimnist("train", marked, shift=3, canvas=13, seed=5), list(range(25)), epoch=7)
    check_against_reference(multimnist("test", marked, shift=0), list(range(12)))
    check_against_reference(multimnist("test", marked, shift=4, canvas=8), list(range(12)))  # cut at the edge
    check_against_reference(toy([2, 0, 2, 2, 0, 2]), list(range(50)))  # class 1 has no digit at all


def test_batch_has_right_shapes_and_values(pairs: Pairs) -> None:
    assert (len(pairs), pairs.image_size, pairs.channels, pairs.num_classes) == (10_000, (36, 36), 1, 10)
    assert repr(pairs) == "multimnist test: 10,000 images 1x36x36, 10 classes"
    batch = pairs.batch(range(64))
    assert batch.sources is not None
    assert batch.images.shape == (64, 1, 36, 36)
    assert batch.images.dtype == batch.targets.dtype == batch.sources.images.dtype == torch.float32
    assert batch.sources.images.shape == (64, 2, 1, 36, 36)
    assert batch.sources.classes.dtype == torch.int64
    assert batch.targets.shape == (64, 10)
    assert bool((batch.targets.sum(dim=1) == 2).all())
    assert batch.indices.tolist() == list(range(64))
    torch.testing.assert_close(batch.images, batch.sources.images.sum(dim=1).clamp(max=1), rtol=0, atol=0)
    assert bool((batch.sources.images.sum(dim=1) > 1).any())  # else the clipping was not tested
    assert float(batch.images.max()) == 1.0
    assert pairs.batch([]).images.shape == (0, 1, 36, 36)


def test_pair_does_not_depend_on_its_batch(pairs: Pairs) -> None:
    order = np.random.default_rng(0).permutation(200)
    together, again = pairs.batch(order), multimnist("test").batch(np.arange(200))
    assert together.sources is not None
    assert again.sources is not None
    torch.testing.assert_close(together.images, again.images[order], rtol=0, atol=0)
    torch.testing.assert_close(together.sources.classes, again.sources.classes[order], rtol=0, atol=0)
    for row in (0, 77, 199):
        alone = pairs.batch([int(order[row])], seed=9)  # the seed of a *run* does not change the pairs
        torch.testing.assert_close(alone.images[0], together.images[row], rtol=0, atol=0)
    other = multimnist("test", seed=1).batch(np.arange(200)).images
    assert sum(torch.equal(a, b) for a, b in zip(other, again.images, strict=True)) == 0


def test_labels_are_those_of_the_digits_and_always_differ(pairs: Pairs) -> None:
    numbers = np.arange(10_000)
    chosen = pairs.choose(numbers)
    classes = pairs.digits.targets[chosen]
    assert (chosen[:, 0] == numbers).all()
    assert (classes[:, 0] != classes[:, 1]).all()
    batch = pairs.batch(numbers[::100])
    assert batch.sources is not None
    np.testing.assert_array_equal(batch.sources.classes.numpy(), classes[::100])
    np.testing.assert_array_equal(batch.targets.numpy().nonzero()[1].reshape(-1, 2), np.sort(classes[::100], axis=1))


def test_splits_share_no_digits(marked: Path) -> None:
    belongs = {
        "train": range(1, 26),
        "validation": range(26, 31),
        "train+validation": range(1, 31),
        "test": range(101, 113),
    }
    for split, values in belongs.items():
        pairs = multimnist(split, marked, pairs=400)
        sources = pairs.batch(range(400), epoch=2).sources
        assert sources is not None
        numbers = (sources.images.flatten(2).amax(dim=2) * 255).round().int()  # (B, 2): which digit each source is
        assert set(numbers.flatten().tolist()) == set(values)
        assert set(numbers[:, 1].tolist()) == set(values)  # every digit is also a partner


@pytest.mark.parametrize("targets", [[0, 1, 2, 0, 2, 0], [1, 1, 0], [2, 0, 2, 2, 0, 2], [3, 2, 1, 0]])
def test_every_digit_of_another_class_is_drawn_equally_often(
    targets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With draws on an even grid instead of random ones, each candidate is drawn equally often."""
    pairs = toy(targets)
    N, times = len(targets), 5
    for first in range(N):
        candidates = [k for k in range(N) if targets[k] != targets[first]]
        grid = (np.arange(times * len(candidates)) + 0.5) / (times * len(candidates))
        monkeypatch.setattr(module.keyed, "uniform", lambda *_, grid=grid: grid[:, None])
        chosen = pairs.choose(first + N * np.arange(len(grid)))
        assert (chosen[:, 0] == first).all()
        assert np.bincount(chosen[:, 1], minlength=N).tolist() == [times * (k in candidates) for k in range(N)]


def test_largest_draw_gives_a_valid_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module.keyed, "uniform", lambda seed, epoch, numbers, *_: np.full((len(numbers), 1), 1 - 2**-53)
    )
    pairs = toy([0, 1, 1, 0])
    assert pairs.choose(np.arange(4)).tolist() == [[0, 2], [1, 3], [2, 3], [3, 2]]


def chi_square(counts: NDArray, expected: NDArray | float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_partners_are_uniform(pairs: Pairs) -> None:
    numbers = np.arange(300_000)
    chosen = pairs.choose(numbers)
    targets, counts = pairs.digits.targets, np.bincount(pairs.digits.targets)
    # a digit is drawn by every digit of another class, which has N - (its own class) candidates
    probability = (counts / (10_000 - counts)).sum() - (counts / (10_000 - counts))[targets]  # (N,)
    drawn = np.bincount(chosen[:, 1], minlength=10_000)
    assert chi_square(drawn, 30 * probability) / 9_999 == pytest.approx(1, abs=0.08)  # its deviation is 0.014
    together = np.zeros((10, 10))
    np.add.at(together, tuple(targets[chosen].T), 1)
    expected = 30 * counts[:, None] * counts[None, :] / (10_000 - counts[:, None])
    off = ~np.eye(10, dtype=bool)
    assert not together[~off].any()
    assert chi_square(together[off], expected[off]) < 160  # 80 degrees of freedom: 1 in 3 million


def test_offsets_are_uniform_and_independent(pairs: Pairs) -> None:
    offsets = pairs.offsets(np.arange(40_000)).reshape(-1, 4)  # down, right of the first; of the second
    assert (offsets.min(), offsets.max()) == (-4, 4)
    for a in range(4):
        assert chi_square(np.bincount(offsets[:, a] + 4, minlength=9), 40_000 / 9) < 45  # 8 degrees of freedom
        for b in range(a):
            joint = np.bincount(9 * (offsets[:, a] + 4) + offsets[:, b] + 4, minlength=81)
            assert chi_square(joint, 40_000 / 81) < 160


def test_only_training_shows_other_pairs_in_each_epoch() -> None:
    for split in ("train", "train+validation"):
        train = multimnist(split)
        first, second = (train.batch(range(100), epoch=epoch) for epoch in (0, 1))
        assert not any(torch.equal(a, b) for a, b in zip(first.images, second.images, strict=True))
        assert train.numbers([0, 5], epoch=3).tolist() == [3 * len(train), 3 * len(train) + 5]
    few = multimnist("train", pairs=300)  # its epochs are stretches of the same sequence
    torch.testing.assert_close(few.batch([7], epoch=2).images, multimnist("train").batch([607]).images, rtol=0, atol=0)
    for split in ("validation", "test"):
        fixed = multimnist(split)
        first, later = (fixed.batch(range(100), epoch=epoch, seed=epoch) for epoch in (0, 5))
        torch.testing.assert_close(first.images, later.images, rtol=0, atol=0)
        np.testing.assert_array_equal(fixed.overlaps(range(50)), fixed.overlaps(range(50), epoch=5))


def test_ten_millionth_pair_is_addressable() -> None:
    pairs = multimnist("test", pairs=10_000_000)
    assert len(pairs) == 10_000_000
    check_against_reference(pairs, [9_999_999])
    torch.testing.assert_close(pairs.batch([42]).images, multimnist("test").batch([42]).images, rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"indices must lie in 0\.\.9999999, got 10000000\.\.10000000"):
        pairs.batch([10_000_000])
    with pytest.raises(ValueError, match="test has at most 1000 pairs for each of 10,000 digits, got pairs=10000001"):
        multimnist("test", pairs=10_000_001)
    assert len(multimnist("train", pairs=60_000_000)) == 60_000_000


def test_canvas_and_shift_are_checked(pairs: Pairs) -> None:
    wide = load("multimnist:shift=10,canvas=48", "test")
    assert isinstance(wide, Pairs)
    assert wide.image_size == (48, 48)
    assert np.abs(wide.offsets(np.arange(500))).max() == 10
    check_against_reference(wide, [3, 17])
    still = multimnist("test", shift=0, canvas=31).batch([5]).sources
    assert still is not None
    np.testing.assert_array_equal((still.images[0, 0, 0, 1:29, 1:29] * 255).round().numpy(), pairs.digits.images[5, 0])
    assert multimnist("test", shift=6).image_size == (40, 40)
    with pytest.raises(
        ValueError, match="a canvas of 39 cuts off more than half of 28x28 digits shifted by 20: it needs at least 40"
    ):
        multimnist("test", shift=20, canvas=39)
    with pytest.raises(ValueError, match="it needs at least 28, and 36 to cut nothing"):
        multimnist("test", canvas=27)
    with pytest.raises(ValueError, match=r"option shift of multimnist must be at least 0, got '-1'"):
        load("multimnist:shift=-1", "test")
    with pytest.raises(ValueError, match=r"option pairs of multimnist must be at least 1, got '0'"):
        load("multimnist:pairs=0", "test")
    with pytest.raises(ValueError, match="unknown split 'tests'"):
        multimnist("tests")


def test_single_class_is_refused() -> None:
    with pytest.raises(ValueError, match="toy: pairs of different classes need at least two classes, found one"):
        toy([1, 1, 1])


def test_subset_keeps_its_pairs(pairs: Pairs) -> None:
    some = pairs.subset([30, 10, 20])
    expected = pairs.batch([20, 30])
    part = some.batch([2, 0])
    assert part.sources is not None
    assert expected.sources is not None
    torch.testing.assert_close(part.images, expected.images, rtol=0, atol=0)
    torch.testing.assert_close(part.sources.images, expected.sources.images, rtol=0, atol=0)
    assert part.indices.tolist() == [2, 0]
    train = multimnist("train")
    limited = train.subset(range(100))  # what `limit` does: still other pairs in each epoch
    for epoch in (0, 3):
        got = torch.cat([batch.images for batch in batches(limited, 40, epoch=epoch)])
        torch.testing.assert_close(got, train.batch(range(100), epoch=epoch).images, rtol=0, atol=0)


@pytest.mark.parametrize("augment", [Augment(shift=3), Augment(rotate=20, shift=1), Augment(flip=True)])
def test_augment_moves_the_sources_with_the_picture(pairs: Pairs, augment: Augment) -> None:
    plain = pairs.batch(range(40))
    moved = pairs.batch(range(40), augment=augment, seed=4, epoch=2)
    assert plain.sources is not None
    assert moved.sources is not None
    assert not torch.equal(plain.images, moved.images)
    key = {"seed": 4, "epoch": 2, "indices": np.arange(40)}
    torch.testing.assert_close(moved.images, augment(plain.images, **key))
    for which in range(2):
        torch.testing.assert_close(moved.sources.images[:, which], augment(plain.sources.images[:, which], **key))
    assert torch.equal(moved.sources.classes, plain.sources.classes)
    assert torch.equal(moved.targets, plain.targets)
