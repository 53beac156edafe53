"""Preprocessing: photos, drawings and other files become digits in MNIST's format, or are refused in one sentence."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pydantic import ValidationError

from capsnet.data import ArrayDataset, NotAnImage, Preprocess, _ink, open_image, stroke_width
from capsnet.data._components import choose
from tests.data.photos import correlation, photograph

digit = Preprocess()
plain = Preprocess(style="plain")


def nearest(images: NDArray, known: ArrayDataset) -> NDArray:
    """1-NN on 3,000 digits that the photos were not made from."""
    reference = torch.tensor(known.images[5000:8000].reshape(3000, -1)).float() / 255
    distance = torch.cdist(torch.from_numpy(images.reshape(len(images), -1)).float(), reference)
    return known.targets[5000:8000][distance.argmin(dim=1).numpy()]


def compare(photos: list[Image.Image], known: ArrayDataset) -> tuple[float, float]:
    """Mean correlation with the original digits, and how often 1-NN is right."""
    prepared = np.stack([digit(photo)[0].numpy() for photo in photos])
    likeness = [correlation(a, b) for a, b in zip(prepared, known.images[: len(photos), 0], strict=True)]
    return float(np.mean(likeness)), float((nearest(prepared, known) == known.targets[: len(photos)]).mean())


def test_photos_of_pen_digits_become_mnist_like(digits: ArrayDataset) -> None:
    sizes = [(800, 600), (600, 800), (1000, 700), (640, 640)]
    photos = [photograph(digits.images[i, 0], i, size=sizes[i % 4]) for i in range(100)]
    likeness, right = compare(photos, digits)
    originals = nearest(digits.images[:100, 0] / 255.0, digits)
    assert likeness > 0.93
    assert right >= (originals == digits.targets[:100]).mean() - 0.04


@pytest.mark.parametrize(
    ("kind", "least"),
    [({"ruled": 0.3}, 0.93), ({"table": True}, 0.93), ({"noise": 0.08}, 0.93), ({"thin": True}, 0.7)],
    ids=["ruled paper", "table edge", "noise", "hairline pen"],
)
def test_harder_photos_become_mnist_like(digits: ArrayDataset, kind: dict, least: float) -> None:
    photos = [photograph(digits.images[i, 0], i + 7, **kind) for i in range(12)]
    likeness, right = compare(photos, digits)
    assert likeness > least
    assert right >= 0.8


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("scale", [3, 10])
def test_drawings_of_either_polarity_become_mnist_like(digits: ArrayDataset, invert: bool, scale: int) -> None:
    side = 28 * scale
    drawn = [Image.fromarray(digits.images[i, 0] ^ (255 * invert)).resize((side, side), 3) for i in range(12)]
    likeness, right = compare(drawn, digits)
    assert likeness > 0.94
    assert right >= 0.9


@pytest.mark.parametrize("invert", [False, True])
def test_mnist_digits_are_not_changed(digits: ArrayDataset, tmp_path: Path, invert: bool) -> None:
    difference = []
    for i in range(200):
        stored = digits.images[i, 0]
        Image.fromarray(255 - stored if invert else stored).save(tmp_path / "digit.png")
        difference.append(np.abs(digit(tmp_path / "digit.png")[0].numpy() - stored / 255).mean())
    assert np.mean(difference) < 0.006
    assert np.median(difference) < 1e-6


def test_light_border_does_not_decide_the_polarity(digits: ArrayDataset) -> None:
    photos = []
    for i in range(8):
        pixels = np.asarray(photograph(digits.images[i, 0], i)).copy()
        pixels[:, :60] = pixels[-60:] = 250
        photos.append(Image.fromarray(pixels))
    assert compare(photos, digits)[0] > 0.9


@pytest.mark.parametrize("invert", [False, True])
def test_tight_crops_become_mnist_like(digits: ArrayDataset, invert: bool) -> None:
    """The digit touches all four borders: paper is visible between its strokes only."""  # a 1 would be a bar
    known = digits.subset(np.concatenate([np.flatnonzero(digits.targets != 1)[:16], np.arange(16, 10_000)]))
    crops = []
    for i in range(16):
        large = Image.fromarray(known.images[i, 0]).resize((336, 336), Image.Resampling.BICUBIC)
        ink = Image.fromarray(np.where(np.asarray(large) > 110, 255, 0).astype(np.uint8))
        crops.append(Image.eval(ink.crop(ink.getbbox()), lambda value: value if invert else 255 - value))
    assert compare(crops, known)[0] > 0.85


def test_grey_drawing_is_searched_in_one_plane(digits: ArrayDataset) -> None:
    """The fast path and the search in three equal planes give the same ink."""
    for drawn in (digits.images[3, 0], 255 - digits.images[4, 0]):
        pixels = np.repeat(np.kron(drawn, np.ones((5, 5)))[..., None] / 255, 3, axis=2).astype(np.float32)
        planes = _ink._to_working_size(pixels)
        expected = _ink._search_both(planes, _ink._border_paper(planes), local=False)
        np.testing.assert_array_equal(_ink.find_ink(pixels).map, expected.ink)


def test_light_ink_on_dark_board_is_found(digits: ArrayDataset) -> None:
    boards = [np.asarray(photograph(digits.images[i, 0], i)) for i in range(8)]
    assert compare([Image.fromarray(((255 - b) * 0.6 + 20).astype(np.uint8)) for b in boards], digits)[0] > 0.93


def test_specks_are_dropped(digits: ArrayDataset) -> None:
    pixels = np.asarray(photograph(digits.images[0, 0], 0)).copy()
    clean = digit(pixels)
    rng = np.random.default_rng(0)
    for y, x in rng.integers(0, 590, (30, 2)):
        pixels[y : y + 6, x : x + 6] = np.minimum(pixels[y : y + 6, x : x + 6], 40)
    assert correlation(digit(pixels).numpy(), clean.numpy()) > 0.9


def line_drawing(width: int = 3, side: int = 2000) -> Image.Image:
    image = Image.new("L", (side, side), 255)
    corners = [(0.3, 0.2), (0.7, 0.2), (0.4, 0.8)]
    ImageDraw.Draw(image).line([(side * x, side * y) for x, y in corners], fill=0, width=width)
    return image


@pytest.mark.parametrize("width", [3, 20, 120])
def test_stroke_width_becomes_mnist_like(width: int) -> None:
    result = digit(line_drawing(width))[0].numpy()
    assert result.max() == pytest.approx(1)
    fine = np.asarray(Image.fromarray(result).resize((224, 224), Image.Resampling.BICUBIC)).clip(0, 1)
    assert 1.3 < float(stroke_width(torch.from_numpy(fine))) / 8 < 4.3
    rows, columns = np.nonzero(result > 0.3)
    assert 18 <= rows.max() - rows.min() + 1 <= 21  # fills the 20-pixel box
    assert columns.max() - columns.min() + 1 < 17  # and keeps its shape
    y, x = (result.sum(axis=1) @ np.arange(28), result.sum(axis=0) @ np.arange(28)) / result.sum()
    assert abs(y - 14) < 0.3
    assert abs(x - 14) < 0.3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F"])
def test_every_mode_gives_the_same_digit(mode: str, tmp_path: Path) -> None:
    grey = line_drawing(12, 400)
    if mode in ("I;16", "I", "F"):
        deep = np.asarray(grey).astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode])
        image = Image.fromarray(deep * 257 if mode != "F" else deep / 255)
    else:
        image = grey.convert(mode)
    assert image.mode == mode
    assert correlation(digit(image).numpy(), digit(grey).numpy()) > 0.98


@pytest.mark.parametrize("ink", [0, 255])
def test_transparent_drawings_are_found(ink: int) -> None:
    """The shape is in alpha only, for black and for white drawings."""
    grey = line_drawing(12, 400)
    image = Image.new("RGBA", grey.size, (ink, ink, ink, 0))
    image.putalpha(Image.eval(grey, lambda v: 255 - v))
    assert correlation(digit(image).numpy(), digit(grey).numpy()) > 0.98


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    upright = line_drawing(12, 400)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned left: to be turned a quarter clockwise
    upright.rotate(90).save(tmp_path / "phone.jpg", exif=exif)
    assert correlation(digit(tmp_path / "phone.jpg").numpy(), digit(upright).numpy()) > 0.97


def test_other_frames_keep_the_proportions() -> None:
    frame = Preprocess(height=40, width=56, channels=3)(line_drawing(60))
    assert frame.shape == (3, 40, 56)
    assert torch.equal(frame[0], frame[2])
    assert 27 <= int((frame[0] > 0.3).any(dim=1).sum()) <= 30  # 20/28 of 40


def test_border_keeps_the_digit_size(digits: ArrayDataset) -> None:
    wide = Preprocess(height=40, width=40, border=6)
    frame = wide(line_drawing(60))
    assert frame.shape == (1, 40, 40)
    assert torch.equal(frame[:, 6:34, 6:34], digit(line_drawing(60)))
    assert float(frame.sum()) == pytest.approx(float(frame[:, 6:34, 6:34].sum()))
    assert torch.equal(wide(digits.images[0, 0])[:, 6:34, 6:34], digit(digits.images[0, 0]))
    with pytest.raises(ValueError, match="leaves less than 8 pixels"):
        Preprocess(border=11)


def test_preprocessing_is_deterministic_and_in_range(digits: ArrayDataset) -> None:
    photo = photograph(digits.images[3, 0], 3)
    first = digit(photo)
    assert torch.equal(first, digit(photo))
    assert first.dtype == torch.float32
    assert 0 <= first.min() < first.max() <= 1


RNG = np.random.default_rng(0)
BLANKS = {
    "white": np.full((300, 200), 255, np.uint8),
    "black mnist": np.zeros((28, 28), np.uint8),
    "noisy paper": RNG.normal(200, 8, (600, 800, 3)).clip(0, 255).astype(np.uint8),
    "lit paper": (np.linspace(80, 230, 600)[:, None] + RNG.normal(0, 5, (600, 800))).clip(0, 255).astype(np.uint8),
    "table only": (np.where(np.arange(800) < 90, 50, 200) + RNG.normal(0, 4, (600, 800))).astype(np.uint8),
}


@pytest.mark.parametrize("kind", sorted(BLANKS))
def test_blank_pictures_are_refused(kind: str, tmp_path: Path) -> None:
    Image.fromarray(BLANKS[kind]).save(tmp_path / "blank.png")
    with pytest.raises(ValueError, match=r"blank\.png: no digit was found"):
        digit(tmp_path / "blank.png")


@pytest.mark.parametrize("preprocess", [digit, plain], ids=["digit", "plain"])
def test_unusable_files_are_refused(preprocess: Preprocess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "image.png"
    with pytest.raises(FileNotFoundError, match=r"image\.png: expected an image file, found nothing"):
        preprocess(path)
    with pytest.raises(FileNotFoundError, match="found a folder"):
        preprocess(tmp_path)
    path.write_text("not an image")
    with pytest.raises(ValueError, match=r"image\.png: this is not an image"):
        preprocess(str(path))
    buffer = io.BytesIO()
    Image.fromarray(BLANKS["noisy paper"]).save(buffer, "PNG")
    path.write_bytes(buffer.getvalue()[:5000])
    with pytest.raises(ValueError, match=r"image\.png: the image is damaged"):
        preprocess(path)
    Image.new("L", (1, 1)).save(path)
    with pytest.raises(ValueError, match=r"image\.png: .* at least .* 1x1"):
        preprocess(path)
    Image.new("L", (100, 100)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)  # Pillow refuses what is beyond twice its limit
    with pytest.raises(ValueError, match=r"image\.png: the image is too large"):
        preprocess(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((20, 20), np.nan), "400 pixels are NaN"),
        (np.full((20, 20), -1.0), "found -1..-1"),
        (np.zeros((20, 20, 2), np.uint8), r"found \(20, 20, 2\)"),
        (np.zeros((0, 20), np.uint8), r"found \(0, 20\)"),
        (np.zeros(20, np.uint8), r"found \(20,\)"),
        (np.full((20, 20), "x"), "expected numbers"),
    ],
)
def test_bad_arrays_are_refused(array: NDArray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        digit(array)


def test_wrong_type_is_refused() -> None:
    with pytest.raises(ValueError, match="got int"):
        digit(3)  # pyright: ignore[reportArgumentType]


def test_plain_keeps_colours_and_crops_the_middle() -> None:
    pixels = np.zeros((40, 80, 3), np.uint8)
    pixels[:, 20:60] = (255, 128, 0)
    result = Preprocess(style="plain", height=20, width=20, channels=3)(pixels)
    assert result.shape == (3, 20, 20)
    torch.testing.assert_close(result[:, 5, 10], torch.tensor([1.0, 128 / 255, 0.0]))
    assert result[0].min() > 0.8  # what lies beside the middle is cropped away
    grey = plain(pixels)
    assert grey.shape == (1, 28, 28)
    assert grey[0, 14, 14].item() == pytest.approx(0.299 + 0.587 * 128 / 255, abs=1e-4)


def test_plain_antialiases() -> None:
    stripes = np.tile(np.array([0, 255], np.uint8), (280, 140))
    assert plain(stripes).numpy() == pytest.approx(0.5, abs=0.05)


def test_preprocess_is_strict_and_frozen() -> None:
    assert Preprocess.model_validate_json(Preprocess(width=40).model_dump_json()) == Preprocess(width=40)
    for wrong in ({"hight": 28}, {"style": "fancy"}, {"height": 0}, {"channels": 2}):
        with pytest.raises(ValidationError):
            Preprocess.model_validate(wrong)
    with pytest.raises(ValidationError, match="frozen"):
        digit.height = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_choose_joins_parts_that_touch_at_corners() -> None:
    mask = np.zeros((20, 20), dtype=bool)
    mask[4:10, 4] = mask[10:16, 5] = True  # touch at a corner
    mask[2, 18] = True  # a speck far away
    score, digit = choose(mask, mask.astype(np.float32))
    assert score > 0
    assert digit.sum() == 12
    assert not digit[2, 18]


def test_open_image_reads_bytes_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    Image.new("L", (30, 20)).save(path)
    for source in (path, str(path), path.read_bytes()):
        with open_image(source, formats=("PNG",), max_pixels=600) as image:
            assert image.size == (30, 20)
    assert torch.equal(plain(path.read_bytes()), plain(path))


def test_open_image_refuses_bad_files_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "image.png"
    Image.new("L", (30, 20)).save(path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"^the image is too large: 30 x 20, at most 599 pixels are read$"):
        open_image(content, max_pixels=599)
    with pytest.raises(NotAnImage, match=r"image\.png: this is not an image: the formats are JPEG, GIF$"):
        open_image(path, formats=("JPEG", "GIF"))
    with pytest.raises(NotAnImage, match=r"^these 4 bytes are not an image: the formats are PNG, JPEG"):
        open_image(b"1234")
    with pytest.raises(ValueError, match=r"^the image: the image is damaged or incomplete"):
        plain(content[:45])
    with pytest.raises(FileNotFoundError, match="expected an image file, found a folder"):
        open_image(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    with pytest.raises(ValueError, match=r"^the image is too large to be decoded safely"):
        open_image(content)
