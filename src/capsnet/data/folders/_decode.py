"""Read many image files into one array, once per process, in threads.

Files that cannot be read are skipped and logged. Byte-identical copies are found, so that they stay in one split.
"""

import hashlib
import logging
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from capsnet.data._pixels import is_deep
from capsnet.data.folders._listing import Item
from capsnet.data.preprocess import LUMA, Fit, Preprocess

log = logging.getLogger("capsnet")

Channels: TypeAlias = Literal["auto", "grey", "rgb"]

_COLOUR = 8 / 255  # channels that differ less are grey: JPEG shifts them by a few levels
_SHOWN = 10  # names in a message
_BAR_FROM = 500  # images
_MUCH = 4e9  # bytes


class Decoded(NamedTuple):
    """The images that could be read, their items and groups, and the names of the others."""

    images: NDArray[np.uint8]  # (N, C, H, W)
    items: tuple[Item, ...]  # N
    groups: NDArray[np.int64]  # (N,), from 0 without gaps; equal where files are byte-identical or of one group
    skipped: tuple[str, ...]


@lru_cache(maxsize=2)
def decode(
    folder: Path,
    items: tuple[Item, ...],
    size: tuple[int, int],
    channels: Channels,
    fit: Fit,
    source: str,
    white: int | None = None,
) -> Decoded:
    """Read all ``items`` below ``folder``. They contain stamps, so files that were rewritten are read again."""
    rgb, grey, colour, digests, reasons = _read(folder, items, size, channels, fit, white)
    good = [i for i, reason in enumerate(reasons) if not reason]
    if len(good) < len(items):
        bad = [f"{item.name} ({reason})" for item, reason in zip(items, reasons, strict=True) if reason]
        if not good:
            raise ValueError(f"{source}: none of the {len(items)} images can be read, for example {bad[0]}")
        log.warning("%s: skipped %d of %d images: %s", source, len(bad), len(items), _some(bad))
    use_rgb = channels == "rgb" or (channels == "auto" and bool(colour.any()))
    images = rgb if use_rgb else grey
    images = images if len(good) == len(items) else images[good]
    readable = tuple(items[i] for i in good)
    copies = np.unique([digests[i] for i in good], return_inverse=True)[1].astype(np.int64)
    _report_copies(readable, copies, source)
    groups = _joined(copies, [item.group for item in readable])
    if white is None:
        _report_dark(folder, readable, images, source)
    skipped = tuple(item.name for item, reason in zip(items, reasons, strict=True) if reason)
    return Decoded(images, readable, groups, skipped)


def _read(
    folder: Path, items: tuple[Item, ...], size: tuple[int, int], channels: Channels, fit: Fit, white: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.bool_], list[str], list[str]]:
    """Fill an RGB and a grey array, if they may be needed: whether any image has colour is known at the end.

    Grey is computed from RGB before rounding. Resizing is linear, so ``Preprocess`` with one channel gives the same.
    """
    count, (height, width) = len(items), size
    planes_of = {"channels": 1 if channels == "grey" else 3, "fit": fit, "white": white}
    prepare = Preprocess(style="plain", height=height, width=width, **planes_of)
    rgb = np.zeros((count if channels != "grey" else 0, 3, height, width), dtype=np.uint8)
    grey = np.zeros((count if channels != "rgb" else 0, 1, height, width), dtype=np.uint8)
    if (needed := rgb.nbytes + grey.nbytes) > _MUCH:
        log.warning("%d images of %dx%d take %.0f GB of memory: a smaller size= takes less", count, *size, needed / 1e9)
    colour, digests, reasons = np.zeros(count, dtype=bool), [""] * count, [""] * count

    def read_one(i: int) -> None:
        path = folder.absolute() / items[i].name  # a name that begins with ~ is not a home folder
        try:
            data = path.read_bytes()
            if not data:
                raise ValueError("the file is empty")
            planes = prepare(path).numpy()  # (C, H, W)
        except Exception as error:  # an untrusted file can make a decoder fail in any way
            reasons[i] = str(error).removeprefix(f"{path}: ") or type(error).__name__
            return
        digests[i] = hashlib.blake2b(data, digest_size=16).hexdigest()
        if channels != "grey":
            rgb[i] = np.rint(planes * 255)
            colour[i] = np.ptp(planes, axis=0).max() > _COLOUR
        if channels != "rgb":
            grey[i, 0] = np.rint((planes[0] if channels == "grey" else np.tensordot(LUMA, planes, 1)) * 255)

    with warnings.catch_warnings(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # odd metadata; the block also restores filters that threads change
        work = pool.map(read_one, range(count))
        quiet = None if count > _BAR_FROM else True  # None: only where there is a terminal
        for _ in tqdm(work, total=count, desc="reading images", unit=" images", disable=quiet, leave=False):
            pass
    return rgb, grey, colour, digests, reasons


def _joined(copies: NDArray[np.int64], names: list[str]) -> NDArray[np.int64]:
    """Numbers of what stays together, by union-find: copies of a file, and files of a group."""
    first: dict[str, int] = {}
    parent = list(range(len(copies)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for number, name in zip(copies.tolist(), names, strict=True):
        if name:
            parent[root(number)] = root(first.setdefault(name, number))
    return np.unique([root(number) for number in copies.tolist()], return_inverse=True)[1].astype(np.int64)


def _report_copies(items: tuple[Item, ...], groups: NDArray[np.int64], source: str) -> None:
    """Log how many files are copies of others, and which of these have different labels or splits."""
    members: dict[int, list[Item]] = {}
    for item, group in zip(items, groups.tolist(), strict=True):
        members.setdefault(group, []).append(item)
    copies = [same for same in members.values() if len(same) > 1]
    if not copies:
        return
    extra = sum(len(same) - 1 for same in copies)
    log.info("%s: %d of %d images are copies of others and stay in the same split", source, extra, len(items))
    pairs = [(same[0], other) for same in copies for other in same[1:]]
    conflicts = [f"{a.name} ({_labels(a)}) and {b.name} ({_labels(b)})" for a, b in pairs if a.labels != b.labels]
    if conflicts:
        log.warning("%s: %d copies of an image have different labels: %s", source, len(conflicts), _some(conflicts))
    leaks = [f"{a.name} in {a.split} and {b.name} in {b.split}" for a, b in pairs if a.split != b.split]
    if leaks:
        log.warning("%s: %d copies of an image are in different splits: %s", source, len(leaks), _some(leaks))


def _report_dark(folder: Path, items: tuple[Item, ...], images: NDArray[np.uint8], source: str) -> None:
    """Warn if all 16-bit images are dark: they may hold 12 bits. Only the headers of dark images are opened."""
    # read as 16 bits, 12 bits reach a dark grey only, and 17 of the 256 levels
    dark = images.reshape(len(images), -1).max(axis=1) < 64  # (N,)
    deep = [item.name for item, is_dark in zip(items, dark, strict=True) if is_dark and is_deep(folder / item.name)]
    bright = (item.name for item, is_dark in zip(items, dark, strict=True) if not is_dark)
    if deep and not any(is_deep(folder / name) for name in bright):
        text = f"{source}: none of the {len(deep)} images with 16-bit grey levels reaches a quarter of white (65535)"
        log.warning("%s, for example %s: if white is a lower level, set it: white=4095 for 12 bits", text, deep[0])


def _labels(item: Item) -> str:
    return "|".join(item.labels) or "no label"


def _some(words: list[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
