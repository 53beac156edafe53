"""Augmentation: exact where possible, always keyed."""

import numpy as np
import pytest
import torch

from capsnet.data import ArrayDataset, Augment
from capsnet.data.warping import (
    draw_corners,
    draw_flips,
    draw_gains,
    draw_maps,
    draw_pulls,
    draw_shifts,
    shift_images,
    warp_images,
)

FULL = Augment(shift=2, rotate=20, scale=0.2, shear=0.2)
EYE = torch.eye(2)


def some_images(count: int = 7, channels: int = 3, height: int = 9, width: int = 6) -> torch.Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "augment",
    [Augment(shift=2), FULL, Augment(flip=True), Augment(brightness=0.3), Augment(elastic=2), Augment(erase=3)],
)
def test_example_does_not_depend_on_its_batch(augment: Augment) -> None:
    images, index = some_images(), np.array([5, 90, 7, 1000, 3, 10_000_000, 11])
    expected = augment(images, seed=1, epoch=2, indices=index)
    pick = [4, 0, 5]
    part = augment(images[pick], seed=1, epoch=2, indices=index[pick])
    assert torch.equal(part, expected[pick])
    assert expected.shape == images.shape
    assert not torch.equal(expected, augment(images, seed=1, epoch=3, indices=index))
    assert not torch.equal(expected, augment(images, seed=2, epoch=2, indices=index))


def test_shift_equals_a_loop() -> None:
    images, index = some_images(), np.arange(7) * 13
    augment = Augment(shift=2)
    offsets = draw_shifts(augment, 4, 5, index)
    assert len(set(map(tuple, offsets.tolist()))) > 3
    result = augment(images, seed=4, epoch=5, indices=index)
    for image, (down, right), moved in zip(images, offsets.tolist(), result, strict=True):
        expected = torch.zeros_like(image)
        for y in range(9):
            for x in range(6):
                if 0 <= y - down < 9 and 0 <= x - right < 6:
                    expected[:, y, x] = image[:, y - down, x - right]
        assert torch.equal(moved, expected)


def test_shifts_are_uniform_and_axes_independent() -> None:
    offsets = draw_shifts(Augment(shift=2), 0, 0, np.arange(50_000))
    counts = torch.bincount((offsets[:, 0] + 2) * 5 + offsets[:, 1] + 2, minlength=25)
    assert int((counts - 2000).abs().max()) < 240  # 25 cells, standard deviation 44


def test_zero_augment_is_the_identity() -> None:
    images = some_images()
    assert Augment()(images, seed=0, epoch=0, indices=np.arange(7)) is images
    assert FULL(images[:0], seed=0, epoch=0, indices=[]).shape == (0, 3, 9, 6)


def test_identity_map_changes_nothing() -> None:
    images = some_images()
    same = warp_images(images, EYE.expand(7, 2, 2), torch.zeros(7, 2, dtype=torch.int64))
    torch.testing.assert_close(same, images, atol=1e-5, rtol=0)


def test_warped_shift_equals_exact_shift() -> None:
    images, offsets = some_images(), draw_shifts(Augment(shift=2), 1, 1, np.arange(7))
    warped = warp_images(images, EYE.expand(7, 2, 2), offsets)
    torch.testing.assert_close(warped, shift_images(images, offsets, 2), atol=1e-5, rtol=0)


def test_positive_angle_turns_clockwise() -> None:
    """A positive angle turns x (right) into y (down): clockwise on the screen; about the centre, non-square or not."""
    images = some_images(height=8, width=8)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).expand(7, 2, 2)
    turned = warp_images(images, turn, torch.zeros(7, 2, dtype=torch.int64))
    torch.testing.assert_close(turned, torch.rot90(images, -1, (2, 3)), atol=1e-5, rtol=0)
    tall = torch.zeros(1, 1, 9, 5)
    tall[0, 0, 4, 3] = 1  # one to the right of the centre
    result = warp_images(tall, turn[:1], torch.zeros(1, 2, dtype=torch.int64))
    assert result[0, 0, 5, 2] == pytest.approx(1, abs=1e-5)  # one below it


