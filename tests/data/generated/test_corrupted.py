"""Corrupted digits: each kind does what it says, and to each digit alone."""

import numpy as np
import pytest
import torch

from capsnet.data import Augment, Corrupted, corrupted_mnist, load, mnist, stroke_width
from capsnet.data.generated.corrupted import CONTRAST, KINDS, NOISE, THICKER, THINNER, add_noise, blur, thicken

SOME = np.arange(40)


@pytest.mark.parametrize("amount", [-0.75, -0.25, 0.25, 0.5, 0.75])
def test_thicken_moves_outlines_by_the_amount(amount: float) -> None:
    bar = torch.zeros(1, 1, 20, 20)
    bar[..., 8:12] = 0.5  # four pixels wide, all the way down
    middle = thicken(bar, amount)[0, 0, 10]
    assert float(middle.sum()) == pytest.approx(0.5 * (4 + 2 * amount))
    assert float(middle.max()) == 0.5  # a grey level stays that level


def test_blur_keeps_the_ink_and_spreads_it_by_sigma() -> None:
    point = torch.zeros(1, 1, 21, 21)
    point[0, 0, 10, 10] = 1
    blurred = blur(point, 2.0)[0, 0]
    assert float(blurred.sum()) == pytest.approx(1, abs=1e-3)
    spread = (blurred.sum(dim=0) * (torch.arange(21) - 10).square()).sum().sqrt()
    assert float(spread) == pytest.approx(2, rel=0.02)


def test_noise_is_normal_and_another_one_for_each_digit() -> None:
    grey = torch.full((50, 1, 28, 28), 0.5)
    noise = (add_noise(grey, 0.1, 0, np.arange(50)) - 0.5) / 0.1
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(noise.std()) == pytest.approx(1, abs=0.02)
    assert float((noise.abs() < 1).float().mean()) == pytest.approx(0.683, abs=0.01)
    assert float((noise[0] * noise[1]).mean().abs()) < 0.1
    assert not torch.equal(add_noise(grey, 0.1, 1, np.arange(50)), add_noise(grey, 0.1, 0, np.arange(50)))
    assert add_noise(grey[:0], 0.1, 0, np.arange(0)).shape == (0, 1, 28, 28)


def test_kinds_change_the_strokes_as_declared() -> None:
    clean = mnist("test").batch(SOME).images
    made = {kind: corrupted_mnist("test", kind=kind).batch(SOME).images for kind in KINDS}  # type: ignore[arg-type]
    width = {kind: float(stroke_width(images[:, 0]).mean()) for kind, images in (made | {"clean": clean}).items()}
    assert width["thick"] == pytest.approx(width["clean"] + 2 * THICKER, rel=0.15)
    assert width["clean"] - 2 * THINNER < width["thin"] < width["clean"] - 0.2  # the thinnest strokes turn grey
    torch.testing.assert_close(made["contrast"], CONTRAST * clean)
    assert (made["blur"].amax(dim=(1, 2, 3)) < clean.amax(dim=(1, 2, 3))).all()
    empty = clean == 0
    assert float(made["noise"][empty].square().mean().sqrt()) == pytest.approx(NOISE / 2**0.5, rel=0.05)  # cut at 0


def test_any_draws_one_kind_for_each_digit() -> None:
    dataset = corrupted_mnist("validation")
    assert len(dataset) == len(dataset.targets) == 10_000
    kinds = dataset.kinds(np.arange(10_000))
    assert {kind: bool(1_800 < (kinds == kind).sum() < 2_200) for kind in KINDS} == dict.fromkeys(KINDS, True)
    assert (corrupted_mnist("validation", seed=1).kinds(SOME) != kinds[SOME]).any()
    images = dataset.batch(SOME).images
    for kind in KINDS:
        alone = load(f"corrupted-mnist:kind={kind}", "validation").batch(SOME)
        mine = torch.from_numpy(kinds[SOME] == kind)
        assert torch.equal(images[mine], alone.images[mine])
        assert not torch.equal(images, alone.images)


def test_augmentation_comes_last() -> None:
    dataset, shift = corrupted_mnist("test", kind="noise"), Augment(shift=2)
    expected = shift(dataset.batch(SOME).images, seed=3, epoch=1, indices=SOME)
    assert torch.equal(dataset.batch(SOME, augment=shift, seed=3, epoch=1).images, expected)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="option kind of corrupted-mnist must be"):
        load("corrupted-mnist:kind=rain", "test")
    with pytest.raises(ValueError, match="unknown kind of corruption 'rain'"):
        Corrupted(mnist("test"), "rain")
