"""Shapes: the drawing agrees with the truth, and every picture has the documented properties."""

from functools import cache

import numpy as np
import pytest
import torch

from capsnet.data import Augment, Preprocess
from capsnet.data.base import Batch
from capsnet.data.generated._shapes_draw import ELLIPSE, RECTANGLE, TRIANGLE, extents
from capsnet.data.generated._shapes_scenes import (
    FIT_ERROR,
    INK_ERROR,
    PAIR_ERROR,
    SHARED,
    TILT,
    Scene,
    shared_silhouettes,
)
from capsnet.data.generated._shapes_wholes import PLACES, fit_error, pair_error, to_canvas, to_frame
from capsnet.data.generated.shapes import COUNTS, KINDS, PART_NAMES, Kind, Shapes, Truth, shapes
from tests.data.generated.test_shapes_draw import moments

COUNT = 300


@cache
def made(kind: Kind) -> tuple[Batch, Truth]:
    dataset = Shapes("test", kind=kind, count=COUNT)
    return dataset.batch(np.arange(COUNT)), dataset.truth(np.arange(COUNT))


@pytest.mark.parametrize("kind", KINDS)
def test_example_does_not_depend_on_its_batch(kind: Kind) -> None:
    dataset, (batch, truth) = Shapes("test", kind=kind, count=COUNT), made(kind)
    order = np.array([7, 250, 0, 31, 7])
    again, truth_again = dataset.batch(order, seed=5, epoch=3), dataset.truth(order)
    assert torch.equal(again.images, batch.images[order])
    assert torch.equal(again.targets, batch.targets[order])
    assert again.indices.tolist() == order.tolist()
    for row in (0, 31, 250):
        assert torch.equal(dataset.batch([row]).images[0], batch.images[row])
    for ours, expected in zip(truth_again, truth, strict=True):
        np.testing.assert_array_equal(ours, expected[order])
    if kind == "crowded":
        assert again.sources is not None
        assert batch.sources is not None
        assert torch.equal(again.sources.images, batch.sources.images[order])


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_well_formed(kind: Kind) -> None:
    dataset, (batch, truth) = Shapes("test", kind=kind, count=COUNT), made(kind)
    assert batch.images.shape == (COUNT, 1, 40, 40)
    assert batch.images.dtype == torch.float32
    assert 0 <= float(batch.images.min()) < float(batch.images.max()) <= 1
    assert (dataset.channels, dataset.image_size) == (1, (40, 40))
    assert dataset.preprocess == Preprocess(style="plain", height=40, width=40)
    assert dataset.origin == dataset.subset([0]).origin == "generated"
    assert repr(dataset) == f"shapes {kind} test: 300 images 1x40x40, 3 classes"
    low, high = extents(truth.part_kinds, truth.part_poses)
    assert low[truth.valid].min() >= 0
    assert high[truth.valid].max() <= 39
    np.testing.assert_array_equal(truth.owner >= 0, batch.images[:, 0].numpy() >= 0.5)
    assert len(dataset.batch([]).images) == 0
    assert dataset.truth([]).poses.shape == (0, dataset.objects, 4)


@pytest.mark.parametrize("kind", ["parts", "wholes", "scrambled"])
def test_labels_are_the_truth_and_balanced(kind: Kind) -> None:
    batch, truth = made(kind)
    assert batch.targets.dtype == torch.int64
    assert batch.targets.tolist() == truth.classes[:, 0].tolist()
    assert (np.bincount(truth.classes[:, 0]) > COUNT / 4).all()
    assert batch.sources is None


def test_splits_never_share_an_example() -> None:
    poses = {split: Shapes(split, kind="wholes", count=200).truth(np.arange(200)).poses for split in COUNTS}
    poses["other seed"] = Shapes("train", kind="wholes", count=200, seed=1).truth(np.arange(200)).poses
    everything = np.concatenate(list(poses.values())).reshape(-1, 4)
    for column in everything.T[:3]:
        assert len(np.unique(column)) == 800


def test_train_and_validation_are_put_together() -> None:
    train, validation = Shapes("train", kind="crowded", count=30), Shapes("validation", kind="crowded", count=30)
    both = Shapes("train+validation", kind="crowded", count=30)
    assert len(both) == 60
    batch = both.batch([31, 2, 59])
    expected = torch.cat([validation.batch([1]).images, train.batch([2]).images, validation.batch([29]).images])
    assert torch.equal(batch.images, expected)
    assert batch.indices.tolist() == [31, 2, 59]
    assert [len(shapes(split)) for split in ("train", "validation", "train+validation", "test")] == [
        20_000,
        2_000,
        22_000,
        2_000,
    ]


