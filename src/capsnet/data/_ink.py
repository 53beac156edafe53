"""Find the ink in a picture of a digit: a soft map, 1 on the stroke and 0 elsewhere.

Made for photos of a pen digit on paper: uneven light, shadows, noise, JPEG blocks, ruled lines, table edges. The
picture is divided by a smooth fit of the paper; a morphological closing removes what is wider than any stroke; then
come a threshold relative to the ink's contrast and the choice of components. Dark and light ink are tried. A digit that
fills its picture is found in another way (``_closeup``), if this one finds nothing or only a part of it.
"""

from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsnet.data._closeup import find_close_up
from capsnet.data._components import choose
from capsnet.data._pixels import Pixels, Plane, resize

WORK = 384  # longer side at which ink is looked for: a digit a tenth of the picture high still has 38 pixels
FAINTEST = 0.08  # contrast below which nothing counts as ink
AGREE = 0.9  # of a close-up's ink, if the digit was found without it
LEAST = 0.2  # of it: a photo's ink with less is believed, since the close-up may be a shadow or the paper itself,
PART = 1.0, 1.55  # unless it is so many times as dark as the close-up's ink: then it is a part of it
SMALLEST = 40  # pixels at working size: less is a speck, not a digit


class _Found(NamedTuple):
    score: float  # 0: nothing
    ink: Plane
    dark: bool


NOTHING = _Found(0.0, np.zeros((0, 0), np.float32), True)


class Ink(NamedTuple):
    """Where the digit is, and how it was found."""

    map: Plane  # soft: 1 on the stroke
    dark: bool  # darker than the paper
    kind: str  # "drawing", "photo" or "close-up"


def find_ink(pixels: Pixels) -> Ink:
    """The ink of the digit, at working size or that of close-ups; ValueError if there is no digit.

    Shapes: (H, W, 3) -> (h, w)
    """
    grey = bool((pixels[..., :1] == pixels).all())
    pixels = _to_working_size(pixels[..., :1] if grey else pixels)  # one plane is enough for a grey drawing
    drawn = _search_both(pixels, _border_paper(pixels), local=False) if _is_two_tone(pixels) else NOTHING
    if drawn.score > 0 and not _is_border_mixed(pixels):
        return Ink(drawn.ink, drawn.dark, "drawing")
    close = find_close_up(pixels)
    found, kind = drawn, "drawing"
    if drawn.score <= 0:
        pixels = np.repeat(pixels, 3, axis=2) if grey else pixels
        found, kind = _search_both(pixels, _fit_paper(pixels), local=True), "photo"
    if found.score > 0 and (close is None or not close.clear or _agree(pixels, found.ink, close.ink, kind)):
        return Ink(found.ink, found.dark, kind)
    if close is None:
        raise ValueError("no digit was found: the image is blank, or the ink is too faint to tell from the paper")
    return Ink(close.ink, close.dark, "close-up")


def _is_border_mixed(pixels: Pixels) -> bool:
    """Whether the border has more than paper: then the paper may be taken for ink."""
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return bool((np.abs(border - np.median(border, axis=0)) > 0.1).any())


def _is_speck(ink: Plane) -> bool:
    """Whether ink is less than a tenth of the picture high and wide."""
    rows, columns = (np.flatnonzero((ink > 0.5).any(axis=axis)) for axis in (1, 0))
    return len(rows) == 0 or max(np.ptp(rows), np.ptp(columns)) < 0.1 * max(ink.shape)


def _agree(pixels: Pixels, ink: Plane, close: Plane, kind: str) -> bool:
    """Whether ink has most of a close-up's, or in a photo so little that the close-up found no digit."""
    size = (close.shape[0], close.shape[1])
    small = resize(ink, size, resample=Image.Resampling.BOX)
    share = float(np.minimum(small, close).sum()) / max(float(close.sum()), 1e-6)
    if share >= AGREE or kind != "photo" or share >= LEAST or _is_speck(ink):
        return share >= AGREE
    grey = resize(pixels.mean(axis=2), size, resample=Image.Resampling.BOX)
    return not PART[0] <= _darkness(grey, small) / (_darkness(grey, close) or np.inf) < PART[1]


