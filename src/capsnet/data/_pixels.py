"""Convert an image file, a Pillow image or an array to pixels: (H, W, 3) in [0, 1].

Files are not trusted. ``open_image`` is the only place where the package opens one, so the command line, Python and the
server read the same formats up to the same sizes; every failure is one sentence that names the file.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capsnet._files import expanded

ImageLike: TypeAlias = str | Path | bytes | Image.Image | NDArray
Pixels: TypeAlias = NDArray[np.float32]  # (H, W, 3) in [0, 1]
Plane: TypeAlias = NDArray[np.float32]  # (H, W)

# Pillow reads more, but some formats start other programs (EPS: Ghostscript), are stubs, or have had no reader's care
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000")
if find_spec("PIL.AvifImagePlugin"):  # Pillow 11.3
    FORMATS = (*FORMATS, "AVIF")
UNSIGNED = {".tga": "TGA"}  # formats without a signature: any bytes could be one, so the name has to say it
MOST_PIXELS = 64_000_000  # more than most cameras have; 192 MB as RGB
MOST_BYTES = 2**29  # of a file: 64 million pixels of 16-bit RGB fit

_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # grey levels that do not fit 8 bits


def name_of(image: ImageLike) -> str:
    """What errors call this image."""
    if isinstance(image, str | Path):
        return str(image)
    return "the array" if isinstance(image, np.ndarray) else str(getattr(image, "filename", "") or "the image")


class NotAnImage(ValueError):
    """The bytes are not an image in any of the formats that are read."""


def open_image(
    source: bytes | str | Path, *, formats: tuple[str, ...] | None = None, max_pixels: int = MOST_PIXELS
) -> Image.Image:
    """Open an image file, given as bytes or a path. All files are opened here.

    Only the header is read; ``Preprocess`` and ``read_pixels`` decode the pixels and report damage in the same way.

    Args:
        formats: which of Pillow's formats to read; None: ``FORMATS``, and what the name's ending says.
        max_pixels: how many pixels are decoded at most.

    Raises:
        NotAnImage: the format is not known. This is a ``ValueError``.
        ValueError: the image is damaged or too large.
        FileNotFoundError: there is no such file.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else expanded(source)
    if isinstance(file, Path) and not file.is_file():
        raise FileNotFoundError(f"{file}: expected an image file, found {'a folder' if file.is_dir() else 'nothing'}")
    if formats is None:
        own = UNSIGNED.get(file.suffix.lower()) if isinstance(file, Path) else None
        formats = (own,) if own else FORMATS
    with _clear_errors(None if isinstance(source, bytes) else str(source)):
        size = file.stat().st_size if isinstance(file, Path) else file.getbuffer().nbytes
        if size > MOST_BYTES:
            raise ValueError(f"the file is too large: {size:,} bytes, at most {MOST_BYTES:,} are read")
        try:
            image = Image.open(file, formats=formats)
        except UnidentifiedImageError:
            subject = "this is" if isinstance(file, Path) else f"these {size:,} bytes are"
            raise NotAnImage(f"{subject} not an image: the formats are {', '.join(formats)}") from None
        if image.width * image.height > max_pixels:
            image.close()
            raise ValueError(
                f"the image is too large: {image.width} x {image.height}, at most {max_pixels:,} pixels are read"
            )
    return image


@contextmanager
def _clear_errors(name: str | None) -> Iterator[None]:
    """Turn every failure of Pillow into a ValueError of one sentence, which starts with the name if any."""
    prefix = f"{name}: " if name else ""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")  # what matters becomes an error below
            yield
    except Image.DecompressionBombError as error:
        raise ValueError(f"{prefix}the image is too large to be decoded safely ({error})") from error
    except ValueError as error:
        if type(error) in (ValueError, NotAnImage):
            raise type(error)(f"{prefix}{error}") from error
        raise ValueError(f"{prefix}the image is damaged or incomplete ({error})") from error
    except Exception as error:  # decoders raise whatever they like: that of AVIF a RuntimeError
        raise ValueError(f"{prefix}the image is damaged or incomplete ({error})") from error


def is_deep(path: Path) -> bool:
    """Whether a file, by its header, holds whole grey levels that do not fit 8 bits."""
    try:
        with open_image(path) as opened:
            return opened.mode.startswith("I")
    except (OSError, ValueError):
        return False


def read_pixels(
    image: Image.Image | NDArray, *, enough: int | None = None, white: int | None = None, name: str | None = None
) -> Pixels:
    """Convert an image to RGB floats, upright and opaque. Errors call it ``name``.

    ``enough``: the longer side's pixels beyond which detail is not needed; larger photos are reduced before conversion.
    ``white``: the grey level that is white where levels do not fit 8 bits, if not 65535, such as 4095 for 12 bits.
    Transparency becomes white, or black if the opaque part is light.
    """
    name = name or name_of(image)
    if isinstance(image, np.ndarray):
        return _from_array(image, name, white)
    if not isinstance(image, Image.Image):
        raise ValueError(f"expected a path, bytes, a Pillow image or an array, got {type(image).__name__}")
    with _clear_errors(name):
        return _decode(image, enough, white)


