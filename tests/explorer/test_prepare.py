"""The page's own preparation of pictures (it has no server to ask) beside that of the library."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from benchmarks.pictures import photograph, photographs
from capsnet.data import ArrayDataset, Preprocess
from tests.data.photos import bordered
from tests.explorer.browser import Visit
from tests.explorer.conftest import wire

SAME = 1e-4
PREPARE = """async ([home, cases]) => {
  const { prepared } = await import(`${home}static/js/runtime/prepare.js`);
  const { fromWire } = await import(`${home}static/js/pixels.js`);
  return cases.map(([picture, how]) => {
    const { height, width, channels, bytes } = fromWire(picture);
    const plane = (c) => Float32Array.from({ length: height * width }, (_, n) => bytes[n * channels + c] / 255);
    const planes = Array.from({ length: channels }, (_, c) => ({ height, width, data: plane(c) }));
    return prepared(planes, how)?.map(({ data }) => Array.from(data)) ?? null;
  });
}"""


def stroke(width: int, *points: tuple[float, float]) -> NDArray[np.uint8]:
    """White on black, as the page's canvas sends it."""
    image = Image.new("L", (896, 896))
    ImageDraw.Draw(image).line([(896 * x, 896 * y) for x, y in points], fill=255, width=4 * width, joint="curve")
    return np.asarray(image.resize((224, 224), Image.Resampling.LANCZOS))


def photo() -> NDArray[np.uint8]:
    """Dark ink on paper under uneven light, with noise and colours."""
    y, x = np.mgrid[0:240, 0:200] / 240
    ink = np.asarray(Image.fromarray(stroke(9, (0.3, 0.3), (0.7, 0.3), (0.5, 0.75))).resize((200, 240))) / 255
    grey = (170 + 50 * x - 40 * x * y) * (1 - 0.6 * ink) + np.random.default_rng(0).normal(0, 3, ink.shape)
    return np.clip(grey[:, :, None] * [1, 0.9, 1.05], 0, 255).astype(np.uint8)


def close_up(digit: NDArray[np.uint8], **other: Any) -> NDArray[np.uint8]:
    """A digit that touches the borders, with soft edges."""
    how: dict[str, Any] = {"border": 0, "blur": 4, "pen": "as it is", "ink": "dark", "light": "even", "size": 56}
    return np.asarray(photograph(digit, 0, **(how | other)))


def test_pictures_are_prepared_as_by_the_library(visit: Visit, digits: ArrayDataset) -> None:
    digit, seven = {"style": "digit"}, ((0.2, 0.2), (0.8, 0.25), (0.45, 0.8))
    test = digits.batch(np.array([1])).images[0, 0].mul(255).round().byte().numpy()
    cases: list[tuple[NDArray[np.uint8], dict[str, Any]]] = [
        (stroke(3, *seven), digit),  # thickened
        (stroke(17, *seven), digit),
        (stroke(34, *seven), digit),  # thinned
        (255 - stroke(17, *seven)[:, :170], digit),
        (stroke(17, (0.5, 0.1), (0.5, 0.9)), {"style": "digit", "height": 40, "width": 40, "border": 6}),
        (photo(), digit),
        (close_up(test), digit),
        (close_up(test, ink="light", light="uneven"), digit),
        (np.asarray(next(photographs([3])).image), digit),  # the search for photos finds the darkest part of it
        (bordered(digits.batch(np.array([9])).images[0, 0].mul(255).round().byte().numpy()), digit),
        (test, digit),
        (255 - test, {"style": "digit", "height": 40, "width": 40, "border": 6}),
        (photo(), {"style": "plain", "height": 36, "width": 30}),
        (photo(), {"style": "plain", "channels": 3, "fit": "pad"}),
        (photo(), {"style": "plain", "fit": "stretch"}),
    ]
    settings = [Preprocess(**how) for _, how in cases]
    asked = [(wire(picture), how.model_dump()) for (picture, _), how in zip(cases, settings, strict=True)]
    answers = visit.page.evaluate(PREPARE, [visit.home, asked])
    for (picture, _), how, answer in zip(cases, settings, answers, strict=True):
        expected = how(picture).numpy()
        np.testing.assert_allclose(np.array(answer).reshape(expected.shape), expected, atol=SAME, err_msg=str(how))


def test_blank_and_faint_pictures_have_no_digit(visit: Visit) -> None:
    faint = np.full((64, 64), 128, dtype=np.uint8)
    faint[20:40, 30:34] = 130
    cases = [(wire(picture), Preprocess().model_dump()) for picture in (np.zeros((64, 64), np.uint8), faint)]
    assert visit.page.evaluate(PREPARE, [visit.home, cases]) == [None, None]
