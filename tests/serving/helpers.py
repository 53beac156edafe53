"""What tests of servers share: a client, and images as bytes on the wire."""

import base64
import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette deprecates the HTTP library of its test client
    from starlette.testclient import TestClient

__all__ = ["BUNDLED", "HOME", "TestClient", "png", "unwire", "wire"]

BUNDLED = "capsnet-small-mnist"
HOME = "http://127.0.0.1:8028"


def wire(picture: NDArray) -> dict[str, Any]:
    """(H, W) or (H, W, C) bytes as Pixels."""
    whole = picture if picture.ndim == 3 else picture[:, :, None]
    height, width, channels = whole.shape
    data = base64.b64encode(np.ascontiguousarray(whole, dtype=np.uint8).tobytes()).decode()
    return {"width": width, "height": height, "channels": channels, "data": data}


def unwire(pixels: dict[str, Any]) -> NDArray:
    """Pixels as (H, W, C) bytes."""
    raw = np.frombuffer(base64.b64decode(pixels["data"]), dtype=np.uint8)
    return raw.reshape(pixels["height"], pixels["width"], pixels["channels"])


def png(picture: NDArray | Image.Image) -> bytes:
    """A PNG file of an image, or of (H, W) or (H, W, C) bytes."""
    content = io.BytesIO()
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    image.save(content, "PNG")
    return content.getvalue()