def test_scale_doubles_the_width() -> None:
    image = torch.zeros(1, 1, 6, 8)
    image[:, :, 2:4, 3:5] = 1  # two wide
    wide = warp_images(image, torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]), torch.zeros(1, 2, dtype=torch.int64))
    assert wide[0, 0, 2].tolist() == pytest.approx([0, 0.25, 0.75, 1, 1, 0.75, 0.25, 0], abs=1e-5)
    assert wide.sum().item() == pytest.approx(8, abs=1e-4)


def test_drawn_maps_stay_within_their_bounds() -> None:
    index = np.arange(4000)
    turns = draw_maps(Augment(rotate=30), 0, 0, index)
    angles = torch.rad2deg(torch.atan2(turns[:, 1, 0], turns[:, 0, 0]))
    assert angles.abs().max() <= 30.001
    assert angles.min() < -29
    assert angles.max() > 29
    assert abs(angles.mean()) < 1.5
    torch.testing.assert_close(torch.linalg.det(turns), torch.ones(4000))
    scales = draw_maps(Augment(scale=0.1), 0, 0, index)
    assert torch.equal(scales[:, 0, 1], torch.zeros(4000))
    assert 0.9 <= scales[:, 0, 0].min() < 0.905
    assert abs(np.corrcoef(scales[:, 0, 0], scales[:, 1, 1])[0, 1]) < 0.08
    slants = draw_maps(Augment(shear=0.3), 0, 0, index)
    assert 0.29 < slants[:, 0, 1].max() <= 0.3001
    assert torch.equal(slants[:, 1, 0], torch.zeros(4000))


def test_pulls_stay_within_their_bound_and_points_are_independent() -> None:
    pulls = draw_pulls(Augment(elastic=1.5), 0, 0, np.arange(4000))
    assert pulls.shape == (4000, 2, 5, 5)
    assert 1.49 < pulls.max() <= 1.5
    assert -1.5 <= pulls.min() < -1.49
    drawn = np.corrcoef(pulls.flatten(1).numpy().T)
    assert np.abs(drawn - np.eye(50)).max() < 0.08


def test_equal_pulls_shift_the_image() -> None:
    """Each pixel is sampled two to the right and one up, so the image moves left and down."""
    images, none = some_images(), torch.zeros(7, 2, dtype=torch.int64)
    pulls = torch.tensor([2.0, -1.0])[None, :, None, None].expand(7, 2, 5, 5)
    bent = warp_images(images, EYE.expand(7, 2, 2), none, pulls)
    moved = shift_images(images, torch.tensor([[1, -2]]).expand(7, 2), 2)
    torch.testing.assert_close(bent, moved, atol=1e-5, rtol=0)


def test_single_pull_changes_its_neighbourhood_only() -> None:
    images = torch.rand(1, 1, 29, 29, generator=torch.Generator().manual_seed(0))  # a point every 7 pixels
    pulls = torch.zeros(1, 2, 5, 5)
    pulls[0, 0, 1, 1] = 1.0  # one pixel in x; cubic interpolation reaches two points far, to pixel 21
    bent = warp_images(images, EYE[None], torch.zeros(1, 2, dtype=torch.int64), pulls)
    assert bent[0, 0, 7, 7] == pytest.approx(images[0, 0, 7, 8].item(), abs=1e-5)
    torch.testing.assert_close(bent[0, 0, 21:], images[0, 0, 21:], atol=1e-5, rtol=0)
    torch.testing.assert_close(bent[0, 0, :, 21:], images[0, 0, :, 21:], atol=1e-5, rtol=0)
    assert (bent - images).abs()[0, 0, 4:11, 4:11].mean() > 0.1