def _darkness(grey: Plane, ink: Plane) -> float:
    """How much darker ink is than the rest of the picture; negative if it is lighter, 0 if nothing is ink."""
    stroke, paper = grey[ink > 0.5], grey[ink < 0.05]
    return float(np.median(paper) - np.median(stroke)) if stroke.size and paper.size else 0.0


def _search_both(pixels: Pixels, papers: Pixels, *, local: bool) -> _Found:
    """Try dark ink and light ink, and return the one with the higher score."""
    dark, light = _search(pixels, papers, local), _search(1 - pixels, 1 - papers, local)
    return _Found(*dark, True) if dark[0] >= light[0] else _Found(*light, False)


def _border_paper(pixels: Pixels) -> Pixels:
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return np.broadcast_to(np.median(border, axis=0), pixels.shape).astype(np.float32)


def _is_two_tone(pixels: Pixels) -> bool:
    """A drawing or a clean crop rather than a photo: most pixels are the border's colour, the others far from it.

    In a drawing the paper has the border's colour, even if the digit is cropped too tightly for a fit.
    """
    distance = _largest(np.abs(pixels - _border_paper(pixels)))
    far = float(np.quantile(distance, 0.99))
    near = float((distance < 0.04).mean())
    return far > 0.3 and near > 0.36 and near + float((distance > 0.7 * far).mean()) > 0.6


def _search(pixels: Pixels, papers: Pixels, local: bool) -> tuple[float, Plane]:
    """Search for ink darker than ``papers`` and, if ``local``, than its surroundings: a score (0: none) and the ink."""
    # the colour with the most contrast counts; in dark areas differences are amplified at most threefold
    flat = 1 - _largest((papers - pixels) / np.maximum(papers, 0.3))
    contrast, noise = _stroke_contrast(flat, local)
    if not (contrast > FAINTEST).any():  # as one of dark and light ink in every drawing
        return 0.0, contrast
    contrast = _without_rules(contrast)
    floor = max(FAINTEST, 5 * noise)
    score, mask = _digit_mask(contrast, max(floor, 0.3 * _centre_peak(contrast)))
    if score > 0:
        score, mask = _digit_mask(contrast, max(floor, 0.4 * float(np.quantile(contrast[mask], 0.8))))
    if score <= 0 or mask.mean() > 0.5:  # a mask of most of the picture is a sheet of paper on a dark table
        return 0.0, contrast
    from scipy.ndimage import maximum_filter

    level = float(np.quantile(contrast[mask], 0.8))
    return score, np.clip((contrast - 0.25 * level) / (0.5 * level), 0, 1) * maximum_filter(mask, 5)


def _to_working_size(pixels: Pixels) -> Pixels:
    height, width = pixels.shape[:2]
    factor = WORK / max(height, width)
    size = (max(8, round(height * factor)), max(8, round(width * factor)))
    resample = Image.Resampling.BICUBIC if factor > 1 else Image.Resampling.BOX
    return np.clip(resize(pixels, size, resample=resample), 0, 1)


