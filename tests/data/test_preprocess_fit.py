"""Pictures of another shape than the frame, and pictures much larger than it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capsnet.data import Preprocess


def test_pad_keeps_the_whole_picture_and_stretch_fills_the_frame() -> None:
    pixels = np.full((40, 80, 3), 200, np.uint8)
    pixels[:, :8] = 100  # a mark at the left edge, which "crop" loses
    padded = Preprocess(style="plain", height=20, width=20, channels=3, fit="pad")(pixels)
    assert padded.shape == (3, 20, 20)
    assert not padded[:, :5].any()
    assert not padded[:, 15:].any()
    assert padded[0, 5:15, 0].numpy() == pytest.approx(100 / 255, abs=0.01)
    assert padded[0, 5:15, 3:].numpy() == pytest.approx(200 / 255, abs=1e-4)
    tall = Preprocess(style="plain", height=24, width=16, fit="pad")(np.full((300, 2), 255, np.uint8))
    assert tall.sum() == 24  # one column is left of it
    stretched = Preprocess(style="plain", height=20, width=20, fit="stretch")(pixels)
    assert stretched[0, :, 0].numpy() == pytest.approx(100 / 255, abs=0.01)
    assert stretched[0, :, 3:].numpy() == pytest.approx(200 / 255, abs=1e-4)
    cropped = Preprocess(style="plain", height=20, width=20)(pixels)
    assert cropped.numpy() == pytest.approx(200 / 255, abs=1e-4)


def test_preprocess_stored_without_fit_loads() -> None:
    old = {"style": "plain", "height": 28, "width": 28, "channels": 1}
    assert Preprocess(**old) == Preprocess(style="plain", fit="crop")  # pyright: ignore[reportArgumentType]
    assert Preprocess(style="plain", fit="pad").model_dump()["fit"] == "pad"


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("size", [(1600, 1200), (300, 2400)])
def test_large_files_are_reduced_first_and_look_the_same(fit: str, size: tuple[int, int], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    picture = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    picture.save(tmp_path / "large.jpg", quality=95)
    prepare = Preprocess.model_validate({"style": "plain", "height": 32, "width": 24, "channels": 3, "fit": fit})
    with Image.open(tmp_path / "large.jpg") as opened:
        exact = prepare(np.asarray(opened))
    difference = (prepare(tmp_path / "large.jpg") - exact).abs()
    assert difference.mean() < 0.006
    assert difference.max() < 0.05


@pytest.mark.parametrize("size", [28, 30, 50])
def test_crop_takes_pictures_of_any_size(size: int) -> None:
    """Rounding may not put the frame outside the picture: with 28 pixels, 29 x 29 did."""
    frame = Preprocess(style="plain", height=size, width=size)
    for side in range(size, 4 * size):
        for other in (side, side + 7):
            assert frame(np.full((side, other), 255, np.uint8)).min() == 1
