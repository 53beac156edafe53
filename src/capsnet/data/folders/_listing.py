"""List images and their labels, from the names of folders. No image is opened."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from capsnet._files import check_text, expanded

log = logging.getLogger("capsnet")

_USUAL = frozenset((".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff"))
SUFFIXES = _USUAL | {".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"}
_WORDS = {"train": "train training", "validation": "validation valid val", "test": "test testing"}
SPLIT_NAMES = {word: split for split, words in _WORDS.items() for word in words.split()}


class Item(NamedTuple):
    """One image file: its name relative to the listing's folder, and a stamp that changes when the file does."""

    name: str
    labels: tuple[str, ...]
    split: str | None  # where the user put it, if the user did
    stamp: tuple[int, int]
    group: str = ""  # images of a group, such as a patient, stay in one split; empty: no group


class Listing(NamedTuple):
    """All images of a data set, in an order that only depends on their names."""

    folder: Path
    items: tuple[Item, ...]
    class_names: tuple[str, ...]

    @property
    def has_own_splits(self) -> bool:
        return self.items[0].split is not None


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key under which img2 comes before img10, and upper case beside lower case."""
    words = re.findall(r"[0-9]+|[^0-9]+", name.casefold())
    return [(0, int(word), "") if word[0] in "0123456789" else (1, 0, word) for word in words], name


@lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Log a warning once, although each split of a data set is loaded separately."""
    log.warning(message)


def stamp_of(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_mtime_ns, info.st_size


def list_tree(root: Path) -> Listing:
    """List a folder that has one sub-folder per class, or train, test (and validation) folders that do."""
    folders = visible_folders(root)
    splits = {folder: SPLIT_NAMES.get(folder.name.casefold()) for folder in folders}
    placed: list[tuple[Path, str | None]] = [(root, None)]
    if "train" in splits.values() and len(folders) > 1:
        if others := [folder.name for folder, split in splits.items() if split is None]:
            raise ValueError(
                f"{root}: found a folder of training images beside {others[0]!r}: move one of them elsewhere"
            )
        placed = list(splits.items())
    items: list[Item] = []
    names: set[str] = set()
    for folder, split in placed:
        classes = visible_folders(folder)
        if not classes:
            raise ValueError(f"{folder}: expected one sub-folder per class, found {_file_kinds(folder)}")
        if loose := sum(_is_image(entry) for entry in folder.iterdir()):
            warn_once(f"{folder}: ignored {loose} images that lie outside the class folders")
        for c in classes:
            check_text(c, "class folder")
        names.update(c.name for c in classes)
        for c in classes:
            images = [Item(p.relative_to(root).as_posix(), (c.name,), split, stamp_of(p)) for p in _images_under(c)]
            if not images and split in (None, "train"):
                raise ValueError(
                    f"{c}: class {c.name!r} has 0 images, found {_file_kinds(c)}: fill or remove the folder"
                )
            items += images
    return Listing(root, ordered(items), tuple(sorted(names, key=natural)))


def ordered(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=lambda item: natural(item.name)))


def visible_folders(folder: Path) -> list[Path]:
    """Sub-folders that are neither hidden nor the ``__MACOSX`` of archives."""
    folders = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".") and p.name != "__MACOSX"]
    return sorted(folders, key=lambda p: natural(p.name))


def images_in(folder: str | Path) -> list[Path]:
    """All images below a folder, by their names' endings, in an order that only depends on the names."""
    root = expanded(folder)
    images = sorted(_images_under(root), key=lambda path: natural(path.relative_to(root).as_posix()))
    if not images:
        raise ValueError(f"{folder}: expected images, found {_file_kinds(root)}")
    return [path.absolute() if str(path).startswith("~") else path for path in images]  # a name, not a home folder


def _images_under(folder: Path) -> Iterator[Path]:
    for parent, inner, files in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        yield from (path for path in (Path(parent, name) for name in files) if _is_image(path))


def _is_image(path: Path) -> bool:
    """By its name; the content is checked when the image is read."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _file_kinds(folder: Path) -> str:
    """The kinds of files in a folder, for error messages."""
    kinds = Counter(Path(name).suffix.lower() or name for _, _, files in os.walk(folder) for name in files)
    if not kinds:
        return "no files"
    return "only " + ", ".join(f"{count} {kind} files" for kind, count in kinds.most_common(4))