def _decode(image: Image.Image, enough: int | None, white: int | None) -> Pixels:
    if min(image.size) == 0:
        raise ValueError("the image has no pixels")
    if enough is not None:
        image.draft("RGB", (enough, enough))  # lets a JPEG decode at 1/2, 1/4 or 1/8; others ignore it
    upright = ImageOps.exif_transpose(image)
    factors = _factors(upright.size, enough)
    if upright.mode in _DEEP:
        return _deep(np.asarray(upright), factors, white)
    transparent = "A" in upright.getbands() or "a" in upright.getbands() or "transparency" in upright.info
    flat = upright.convert("RGBA" if transparent else "RGB")
    if max(factors) > 1:
        flat = flat.reduce(factors)
    return _opaque(np.asarray(flat, dtype=np.float32) / np.float32(255))


def _factors(size: tuple[int, int], enough: int | None) -> tuple[int, int]:
    """By how much each side can be reduced. The shorter side keeps at least two pixels, if it has them."""
    factor = 1 if enough is None else max(size) // enough
    return max(1, min(factor, size[0] // 2)), max(1, min(factor, size[1] // 2))


def _deep(values: NDArray, factors: tuple[int, int], white: int | None) -> Pixels:
    """Grey levels that do not fit 8 bits. Their range is that of the pixels before they are averaged."""
    limit = _limit(values, white)
    if white is not None and values.dtype.kind in "iu":
        limit = float(white)  # even if this image is dark
    if white is not None:
        values = np.minimum(values, limit)
    if max(factors) > 1:
        values = np.asarray(Image.fromarray(values.astype(np.float32)).reduce(factors))
    return _grey((values / limit).astype(np.float32))


def _from_array(array: NDArray, name: str, white: int | None) -> Pixels:
    """Accept (H, W), (H, W, C) or (C, H, W) with C in 1, 3, 4; uint8, uint16, bool, or floats in [0, 1]."""
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4) or 0 in array.shape:
        raise ValueError(
            f"{name}: expected shape (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, found {array.shape}"
        )
    try:
        values = _scaled(array, white)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return _grey(values.reshape(values.shape[:2])) if channels == 1 else _opaque(values)


def _scaled(values: NDArray, white: int | None) -> NDArray[np.float32]:
    """Map stored grey levels to [0, 1]."""
    if values.dtype == np.bool_:
        return values.astype(np.float32)
    scaled = (values / _limit(values, white)).astype(np.float32)
    return scaled if white is None else np.minimum(scaled, np.float32(1))


def _limit(values: NDArray, white: int | None) -> float:
    """The value of white: by the type if it tells the range, else by the smallest usual range."""
    most = 65535.0 if white is None else float(white)
    if values.dtype in (np.uint8, np.uint16):
        return 255.0 if values.dtype == np.uint8 else most
    if values.dtype.kind not in "iuf":
        raise ValueError(f"expected numbers, found {values.dtype}")
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} pixels are NaN or infinite")
    low, high = float(values.min()), float(values.max())
    limit = next((top for top in (1.0, 255.0, 65535.0) if high <= top), None)
    if low < 0 or limit is None:
        raise ValueError(f"pixels must lie in 0..1, 0..255 or 0..65535, found {low:g}..{high:g}")
    if values.dtype.kind != "f" and limit == 1.0:
        return 255.0  # integers 0 and 1 are two very dark greys, unless the type says bool
    return most if limit == 65535.0 else limit


def _grey(values: NDArray[np.float32]) -> Pixels:
    return np.repeat(values[:, :, None], 3, axis=2)


def _opaque(values: NDArray[np.float32]) -> Pixels:
    """Put (H, W, 3 or 4) on white, or on black if the opaque part is light."""
    colour = values[:, :, :3]
    if values.shape[2] == 3:
        return np.ascontiguousarray(colour)
    alpha = values[:, :, 3:]
    covered = float(alpha.mean())
    light = covered > 0 and float((colour * alpha).mean()) / covered > 0.5
    paper = 0.0 if light and covered < 0.9 else 1.0  # nearly opaque images keep the usual white
    return (colour * alpha + paper * (1 - alpha)).astype(np.float32)


def resize(
    values: NDArray[np.float32],
    size: tuple[int, int],
    *,
    box: tuple[float, float, float, float] | None = None,
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> NDArray[np.float32]:
    """Resize (H, W) or (H, W, C) to ``size`` = (h, w) in floats, antialiased; ``box`` is (left, top, right, bottom)."""
    planes = values[:, :, None] if values.ndim == 2 else values
    height, width = size
    out = [
        np.asarray(Image.fromarray(np.ascontiguousarray(planes[:, :, c])).resize((width, height), resample, box=box))
        for c in range(planes.shape[2])
    ]
    return out[0].astype(np.float32) if values.ndim == 2 else np.stack(out, axis=2).astype(np.float32)
