"""Images between the wire, uploaded files and tensors."""

import base64
import binascii
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet.serving.wire import Pixels

Bytes = NDArray[np.uint8]  # (H, W, C)


def to_array(pixels: Pixels, field: str) -> Bytes:
    """An image from the wire, (H, W, C)."""
    shape = (pixels.height, pixels.width, pixels.channels)
    try:
        raw = base64.b64decode(pixels.data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{field}.data is not base64") from None
    expected = shape[0] * shape[1] * shape[2]
    if len(raw) != expected:
        raise ValueError(
            f"{field}.data has {len(raw)} bytes, {pixels.width} x {pixels.height} x {pixels.channels} are {expected}"
        )
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def to_wire(image: Bytes) -> dict[str, Any]:
    """(H, W, C) for the wire."""
    height, width, channels = image.shape
    encoded = base64.b64encode(image.tobytes()).decode("ascii")
    return {"width": width, "height": height, "channels": channels, "data": encoded}


def quantise(images: Tensor) -> Bytes:
    """Images (..., C, H, W) in [0, 1] as bytes (..., H, W, C)."""
    return images.mul(255).round_().clamp_(0, 255).to(torch.uint8).movedim(-3, -1).numpy()
