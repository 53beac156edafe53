"""Pictures as they come: digits that fill them, soft edges, thin and thick pens, both polarities, uneven light."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from benchmarks.pictures import LEVELS, photograph, photographs, read, table
from capsnet.data import ArrayDataset, Preprocess
from capsnet.data._closeup import find_close_up
from tests.data.photos import bordered, correlation

digit = Preprocess()
CLOSE: dict[str, Any] = {"border": 0, "blur": 4, "pen": "as it is", "ink": "dark", "light": "uneven", "size": 56}


def test_photographs_of_all_kinds_are_read() -> None:
    """A sample of what `python -m benchmarks.pictures` measures: every level of every factor is in it."""
    pictures = list(photographs(range(40)))
    for factor, values in LEVELS.items():
        assert {picture.levels[factor] for picture in pictures} == set(values)
    readings = read(pictures, "capsnet-small-mnist")
    assert sum(one.outcome == "right" for one in readings) >= 36  # 22 without the search in close-ups
    assert sum(one.outcome == "refused" for one in readings) <= 2
    lines = table(readings)
    assert lines[2].startswith("| all | 40 |")
    assert all(line.count("|") == lines[0].count("|") for line in lines[:20])


@pytest.mark.parametrize("number", [3, 106])
def test_darkest_part_of_a_close_up_is_not_the_digit(number: int) -> None:
    """The search for photos finds a small part of these digits, as dark as the rest."""
    [picture] = photographs([number])
    [reading] = read([picture], "capsnet-small-mnist")
    assert reading.outcome == "right"
    assert ", in a close-up;" in digit.read(picture.image).how


def test_pen_on_a_photo_with_a_white_border_is_not_a_part_of_the_paper(digits: ArrayDataset) -> None:
    """Beside a white border the paper looks like the ink of a close-up, but the pen on it is twice as dark."""
    assert digit.read(bordered(digits.images[9, 0])).how.startswith("dark ink on light paper, in a photo;")


@pytest.mark.parametrize("ink", LEVELS["ink"])
@pytest.mark.parametrize("pen", ["thin", "thick"])
def test_close_up_with_soft_edges_becomes_mnist_like(digits: ArrayDataset, ink: str, pen: str) -> None:
    known = np.flatnonzero(digits.targets != 1)[:6]  # a 1 would be a bar
    likeness = []
    for i in known:
        picture = photograph(digits.images[i, 0], int(i), **dict(CLOSE, ink=ink, pen=pen))
        seen = digit.read(picture)
        assert seen.how.startswith(f"{ink} ink on ")
        assert "touches the border" in seen.how
        likeness.append(correlation(seen.tensor[0].numpy(), digits.images[i, 0]))
    assert np.mean(likeness) > 0.8


def test_colours_are_told_apart_by_the_clearest(digits: ArrayDataset) -> None:
    """Red ink on white paper: the red plane is blank."""
    grey = np.asarray(photograph(digits.images[0, 0], 0, **dict(CLOSE, light="even")))
    red = np.stack([np.full_like(grey, 230), grey, grey], axis=2)
    assert correlation(digit(red).numpy(), digit(grey).numpy()) > 0.98


def drawing(width: int = 200) -> Image.Image:
    image = Image.new("L", (width, 200))
    ImageDraw.Draw(image).line([(60, 40), (140, 40), (90, 160)], fill=255, width=18)
    return image


def test_drawing_in_the_middle_is_read_as_before() -> None:
    """The search in close-ups is not asked, so that drawings in the explorer stay what they were."""
    assert digit.read(drawing()).how == (
        "light ink on dark paper, in a drawing; cropped to 66 % of the height and 45 % of the width, scaled and centred"
    )
    soft = drawing().filter(ImageFilter.GaussianBlur(4))
    assert correlation(digit(soft).numpy(), digit(drawing()).numpy()) > 0.97


def spot() -> NDArray[np.floating]:
    y, x = np.mgrid[-1:1:120j, -1:1:160j]
    return 220 - 90 * (x * x + y * y)


def sheet() -> NDArray[np.floating]:
    table = np.full((150, 200), 60.0)
    table[12:140, 10:188] = 225
    return table


def corner() -> NDArray[np.floating]:
    y, x = np.mgrid[0:150, 0:200]
    return np.where(x + y < 120, 40.0, 220.0)


@pytest.mark.parametrize("make", [spot, sheet, corner])
@pytest.mark.parametrize("noise", [0, 6])
def test_pictures_without_a_digit_are_no_close_ups(make: type, noise: float) -> None:
    values = make() + np.random.default_rng(0).normal(0, noise, make().shape)
    for picture in (values, 255 - values):
        pixels = np.repeat(picture.clip(0, 255)[..., None] / 255, 3, axis=2).astype(np.float32)
        assert find_close_up(pixels) is None


def test_how_a_picture_was_read_is_said(digits: ArrayDataset) -> None:
    ready = [digit.read(digits.images[i, 0]).how.startswith("as it is, because it has the size") for i in range(10)]
    assert sum(ready) >= 5  # the others are not quite in the middle
    plain = Preprocess(style="plain")
    assert plain.read(drawing()).how == "resized to 28 x 28, in grey"
    assert plain.read(drawing(100)).how == "resized to 28 x 28, its middle cropped, in grey"
    assert Preprocess(style="plain", height=200, width=200, channels=3).read(drawing()).how == "as it is"
