"""Find the ink in a close-up: a picture that a digit fills nearly or quite up to its borders, with hard or soft edges.

There is no margin from which the paper could be told, and a stroke may be as wide as the paper beside it. What is known
is that there are two tones under even or slowly changing light: one on the strokes, one on the paper. Otsu's threshold
separates them, in turn with a plane of light that both share. Ink is the one in one piece that has less of the border.
"""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsnet.data._components import choose
from capsnet.data._pixels import Pixels, Plane, resize

SMALL = 128  # longer side: a digit that fills it has more pixels than the network's frame
TURNS = 4
FAINTEST = 0.08  # difference of the tones
CLEAR = 2.8  # of the tones' difference to the spread within them; Otsu's halves of noise have 2.65
STRONG = 0.15  # difference of the tones that noise does not have: then
SOFT = 2.4  # is enough, as soft edges have it
LIGHT = 0.9  # of the picture's variance, if explained by a quadratic: that is a lamp or a window, not ink
MOST = 0.5  # of the picture may be ink; more is a sheet of paper on a table, or
FULL = 0.75  # a thick pen, if the digit's height and width are most of the picture's:
WIDE = 0.8
REACH = 0.5  # of the picture's longer side at least, to be a close-up


class CloseUp(NamedTuple):
    ink: Plane
    dark: bool  # darker than the paper
    clear: bool  # the tones are well apart: believed against another search


def find_close_up(pixels: Pixels) -> CloseUp | None:
    """The ink of a digit that fills its picture, or None if this is no such picture. (H, W, C) -> (h, w)"""
    from scipy.ndimage import gaussian_filter, maximum_filter

    plane = pixels[..., int(np.argmax(pixels.std(axis=(0, 1))))]  # the colour with the most contrast
    factor = min(1.0, SMALL / max(plane.shape))
    size = (max(8, round(plane.shape[0] * factor)), max(8, round(plane.shape[1] * factor)))
    small = np.asarray(gaussian_filter(resize(plane, size, resample=Image.Resampling.BOX), 1, mode="nearest", radius=3))
    tones = _two_tones(small.astype(np.float32))
    if tones is None:
        return None
    flat, mask, clear = tones
    dark = _likely_ink(mask) >= _likely_ink(~mask)
    flat, mask = (flat, mask) if dark else (1 - flat, ~mask)
    paper = float(np.quantile(flat[~mask], 0.6))
    contrast = np.clip(paper - flat, 0, 1).astype(np.float32)
    score, digit = choose(contrast > 0.4 * float(np.quantile(contrast[mask], 0.8)), contrast, whole=True)
    if score <= 0 or not _is_plausible(digit):
        return None
    level = float(np.quantile(contrast[digit], 0.8))
    return CloseUp(np.clip((contrast - 0.25 * level) / (0.5 * level), 0, 1) * maximum_filter(digit, 3), dark, clear)


def _is_plausible(digit: NDArray[np.bool_]) -> bool:
    """Large enough for a close-up, and not a sheet of paper on a table."""
    rows, columns = np.nonzero(digit.any(axis=1))[0], np.nonzero(digit.any(axis=0))[0]
    sides = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
    if max(sides) < REACH * max(digit.shape):
        return False
    if max(sides) > 2.5 * min(sides):
        return True  # a 1
    wide = sides[0] >= WIDE * digit.shape[0] and sides[1] >= WIDE * digit.shape[1]
    fills = wide and digit.sum() < 0.8 * sides[0] * sides[1]
    return float(digit.mean()) <= (FULL if fills else MOST)


def _two_tones(values: Plane) -> tuple[Plane, NDArray[np.bool_], bool] | None:
    """The picture without its plane of light, where it is dark, and if that is clear; None if it has not two tones."""
    height, width = values.shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    one, spread = np.ones_like(x), float(values.var())
    bent = _fit(values, one, x, y, x * x, x * y, y * y)
    if spread < 1e-6 or 1 - float((values - bent).var()) / spread > LIGHT:
        return None
    flat = values
    dark = flat < _otsu(flat)
    for _ in range(TURNS):
        flat = values - _fit(values, one, x, y, dark.astype(np.float64), drawn=(1, 2))
        dark = flat < _otsu(flat)
    light, deep = float(flat[~dark].mean()), float(flat[dark].mean())
    within = float(np.sqrt(np.mean((flat - np.where(dark, deep, light)) ** 2)))
    clear = (light - deep) / max(within, 1e-6)
    if light - deep < FAINTEST or clear < (SOFT if light - deep > STRONG else CLEAR):
        return None
    return flat.astype(np.float32), dark, clear >= CLEAR


def _likely_ink(mask: NDArray[np.bool_]) -> float:
    """Ink leaves most of the border to the paper, and most of it is one piece."""
    from scipy.ndimage import label

    labels, count = cast("tuple[NDArray[np.int32], int]", label(mask, structure=np.ones((3, 3))))
    largest = np.bincount(labels.ravel())[1:].max() / mask.sum() if count else 0.0
    ring = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
    return (1 - float(ring.mean())) * float(largest)


def _fit(values: Plane, *terms: NDArray[np.float64], drawn: tuple[int, ...] = ()) -> NDArray[np.float64]:
    """The least-squares fit of a picture by some terms, or the part of it by those that are ``drawn``."""
    columns = np.stack([term.ravel() for term in terms], axis=1)
    normal = np.einsum("ni,nj->ij", columns, columns) + 1e-9 * np.eye(len(terms))  # einsum: no BLAS threads
    fit = np.linalg.solve(normal, np.einsum("ni,n->i", columns, values.ravel().astype(np.float64)))
    shown = list(drawn) or list(range(len(terms)))
    return np.einsum("ni,i->n", columns[:, shown], fit[shown]).reshape(values.shape)


def _otsu(values: NDArray[np.floating]) -> float:
    """The threshold with the largest variance between what is below and above it."""
    low, high = float(values.min()), float(values.max())
    counts, edges = np.histogram(values, 128, (low, max(high, low + 1e-6)))
    middle = (edges[:-1] + edges[1:]) / 2
    below, total = np.cumsum(counts)[:-1], np.cumsum(counts * middle)
    above = values.size - below
    between = below * above * (total[:-1] / np.maximum(below, 1) - (total[-1] - total[:-1]) / np.maximum(above, 1)) ** 2
    return float(edges[1 + int(np.argmax(between))])
