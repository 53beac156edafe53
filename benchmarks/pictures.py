"""How pictures of digits are read: photographs made of validation digits, over border, blur, pen, ink, light and size.

    python -m benchmarks.pictures [MODEL] [--pictures 2000] [--seed 0] [--save FOLDER]

Each picture takes one level of every factor, drawn by its number: picture 7 is the same in every run. The tables have
the share of pictures that are refused (no digit found), read wrongly and read rightly, by level of each factor, and
rightly by border and blur. No test digit is used.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsnet import data
from capsnet.data import keyed
from capsnet.inference.prediction import Skipped, predictions

FINE = 120  # pixels of the digit's longer side while it is drawn
UNIT = FINE / 20  # one pixel of MNIST
LEVELS = {
    "border": (0, 2, 5, 10, 25, 60),  # on each side, % of the digit's longer side
    "blur": (0, 2, 4, 7),  # standard deviation, % of it: 5 % is one pixel of MNIST
    "pen": ("thin", "as it is", "thick"),
    "ink": ("dark", "light"),
    "light": ("even", "uneven", "uneven, noise"),
    "size": (20, 56, 200),  # pixels of the digit's longer side
}
PENS = {"thin": -0.8, "as it is": 0.0, "thick": 1.6}  # how much wider the stroke is, in pixels of MNIST


class Photograph(NamedTuple):
    image: Image.Image
    label: int
    levels: dict[str, int | str]


def photographs(numbers: Iterable[int], seed: int = 0) -> Iterator[Photograph]:
    """The pictures of these numbers."""
    digits = data.load("mnist", "validation")
    assert isinstance(digits, data.ArrayDataset)
    for number in numbers:
        draws = keyed.uniform(seed, 0, [number], len(LEVELS) + 1, "pictures")[0]
        which = int(draws[-1] * len(digits))
        levels = {
            factor: values[int(draw * len(values))]
            for (factor, values), draw in zip(LEVELS.items(), draws[:-1], strict=True)
        }
        image = photograph(digits.images[which, 0], seed * 10**9 + number, **levels)
        yield Photograph(image, int(digits.targets[which]), levels)


def photograph(
    digit: NDArray[np.uint8], key: int, *, border: float, blur: float, pen: str, ink: str, light: str, size: int
) -> Image.Image:
    """A digit (28, 28) as a grey picture."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(key)
    shape = _drawn(digit, PENS[pen])
    beyond = round(4 * blur * FINE / 100)  # for the blur, and cut off afterwards
    stroke = np.pad(shape, round(border * FINE / 100) + beyond)
    if blur:
        stroke = gaussian_filter(stroke, blur * FINE / 100)
    stroke = stroke[beyond : stroke.shape[0] - beyond, beyond : stroke.shape[1] - beyond]
    height, width = stroke.shape
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)[None]
    angle = rng.uniform(0, 2 * np.pi)
    bright = 0.9 - 0.15 * (light != "even") * (1 + np.cos(angle) * x + np.sin(angle) * y)
    picture = bright * (1 - 0.8 * stroke)
    factor = size / FINE
    scaled = Image.fromarray(picture.astype(np.float32)).resize(
        (max(8, round(width * factor)), max(8, round(height * factor))), Image.Resampling.BOX
    )
    values = np.asarray(scaled) + 0.04 * (light == "uneven, noise") * rng.standard_normal(scaled.size[::-1])
    values = np.clip(values, 0, 1)
    return Image.fromarray(np.round(255 * (values if ink == "dark" else 1 - values)).astype(np.uint8))


def _drawn(digit: NDArray[np.uint8], wider: float) -> NDArray[np.float32]:
    """The digit at a fine resolution with hard edges, its stroke wider by so many pixels of MNIST, cropped tightly."""
    from scipy.ndimage import distance_transform_edt

    side = round(28 * UNIT)
    large = np.asarray(Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)) > 110
    large = np.pad(large, 2 * round(UNIT))
    inside, outside = distance_transform_edt(large), distance_transform_edt(~large)
    distance = np.asarray(outside) - np.asarray(inside)
    shape = distance < max(wider / 2 * UNIT, float(distance.min()) + 2)  # something is left of a thin stroke
    rows, columns = np.nonzero(shape.any(axis=1))[0], np.nonzero(shape.any(axis=0))[0]
    crop = shape[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    factor = FINE / max(crop.shape)
    size = (max(1, round(crop.shape[1] * factor)), max(1, round(crop.shape[0] * factor)))
    return np.asarray(Image.fromarray(crop.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))


class Reading(NamedTuple):
    outcome: str  # refused, wrong or right
    levels: dict[str, int | str]
    label: int


def read(pictures: list[Photograph], model: str) -> list[Reading]:
    answers = predictions([np.asarray(picture.image) for picture in pictures], model, skip=True)
    outcomes = []
    for picture, answer in zip(pictures, answers, strict=True):
        if isinstance(answer, Skipped):
            outcome = "refused"
        else:
            outcome = "right" if answer.label == str(picture.label) else "wrong"
        outcomes.append(Reading(outcome, picture.levels, picture.label))
    return outcomes


def table(readings: list[Reading]) -> list[str]:
    """Lines of Markdown."""
    lines = ["| | pictures | refused | wrong | right |", "|---|---|---|---|---|"]

    def row(name: str, some: list[Reading]) -> str:
        counts, n = Counter(one.outcome for one in some), max(1, len(some))
        cells = " | ".join(f"{100 * counts[kind] / n:.1f} %" for kind in ("refused", "wrong", "right"))
        return f"| {name} | {len(some):,} | {cells} |"

    lines.append(row("all", readings))
    for factor, values in LEVELS.items():
        unit = {"border": " %", "blur": " %", "size": " pixels"}.get(factor, "")
        lines += [row(f"{factor}: {v}{unit}", [r for r in readings if r.levels[factor] == v]) for v in values]
    lines += ["", "| right, by border and blur | " + " | ".join(f"blur {blur} %" for blur in LEVELS["blur"]) + " |"]
    lines.append("|---|" + "---|" * len(LEVELS["blur"]))
    for border in LEVELS["border"]:
        cells = []
        for blur in LEVELS["blur"]:
            some = [r.outcome == "right" for r in readings if (r.levels["border"], r.levels["blur"]) == (border, blur)]
            cells.append(f"{100 * float(np.mean(some)):.1f} %" if some else "-")
        lines.append(f"| border {border} % | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="efficient-mnist")
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="write the pictures here, too")
    args = parser.parse_args()
    made = list(photographs(range(args.pictures), args.seed))
    if args.save is not None:
        args.save.mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate(made):
            picture.image.save(args.save / f"{number:05}-{picture.label}.png")
    readings = read(made, args.model)
    print(f"{args.model}, {len(made):,} photographs of validation digits, seed {args.seed}\n")
    print("\n".join(table(readings)))


if __name__ == "__main__":
    main()
