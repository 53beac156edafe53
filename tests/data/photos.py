"""Synthetic photographs of real digits on paper."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def photograph(
    digit: NDArray[np.uint8],
    seed: int,
    *,
    size: tuple[int, int] = (800, 600),
    noise: float = 0.03,
    ruled: float = 0.0,
    table: bool = False,
    thin: bool = False,
) -> Image.Image:
    """Write ``digit`` (28, 28) in dark ink on coloured paper, off the middle, badly lit, saved as JPEG."""
    rng = np.random.default_rng(seed)
    height, width = size
    side = int(rng.uniform(0.35, 0.75) * min(size))
    ink = np.asarray(Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32) / 255
    ink = np.clip((ink - 0.35) / 0.3, 0, 1).astype(np.float32)
    if thin:
        ink = outline_middle(ink)
    mask = np.zeros(size, dtype=np.float32)
    top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
    middle = (np.array([height, width]) - side) / 2
    top, left = int(0.5 * (top + middle[0])), int(0.5 * (left + middle[1]))
    mask[top : top + side, left : left + side] = ink
    paper = np.array([0.92, 0.90, 0.84]) + rng.uniform(-0.08, 0.08, 3)
    pen = np.array([0.15, 0.17, 0.3]) + rng.uniform(-0.1, 0.1, 3)
    y, x = np.linspace(-1, 1, height, dtype=np.float32)[:, None], np.linspace(-1, 1, width, dtype=np.float32)[None]
    picture = np.tile(paper.astype(np.float32), (height, width, 1))
    if ruled:
        lines = (np.arange(height) % (height // 12)) < 3
        picture[lines] -= ruled * np.array([0.8, 0.6, 0.3])
    if table:
        picture[:, : width // 10] = [0.25, 0.15, 0.1]
    picture = picture * (1 - mask[:, :, None]) + pen.astype(np.float32) * mask[:, :, None]
    angle = rng.uniform(0, 2 * np.pi)
    light = 0.75 + 0.22 * (float(np.cos(angle)) * x + float(np.sin(angle)) * y) - 0.12 * (x * x + y * y)
    picture = picture * light[:, :, None] + noise * rng.standard_normal(picture.shape, np.float32)
    buffer = io.BytesIO()
    Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8)).save(buffer, "JPEG", quality=75)
    return Image.open(io.BytesIO(buffer.getvalue()))


def bordered(digit: NDArray[np.uint8], seed: int = 9) -> NDArray[np.uint8]:
    """A small photograph with a white border on two sides."""
    pixels = np.array(photograph(digit, seed, size=(200, 160)))
    pixels[:, :20] = pixels[-20:] = 250
    return pixels


def outline_middle(ink: NDArray[np.float32]) -> NDArray[np.float32]:
    """Thin a thick shape to a line of a few pixels."""
    distance = np.zeros_like(ink)
    layer = ink > 0.5
    while layer.any():
        distance += layer
        around = np.pad(layer, 1)
        layer = layer & around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    ridge = np.ones_like(layer)
    for dy, dx in ((0, 1), (1, 0)):
        before, after = np.roll(distance, (dy, dx), (0, 1)), np.roll(distance, (-dy, -dx), (0, 1))
        ridge &= (distance >= before) & (distance >= after)
    ridge &= distance > 0
    grown = ridge | np.roll(ridge, 1, 0) | np.roll(ridge, 1, 1) | np.roll(ridge, -1, 0) | np.roll(ridge, -1, 1)
    return grown.astype(np.float32)


def correlation(a: NDArray, b: NDArray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])
