"""A fingerprint of a data set: enough to notice, when a run is resumed, that its data was replaced.

It is made in well under a second: a checksum of what lies in memory as bytes, and a summary of a few examples, which
are chosen by a key.
"""

import zlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from capsnet.data import keyed
from capsnet.data.base import ArrayDataset, Dataset

SAMPLE = 64  # examples
GRID = 4  # means per side of a picture
NEAR = 0.02  # how far means may differ if a picture was decoded or computed by another version of a library


def fingerprint(dataset: Dataset, *, seed: int = 0) -> dict[str, Any]:
    """What ``find_difference`` compares: plain values and small tensors. ``seed`` is that of the generated examples."""
    picked = keyed.integers(0, 0, np.arange(min(SAMPLE, len(dataset))), 1, "fingerprint", 0, len(dataset))[:, 0]
    batch = dataset.batch(np.unique(picked), seed=seed)
    return {
        "examples": len(dataset),
        "classes": list(dataset.class_names),
        "shape": [dataset.channels, *dataset.image_size],
        "targets": batch.targets.clone(),
        "sample": _summary(batch.images),
        "bytes": _checksum(dataset) if type(dataset).batch is ArrayDataset.batch else None,
    }


def find_difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """How two fingerprints differ, as the end of a sentence; None if they are of the same data.

    Where every picture differs by a shade, a library decodes them otherwise: that is the same data. Where no picture of
    the sample differs and the checksum does, some other pictures were replaced.
    """
    if before["examples"] != now["examples"]:
        return f"there were {before['examples']:,} examples, now there are {now['examples']:,}"
    if before["classes"] != now["classes"]:
        return f"the classes were {_some(before['classes'])}, now they are {_some(now['classes'])}"
    if before["shape"] != now["shape"]:
        return f"an example was {_shape(before['shape'])}, now it is {_shape(now['shape'])}"
    if not torch.equal(before["targets"], now["targets"]):
        return "examples have other classes"
    one, two = before["sample"], now["sample"]
    if one.shape != two.shape or not torch.allclose(one, two, rtol=0, atol=NEAR):
        return "examples have another content"
    if before["bytes"] != now["bytes"] and torch.equal(one, two):
        return "some examples have another content"
    return None


def _summary(images: Tensor) -> Tensor:
    """(B, ...): means over the cells of a grid; of texts the numbers of the words."""
    if images.ndim != 4:
        return images.clone()
    return adaptive_avg_pool2d(images.float(), GRID)


def _checksum(dataset: Any) -> int:
    parts: tuple[NDArray, ...] = (dataset.images, dataset.targets)
    value = 0
    for part in parts:
        for start in range(0, len(part), 4096):  # a slice of a subset may have to be copied
            value = zlib.crc32(np.ascontiguousarray(part[start : start + 4096]).data, value)
    return value


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown}, ... ({len(names)})" if len(names) > 5 else shown


def _shape(sizes: list[int]) -> str:
    return " x ".join(map(str, sizes))