def test_part_pose_agrees_with_the_pixels() -> None:
    """Centre, direction and extent from the pixels against the truth: filled shapes of all three kinds."""
    batch, truth = made("parts")
    filled = np.flatnonzero(truth.part_filled[:, 0, 0])
    assert len(filled) > 100
    for row in filled:
        x, y, angle, width, aspect = truth.part_poses[row, 0, 0]
        area, centre, second = moments(batch.images[row, 0].numpy())
        np.testing.assert_allclose(centre, [x, y], atol=0.2)
        filled_fraction = {RECTANGLE: 1.0, TRIANGLE: 0.5, ELLIPSE: np.pi / 4}[int(truth.part_kinds[row, 0, 0])]
        assert area == pytest.approx(filled_fraction * width**2 * aspect, rel=0.05)
        longest = np.linalg.eigh(second)[1][:, -1]  # the widest direction, up to half a turn
        assert abs(longest @ [np.cos(angle), np.sin(angle)]) > 0.99
    np.testing.assert_array_equal(truth.poses, truth.part_poses[:, :, 0, :4])


def test_parts_of_wholes_are_in_their_places() -> None:
    _, truth = made("wholes")
    centres = to_frame(truth.poses, truth.part_poses[..., :2])
    off = np.linalg.norm(centres - PLACES[truth.classes][..., :2], axis=-1)
    assert off[truth.valid].max() < 0.03
    assert abs(truth.poses[..., 2]).max() <= TILT
    turned = truth.part_poses[..., 2] - truth.poses[..., None, 2] - PLACES[truth.classes][..., 2]
    assert abs(turned[truth.valid]).max() <= 0.05 + 1e-9
    for j, names in enumerate(PART_NAMES.values()):
        assert (truth.valid[truth.classes == j].sum(axis=-1) == len(names)).all()


def test_house_and_boat_have_the_same_kinds_of_parts() -> None:
    _, truth = made("wholes")
    house, boat = (set(truth.part_kinds[truth.classes == j][truth.valid[truth.classes == j]].tolist()) for j in (0, 1))
    assert house == boat == {RECTANGLE, TRIANGLE}


def test_owner_part_points_at_the_ink_of_that_part() -> None:
    """For filled parts without overlap: their pixels lie around their pose."""
    _, truth = made("wholes")
    faces = np.flatnonzero(truth.classes[:, 0] == 2)
    for row in faces[:30]:
        for p in (1, 2, 4):  # eyes and mouth
            ys, xs = np.nonzero(truth.owner_part[row] == p)
            assert np.hypot(xs.mean() - truth.part_poses[row, 0, p, 0], ys.mean() - truth.part_poses[row, 0, p, 1]) < 1


def test_arrangement_errors_match_hand_computed_values() -> None:
    """Right, moved, turned and mirrored-by-swapping-eyes are right; one part away is wrong by just that part."""
    for j in range(3):
        classes, centres = np.array([j]), PLACES[None, j, :, :2].copy()
        assert pair_error(classes, centres)[0] == pytest.approx(0, abs=1e-12)
        assert fit_error(classes, centres)[0] == pytest.approx(0, abs=1e-7)
        turned = to_canvas(np.array([[0.3, -0.2, 2.0, 1.0]]), centres)
        assert fit_error(classes, turned)[0] == pytest.approx(0, abs=1e-7)
        assert pair_error(classes, turned)[0] > 0.02
        moved = centres.copy()
        moved[0, 3] += [0.6, 0.0]
        assert pair_error(classes, moved)[0] == pytest.approx(0, abs=1e-12)  # the others are still right
        assert fit_error(classes, moved)[0] > 0.05
    swapped = PLACES[None, 2, [0, 2, 1, 3, 4], :2]
    assert fit_error(np.array([2]), swapped)[0] == pytest.approx(0, abs=1e-7)
    assert pair_error(np.array([2]), swapped)[0] == pytest.approx(0, abs=1e-12)


def test_scrambled_is_never_a_whole() -> None:
    (right, original), (_, truth) = made("wholes"), made("scrambled")
    centres = to_frame(truth.poses, truth.part_poses[..., :2])
    assert pair_error(truth.classes, centres).min() >= PAIR_ERROR
    assert fit_error(truth.classes, centres).min() >= FIT_ERROR
    # without the helpers: every part but the first is away from its place, and few relations are left
    off = np.linalg.norm(centres - PLACES[truth.classes][..., :2], axis=-1)
    assert off[..., 1:][truth.valid[..., 1:]].min() >= PAIR_ERROR - 0.03
    for whole, upper, lower in (("house", "roof", "walls"), ("boat", "sail", "hull"), ("face", "nose", "mouth")):
        j, names = list(PART_NAMES).index(whole), PART_NAMES[whole]
        a, b = names.index(upper), names.index(lower)
        way = (centres[..., b, :] - centres[..., a, :])[truth.classes == j]
        assert np.linalg.norm(way - (PLACES[j, b] - PLACES[j, a])[:2], axis=-1).min() >= PAIR_ERROR
    # by the same measure the wholes are nearly right
    placed = to_frame(original.poses, original.part_poses[..., :2])
    assert fit_error(original.classes, placed).max() < 0.03
    assert right.images.shape == made("scrambled")[0].images.shape