def test_flip_mirrors_half_and_keeps_the_other_draws() -> None:
    images, index = some_images(), np.arange(7)
    augment = Augment(flip=True)
    mirrored = draw_flips(0, 0, index)
    assert 0 < int(mirrored.sum()) < 7
    result = augment(images, seed=0, epoch=0, indices=index)
    for image, mirror, augmented in zip(images, mirrored.tolist(), result, strict=True):
        assert torch.equal(augmented, image.flip(2) if mirror else image)
    assert draw_flips(0, 0, np.arange(20_000)).float().mean() == pytest.approx(0.5, abs=0.015)
    flips, shifts = draw_flips(0, 0, np.arange(4000)), draw_shifts(FULL, 0, 0, np.arange(4000))
    gains = draw_gains(Augment(brightness=0.1), 0, 0, np.arange(4000))
    drawn = np.corrcoef(np.column_stack([flips, shifts, gains]).astype(float).T)
    assert np.abs(drawn - np.eye(4)).max() < 0.08
    both = Augment(shift=2, flip=True)(images, seed=0, epoch=0, indices=index)
    assert torch.equal(both, Augment(shift=2)(result, seed=0, epoch=0, indices=index))
    warped = Augment(shift=2, rotate=9, flip=True)(images, seed=0, epoch=0, indices=index)
    assert torch.equal(warped, Augment(shift=2, rotate=9)(result, seed=0, epoch=0, indices=index))


def test_brightness_scales_and_clamps() -> None:
    images, index = some_images(), np.arange(7)
    augment = Augment(brightness=0.4)
    gains = draw_gains(augment, 3, 1, index)
    before = images.clone()
    result = augment(images, seed=3, epoch=1, indices=index)
    assert torch.equal(images, before)  # the input is not written to
    torch.testing.assert_close(result, (images * gains[:, None, None, None]).clamp(0, 1))
    assert result.max() == 1
    many = draw_gains(augment, 0, 0, np.arange(20_000))
    assert 0.6 <= many.min() < 0.61
    assert 1.39 < many.max() <= 1.4
    assert many.mean() == pytest.approx(1, abs=0.01)
    moved = Augment(shift=2, brightness=0.4)(images, seed=3, epoch=1, indices=index)
    shifted = Augment(shift=2)(images, seed=3, epoch=1, indices=index)
    torch.testing.assert_close(moved, (shifted * gains[:, None, None, None]).clamp(0, 1))


def test_augmented_digits_keep_their_ink(digits: ArrayDataset) -> None:
    batch = digits.batch(np.arange(256), augment=Augment(shift=2, rotate=15, scale=0.1, shear=0.1, elastic=1.5))
    plain = digits.batch(np.arange(256))
    assert batch.images.min() >= 0
    assert batch.images.max() <= 1
    assert batch.images.sum().item() == pytest.approx(plain.images.sum().item(), rel=0.03)
    assert (batch.images - plain.images).abs().mean() > 0.02


@pytest.mark.parametrize(
    "wrong",
    [
        {"shift": -1},
        {"shift": 1.5},
        {"shift": True},
        {"rotate": 181.0},
        {"scale": 1.0},
        {"shear": float("nan")},
        {"elastic": 17.0},
        {"brightness": 1.5},
        {"erase": -1},
        {"erase": 1.5},
        {"flip": 1},
    ],
)
def test_bad_amounts_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Augment(**wrong)


def test_erase_equals_a_loop() -> None:
    images, index = some_images() + 0.5, np.arange(7) * 13
    augment = Augment(erase=3)
    corners = draw_corners(augment, (9, 6), 4, 5, index)
    expected = images.clone()
    for image, (top, left) in zip(expected, corners.tolist(), strict=True):
        image[:, top : top + 3, left : left + 3] = 0
    result = augment(images, seed=4, epoch=5, indices=index)
    assert torch.equal(result, expected)
    assert ((result == 0).sum(dim=(1, 2, 3)) == 3 * 3 * 3).all()  # the whole square lies in the image


def test_erased_squares_are_uniform() -> None:
    corners = draw_corners(Augment(erase=3), (9, 6), 0, 0, np.arange(28_000))
    counts = torch.bincount(corners[:, 0] * 4 + corners[:, 1], minlength=28)
    assert len(counts) == 28
    assert int((counts - 1000).abs().max()) < 160  # 28 cells, standard deviation 31


def test_square_larger_than_the_image_erases_it() -> None:
    erased = Augment(erase=40)(some_images(), seed=0, epoch=0, indices=np.arange(7))
    assert erased.abs().max() == 0
