"""Data sets and batches: values, order, resuming."""

import numpy as np
import pytest
import torch

from capsnet.data import ArrayDataset, Augment, Batch, Dataset, Subset, batch_indices, batches, load, num_batches


def make(count: int = 10, channels: int = 2) -> ArrayDataset:
    images = np.random.default_rng(0).integers(0, 256, (count, channels, 5, 4), dtype=np.uint8)
    return ArrayDataset(images, np.arange(count) % 3, ("a", "b", "c"), name="toy")


def test_batch_values_are_those_of_the_arrays() -> None:
    data = make()
    batch = data.batch([7, 2, 2])
    assert batch.images.dtype == torch.float32
    assert batch.targets.dtype == batch.indices.dtype == torch.int64
    np.testing.assert_allclose(batch.images.numpy(), data.images[[7, 2, 2]] / 255, rtol=1e-6)
    assert batch.targets.tolist() == [1, 2, 2]
    assert batch.indices.tolist() == [7, 2, 2]
    assert (data.channels, data.image_size, data.num_classes, len(data)) == (2, (5, 4), 3, 10)
    assert "toy" in repr(data)


def test_read_only_arrays_are_accepted_and_not_changed() -> None:
    images = np.frombuffer(bytes(range(40)), np.uint8).reshape(2, 1, 5, 4)
    batch = ArrayDataset(images, np.array([0, 1])).batch(torch.tensor([1]))
    batch.images.zero_()
    assert images[1, 0, 0, 0] == 20


def test_multi_hot_targets_and_float_images_are_accepted() -> None:
    data = ArrayDataset(np.full((2, 1, 3, 3), 0.25), np.array([[1, 0, 1], [0, 0, 1]]))
    batch = data.batch([0])
    assert batch.targets.dtype == torch.float32
    assert batch.targets.tolist() == [[1, 0, 1]]
    assert batch.images.dtype == torch.float32
    assert batch.images.unique().tolist() == [0.25]
    assert data.class_names == ("0", "1", "2")


def test_subset_numbers_its_examples_from_zero() -> None:
    part = make().subset([4, 9])
    assert part.batch([0, 1]).targets.tolist() == [1, 0]
    assert part.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(part.images, make().images[[4, 9]])


ZEROS = np.zeros((2, 1, 3, 3), np.uint8)
NAN = np.where(np.arange(18).reshape(2, 1, 3, 3) == 17, np.nan, 0.5)


@pytest.mark.parametrize(
    ("images", "targets", "names", "message"),
    [
        (ZEROS[:, 0], [0, 1], None, r"\(N, C, H, W\), got shape \(2, 3, 3\)"),
        (ZEROS[:0], [], None, "non-empty"),
        (ZEROS.astype(np.int32), [0, 1], None, "uint8, or floats"),
        (NAN, [0, 1], None, "1 of 2 images contain NaN pixels, the first is 1"),
        (ZEROS + 2.0, [0, 1], None, r"\[0, 1\], got values from 2 to 2"),
        (ZEROS, [0, 1, 2], None, "2 images need targets"),
        (ZEROS, [0.0, 1.0], None, "integers, got float64"),
        (ZEROS, [0, 2], ("a", "b"), r"0..1, got 0..2"),
        (ZEROS, [-1, 0], None, "got -1..0"),
        (ZEROS, [[1, 0], [0, 2]], None, "0 or 1"),
        (ZEROS, [[1, 0], [0, 1]], ("a",), "2 columns for 1 class names"),
    ],
)
def test_bad_arrays_are_refused(images: np.ndarray, targets: list, names: tuple | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArrayDataset(images, np.array(targets), names)


@pytest.mark.parametrize("indices", [[-1], [10], [[0]], [0.0]])
def test_bad_indices_are_refused(indices: list) -> None:
    with pytest.raises(ValueError, match="indices must"):
        make().batch(indices)


def test_epoch_visits_every_example_once() -> None:
    data = make(23)
    indices = [b.indices for b in batches(data, 5, shuffle=True, seed=1, epoch=2)]
    assert [len(s) for s in indices] == [5, 5, 5, 5, 3]
    flat = torch.cat(indices).tolist()
    assert sorted(flat) == list(range(23))
    assert flat != list(range(23))
    assert [len(b.indices) for b in batches(data, 5, drop_last=True)] == [5, 5, 5, 5]
    assert torch.cat([b.indices for b in batches(data, 5)]).tolist() == list(range(23))
    assert num_batches(data, 5) == 5
    assert num_batches(23, 5, drop_last=True) == 4


class Counting(Dataset):
    name, class_names, image_size, channels = "counting", ("x",), (1, 1), 1

    def __init__(self) -> None:
        self.made: list[list[int]] = []

    def __len__(self) -> int:
        return 10

    def batch(self, indices, **_) -> Batch:
        self.made.append(list(indices))
        return Batch(torch.zeros(len(indices), 1, 1, 1), torch.zeros(len(indices)), torch.as_tensor(indices))


def test_start_skips_batches_without_making_them() -> None:
    data = Counting()
    resumed = list(batches(data, 4, shuffle=True, seed=3, epoch=1, start=2))
    assert len(data.made) == len(resumed) == 1
    full = list(batches(Counting(), 4, shuffle=True, seed=3, epoch=1))
    assert torch.equal(resumed[0].indices, full[2].indices)
    assert list(batches(data, 4, start=3)) == []


def test_resumed_augmented_epoch_is_bit_equal() -> None:
    data, augment = make(40), Augment(shift=1, rotate=10)
    options = {"shuffle": True, "seed": 5, "epoch": 9, "augment": augment}
    full, resumed = list(batches(data, 8, **options)), list(batches(data, 8, start=3, **options))
    for a, b in zip(full[3:], resumed, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.targets, b.targets)
    other = next(iter(batches(data, 8, **{**options, "epoch": 8})))
    assert not torch.equal(full[0].indices, other.indices)


@pytest.mark.parametrize("start", [-1, 4])
def test_bad_start_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match=r"start must lie in 0..3"):
        batches(make(), 4, start=start)


def test_bad_batch_size_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        batch_indices(10, 0)


def test_subset_of_generated_data_keeps_its_examples() -> None:
    dataset = load("multimnist", "test")
    some = dataset.subset([5, 2, 9], name="three")
    assert isinstance(some, Subset)
    assert len(some) == 3
    assert some.name == "three"
    batch, source = some.batch([2, 0]), dataset.batch([9, 5])
    assert torch.equal(batch.images, source.images)
    assert torch.equal(batch.targets, source.targets)
    assert batch.indices.tolist() == [2, 0]
    assert batch.sources is not None
    assert source.sources is not None
    assert torch.equal(batch.sources.images, source.sources.images)
    assert some.origin == dataset.origin
    assert some.class_names == dataset.class_names
    with pytest.raises(ValueError, match=r"indices must lie in 0\.\.2"):
        some.batch([3])