def _fit_paper(pixels: Pixels) -> Pixels:
    """Fit brightness as a quadratic in (x, y) per colour, robustly: ink, tables and specks are outliers to be ignored.

    A quadratic is stiff enough not to follow a stroke, and bends enough for a lamp, a window and a vignette.
    """
    height, width = pixels.shape[:2]
    small = resize(pixels, (max(8, height // 6), max(8, width // 6)), resample=Image.Resampling.BOX)
    terms, centre = _terms(small.shape[0], small.shape[1])
    values = small.reshape(-1, 3).astype(np.float64)
    grey = values.mean(axis=1)
    weight = centre * np.exp(-0.5 * ((grey - _weighted_median(grey, centre)) / 0.15) ** 2)
    for _ in range(12):
        weighted = terms * weight[:, None]
        normal = np.einsum("ni,nj->ij", weighted, terms) + 1e-9 * np.eye(terms.shape[1])  # einsum: no BLAS threads
        fit = np.linalg.solve(normal, np.einsum("ni,nc->ic", weighted, values))
        error = grey - np.einsum("ni,i->n", terms, fit.mean(axis=1))
        spread = max(0.01, 1.4826 * _weighted_median(np.abs(error), centre))
        weight = centre * np.clip(1 - (error / (4 * spread)) ** 2, 0, None) ** 2 + 1e-9  # Tukey's biweight
    full, _ = _terms(height, width)
    return np.clip(np.einsum("ni,ic->nc", full, fit).reshape(height, width, 3), 0, 1).astype(np.float32)


@lru_cache(maxsize=8)
def _terms(height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The monomials up to degree 2 on [-1, 1]^2, and a weight that favours the middle of the picture."""
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    y, x = y.ravel(), x.ravel()
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1), np.exp(-0.5 * (x * x + y * y) / 0.8**2)


def _weighted_median(values: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def _stroke_contrast(flat: Plane, local: bool) -> tuple[Plane, float]:
    """How much darker than the paper each pixel is, and the noise of that: (H, W) in [0, 1], one number.

    A stroke is darker than the fitted paper *and* darker than its surroundings. The surroundings are a closing: it
    fills what is narrower than a third of the picture, such as strokes, and leaves what is wider, such as hard shadows
    and tables. The inside of a 0 is paper by the fit.
    """
    from scipy.ndimage import gaussian_filter, grey_closing

    smooth = gaussian_filter(flat, 1.0, mode="nearest", radius=3)
    darker = 1 - smooth
    middle = float(np.median(darker))
    below = (middle - darker)[darker < middle]
    noise = 1.4826 * float(np.median(below)) if below.size else 0.0
    contrast = darker - min(middle, 0.05)
    if local:
        radius = round(0.16 * min(flat.shape))
        closed = np.maximum(grey_closing(smooth, 2 * radius + 1, mode="nearest"), 0.05)
        surround = (closed - smooth) / closed
        contrast = np.minimum(contrast, surround - min(float(np.median(surround)), 3 * noise))
    return np.clip(contrast, 0, 1, dtype=np.float32), noise if local else 0.0


def _without_rules(contrast: Plane) -> Plane:
    """Remove the lines of ruled and squared paper: what four fifths of a row or column share is not part of a digit.

    Only where it is faint compared with the ink: a tightly cropped 1 also fills its columns.
    """
    peak = _centre_peak(contrast)
    for axis in (0, 1):
        if (np.count_nonzero(contrast, axis=axis) < 0.75 * contrast.shape[axis]).all():
            continue  # the quantiles are 0
        rule = np.quantile(contrast, 0.2, axis=axis, keepdims=True)
        contrast = np.clip(contrast - np.where(rule < 0.5 * peak, rule, 0), 0, 1)
    return contrast


def _centre_peak(contrast: Plane) -> float:
    """The contrast of the darkest strokes: the upper half per cent, counted mostly in the middle of the picture."""
    _, centre = _terms(*contrast.shape)
    visible = contrast.ravel() > FAINTEST
    values, weight = contrast.ravel()[visible], centre[visible]
    order = np.argsort(-values)
    rank = int(np.searchsorted(np.cumsum(weight[order]), 0.005 * centre.sum()))
    return float(values[order][rank]) if rank < len(values) else 0.0


def _digit_mask(contrast: Plane, threshold: float) -> tuple[float, NDArray[np.bool_]]:
    """The score and the mask of the components above a threshold that make up the digit."""
    mask = contrast > threshold
    if int(mask.sum()) < SMALLEST:
        return 0.0, mask
    score, digit = choose(mask, contrast)
    return (score if int(digit.sum()) >= SMALLEST else 0.0), digit


def _largest(colours: NDArray[np.floating]) -> NDArray[np.float32]:
    """The largest of each pixel's values, (h, w, C) -> (h, w), thirty times faster than ``max(axis=2)``."""
    return reduce(np.maximum, np.moveaxis(colours, 2, 0))