def test_scrambled_pairs_with_wholes_in_everything_but_arrangement() -> None:
    (right, original), (wrong, truth) = made("wholes"), made("scrambled")
    np.testing.assert_array_equal(truth.poses, original.poses)
    np.testing.assert_array_equal(truth.classes, original.classes)
    np.testing.assert_array_equal(truth.part_kinds, original.part_kinds)
    np.testing.assert_array_equal(truth.part_poses[..., 3:], original.part_poses[..., 3:])
    np.testing.assert_array_equal(truth.part_poses[..., 0, :], original.part_poses[..., 0, :])
    ratio = (wrong.images.sum(dim=(1, 2, 3)) / right.images.sum(dim=(1, 2, 3))).numpy()
    assert abs(ratio - 1).max() <= INK_ERROR + 1e-5
    assert abs(ratio.mean() - 1) < 0.03
    for j in range(3):  # nor does it give away a class
        assert abs(ratio[truth.classes[:, 0] == j].mean() - 1) < 0.04


def test_crowded_targets_and_sources_agree() -> None:
    batch, truth = made("crowded")
    assert batch.sources is not None
    assert batch.sources.images.shape == (COUNT, 2, 1, 40, 40)
    assert torch.equal(batch.sources.images.amax(dim=1), batch.images)
    assert batch.sources.classes.tolist() == truth.classes.tolist()
    assert (batch.targets.sum(dim=1) == 2).all()
    assert len({tuple(row) for row in truth.classes.tolist()}) == 6
    two = Shapes("train", kind="crowded", objects=2)
    pair = two.batch(np.arange(60))
    assert pair.targets.dtype == torch.float32
    assert pair.sources is not None
    assert pair.sources.images.shape[1] == 2
    assert (pair.targets.sum(dim=1) == 2).all()
    assert (pair.targets.gather(1, pair.sources.classes) == 1).all()
    assert (pair.targets.sum(dim=0) > 20).all()


@pytest.mark.parametrize("objects", [2, 3])
def test_crowded_objects_touch_but_stay_visible(objects: int) -> None:
    dataset = Shapes("validation", kind="crowded", objects=objects, size=48)
    truth = dataset.truth(np.arange(COUNT))
    scene = Scene(truth.poses, truth.classes, truth.part_poses, truth.part_kinds, truth.part_filled)
    covered = shared_silhouettes(scene, 48)
    assert SHARED[0] <= covered.min() <= covered.max() <= SHARED[1]
    sources = dataset.batch(np.arange(COUNT)).sources
    assert sources is not None
    lit = sources.images[:, :, 0].numpy() >= 0.5  # (B, K, H, W)
    alone = lit & (lit.sum(axis=1, keepdims=True) == 1)
    assert (alone.sum(axis=(2, 3)) / lit.sum(axis=(2, 3))).min() >= 0.6
    for k in range(objects):
        assert lit[:, k][truth.owner == k].all()


def test_canvas_size_scales_the_scene() -> None:
    small, large = (Shapes("test", kind="wholes", size=size).truth([3, 4]) for size in (24, 72))
    np.testing.assert_allclose(3 * small.poses[..., 3], large.poses[..., 3])
    np.testing.assert_array_equal(small.poses[..., 2], large.poses[..., 2])
    for kind in KINDS:
        assert Shapes("test", kind=kind, size=24, count=64).batch(np.arange(64)).images.shape == (64, 1, 24, 24)


def test_augmentation_moves_sources_with_the_picture() -> None:
    dataset, augment = Shapes("test", kind="crowded", count=20), Augment(shift=3)
    plain, moved = dataset.batch([4, 9]), dataset.batch([4, 9], augment=augment, seed=1, epoch=2)
    assert not torch.equal(plain.images, moved.images)
    assert moved.sources is not None
    assert torch.equal(moved.sources.images.amax(dim=1), moved.images)
    assert not torch.equal(moved.images, dataset.batch([4, 9], augment=augment, seed=1, epoch=3).images)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown kind of shapes 'whole'. Did you mean 'wholes'"):
        Shapes(kind="whole")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"unknown split 'tset'"):
        Shapes("tset", kind="wholes")
    with pytest.raises(ValueError, match=r"size of at least 24 pixels, got 8"):
        shapes(size=8)
    with pytest.raises(ValueError, match=r"objects must lie in 2..3 .*, got 4"):
        shapes(kind="crowded", objects=4)
    with pytest.raises(ValueError, match=r"count must be at least 1 example, got 0"):
        shapes(count=0)
    with pytest.raises(ValueError, match=r"indices must lie in 0..9, got 3..10"):
        shapes(count=10).truth([3, 10])
