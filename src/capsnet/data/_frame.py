"""Frame ink as MNIST does: scaled into a 20x20 box with its aspect ratio kept, centred by mass in 28x28.

The work is done at eight times the resolution of the result, so that stroke width, position and antialiasing are
accurate to a fraction of a pixel. Other frame sizes keep the same proportions.
"""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from capsnet.data._pixels import Plane, resize

FINE = 8
BOX = 20 / 28  # the part of the frame that the digit fills
STROKE = (1.6, 3.8)  # width of nine in ten MNIST strokes, pixels of a 28x28 frame; others are thickened or thinned


def frame_ink(ink: Plane, height: int, width: int) -> Plane:
    """Crop, scale, adjust the stroke, centre. Shapes: (h, w) -> (height, width), with peak 1"""
    crop = _crop(ink)
    box = (BOX * height * FINE, BOX * width * FINE)
    fine = _fit(crop, box, 0.0)
    unit = FINE * min(height, width) / 28  # one MNIST pixel, in fine pixels
    measured = float(stroke_width(torch.from_numpy(fine)))
    radius = (float(np.clip(measured, STROKE[0] * unit, STROKE[1] * unit)) - measured) / 2
    if abs(radius) >= 0.5:
        fine = _crop(_grow(_fit(crop, box, max(radius, 0.0)), radius))
        if radius < 0:
            fine = _fit(fine, box, 0.0)
    return _place(fine, height, width)


def stroke_width(ink: Tensor) -> Tensor:
    """Twice the area over the length of the outline, both soft: the mean width of the strokes. (..., H, W) -> (...)

    The outline is the picture's total variation, which by the coarea formula is the length of its contours averaged
    over all levels of grey. Ends count as outline: an open stroke of length l and width t measures t / (1 + t / l).
    Below two pixels, where no pixel is quite full, a stroke reads too thick: one of 1.5 as 1.7.
    """
    framed = torch.nn.functional.pad(ink, (1, 1, 1, 1))
    left, right = framed[..., :-1], framed[..., 1:]
    dx = (right - left)[..., :-1, :] / 2 + (right - left)[..., 1:, :] / 2  # between four pixels: the tightest gradient
    dy = (left + right)[..., 1:, :] / 2 - (left + right)[..., :-1, :] / 2
    outline = (dx.square() + dy.square()).sqrt().sum(dim=(-2, -1))
    return 2 * ink.sum(dim=(-2, -1)) / outline.clamp_min(1e-9)


def extent(ink: Plane) -> tuple[int, int, int, int]:
    """Top, left, bottom and right of the ink; of a picture without any, of all of it."""
    rows, columns = np.nonzero((ink > 0.5).any(axis=1))[0], np.nonzero((ink > 0.5).any(axis=0))[0]
    if not len(rows):
        return 0, 0, ink.shape[0], ink.shape[1]
    return int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1


def _crop(ink: Plane) -> Plane:
    top, left, bottom, right = extent(ink)
    return np.ascontiguousarray(ink[top:bottom, left:right])


def _fit(crop: Plane, box: tuple[float, float], margin: float) -> Plane:
    """Scale to fit the box less a margin, into which the stroke can grow."""
    pad = max(0, int(np.ceil(margin)))
    factor = min((box[0] - 2 * margin) / crop.shape[0], (box[1] - 2 * margin) / crop.shape[1])
    size = (max(1, round(crop.shape[0] * factor)), max(1, round(crop.shape[1] * factor)))
    return np.pad(np.clip(resize(crop, size), 0, 1), pad)


def _grow(ink: Plane, radius: float) -> Plane:
    """Widen strokes by a disc of that radius, or thin them if it is negative: rows of the disc, one max filter each."""
    from scipy.ndimage import maximum_filter1d

    if radius < 0:
        return 1 - _grow(1 - ink, -radius)
    reach = int(radius)
    padded = np.pad(ink, ((reach, reach), (0, 0)))
    grown = ink
    for dy in range(-reach, reach + 1):
        rows = padded[reach + dy : reach + dy + len(ink)]
        grown = np.maximum(
            grown, maximum_filter1d(rows, 2 * int((radius**2 - dy**2) ** 0.5) + 1, axis=1, mode="nearest")
        )
    return grown


def _place(fine: Plane, height: int, width: int) -> Plane:
    """Place the fine picture on a fine frame with its centre of mass in the middle, then average down.

    MNIST's middle is the centre of pixel (14, 14), half a pixel beyond that of the frame.
    """
    frame = np.zeros((height * FINE, width * FINE), dtype=np.float32)
    offsets = []
    for axis, length in enumerate(frame.shape):
        profile = fine.sum(axis=1 - axis)
        mass = float((profile * (np.arange(len(profile)) + 0.5)).sum() / max(float(profile.sum()), 1e-6))
        offsets.append(int(np.clip(round(length / 2 + FINE / 2 - mass), 0, length - len(profile))))
    top, left = offsets
    frame[top : top + fine.shape[0], left : left + fine.shape[1]] = fine
    small = resize(frame, (height, width), resample=Image.Resampling.BOX)
    return np.clip(small / max(float(small.max()), 1e-6), 0, 1)
