"""Your own images: ``folder:PATH``, where PATH is a folder with one sub-folder per class, or a CSV of paths and labels.

- A folder: the sub-folders are the classes, and images may lie deeper inside. If the sub-folders are called train, test
  and validation (or val), they are the splits and the classes are one level further down.
- A CSV file, or a folder with one such file and at most one sub-folder: see ``_labels_csv``. Targets are class numbers
  if every image has one label, else multi-hot.

Without splits of your own, ``validation`` and ``test`` are fractions of each class, see ``_stratify``. A split that is
missing is drawn from your train. With ``folds=K``, fold number ``fold`` is the test split.
"""

import re
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capsnet._files import expanded
from capsnet._names import check_name
from capsnet.data import keyed
from capsnet.data._registry import register
from capsnet.data.base import ArrayDataset
from capsnet.data.folders._decode import Channels, Decoded, decode
from capsnet.data.folders._labels_csv import list_csv, looks_like_labels
from capsnet.data.folders._listing import Listing, list_tree, visible_folders, warn_once
from capsnet.data.folders._stratify import Examples, draw_folds, draw_parts
from capsnet.data.preprocess import Fit, White, preprocess_for
from capsnet.data.splits import SPLITS

Fraction = Annotated[float, Field(gt=0, lt=1)]


class FolderDataset(ArrayDataset):
    """The images of one split, their files and groups, and the files that could not be read (of all splits)."""

    files: list[str]
    groups: list[str]  # "" where an image is of none
    skipped: list[str]
    has_own_splits: bool  # the user's, so that no folds can be drawn


@register(
    "folder",
    "Your own images: one sub-folder per class, or a CSV of path,label(s)",
    SPLITS,
    source="folder",
    path="required",
)
def folder(
    split: str = "train",
    path: str | Path | None = None,
    *,
    size: str = "32",
    channels: Channels = "auto",
    fit: Fit = "crop",
    white: White | None = None,
    seed: int = 0,
    validation: Fraction = 0.15,
    test: Fraction = 0.15,
    folds: Annotated[int, Field(ge=2)] | None = None,
    fold: Annotated[int, Field(ge=0)] = 0,
) -> FolderDataset:
    """Load one split of a user's images, resized to ``size`` ("64", or "48x64" for height x width).

    ``channels``: "auto" is RGB if any image of any split has colour, else grey. ``fit`` and
    ``white`` (the grey level that is white in 16-bit files: 4095 if they hold 12 bits) as in ``Preprocess``.
    """
    check_name("split", split, SPLITS)
    if path is None:
        raise ValueError("folder needs the path of a folder with one sub-folder per class, or of a CSV file")
    _check_fractions(validation, test, folds, fold)
    source = expanded(path)
    listing = _list(source)
    data = decode(listing.folder, listing.items, _parse_size(size), channels, fit, str(source), white)
    examples = _examples(source, listing, data)
    if folds is not None:
        where = _fold_splits(examples, data, seed, validation, folds, fold)
    elif listing.has_own_splits:
        where = _own_splits(examples, data, seed, validation, test)
    else:
        parts = draw_parts(examples, (test, validation), seed=seed, stream="folder.split")
        where = np.array(["test", "validation", "train"])[parts]
    rows = np.flatnonzero(np.isin(where, split.split("+")))
    rows = rows[keyed.permutation(seed, 0, len(rows), "folder.order")]  # the first n should be of all classes
    targets = (
        examples.member[rows].astype(np.float32) if _is_multilabel(listing) else examples.member[rows].argmax(axis=1)
    )
    name = f"{source.resolve().stem if source.is_file() else source.resolve().name} {split}"
    images = data.images[rows]
    prepare = preprocess_for(images.shape[2:], images.shape[1], fit=fit, white=white)
    dataset = FolderDataset(images, targets, listing.class_names, name=name, preprocess=prepare)
    chosen = [data.items[i] for i in rows]
    dataset.files, dataset.groups = [item.name for item in chosen], [item.group for item in chosen]
    dataset.skipped, dataset.has_own_splits = list(data.skipped), listing.has_own_splits
    return dataset


def image_files(path: Path) -> set[Path]:
    """The images of ``folder:PATH``, wherever they lie."""
    listing = _list(path)
    return {(listing.folder / item.name).resolve() for item in listing.items}


def _list(source: Path) -> Listing:
    if source.is_file():
        return list_csv(source)
    if not source.is_dir():
        raise FileNotFoundError(f"{source}: expected a folder of images or a CSV file, found nothing")
    tables, folders = sorted(source.glob("*.csv")), visible_folders(source)
    labelled = [table for table in tables if looks_like_labels(table)]
    if len(tables) == 1 and (not folders or (labelled and len(folders) == 1)):
        return list_csv(tables[0])
    if labelled:
        raise ValueError(
            f"{source}: found {labelled[0].name} as well as {len(folders)} sub-folders and {len(tables)} CSV files: "
            f"both may define the classes, so give the path of the CSV file, or move it elsewhere"
        )
    return list_tree(source)


def _is_multilabel(listing: Listing) -> bool:
    return any(len(item.labels) != 1 for item in listing.items)


def _examples(source: Path, listing: Listing, data: Decoded) -> Examples:
    number = {name: j for j, name in enumerate(listing.class_names)}
    member = np.zeros((len(data.items), len(number)), dtype=bool)
    for i, item in enumerate(data.items):
        member[i, [number[label] for label in item.labels]] = True
    if len(number) < 2 and not _is_multilabel(listing):
        only = listing.class_names[0]
        raise ValueError(f"{source}: expected at least two classes, found only {only!r}; is that the folder you meant?")
    # a group is drawn by its name: its first image may change when images are added
    names = tuple(f"group {item.group}" if item.group else item.name for item in data.items)
    return Examples(str(source), names, member, data.groups, listing.class_names)


def _own_splits(examples: Examples, data: Decoded, seed: int, validation: float, test: float) -> NDArray[np.str_]:
    """The user's own splits; a missing validation or test split is drawn from train."""
    where = np.array([item.split for item in data.items], dtype="<U10")
    fractions = {name: fraction for name, fraction in (("test", test), ("validation", validation)) if name not in where}
    train = np.flatnonzero(where == "train")
    if not len(train):
        raise ValueError(f"{examples.source}: not one readable image is in the split train")
    if fractions:
        parts = draw_parts(examples.take(train), tuple(fractions.values()), seed=seed, stream="folder.split")
        where[train] = np.array([*fractions, "train"])[parts]
    splits: dict[str, set[str]] = {}
    for item, split in zip(data.items, where, strict=True):
        splits.setdefault(item.group, set()).add(split)
    if divided := [group for group, names in splits.items() if group and len(names) > 1]:
        warn_once(f"{examples.source}: {len(divided)} groups have images in several splits, for example {divided[0]!r}")
    for name in ("train", "validation", "test"):
        lacking = np.flatnonzero(~examples.member[where == name].any(axis=0))
        if not len(lacking):
            continue
        words = f"{examples.source}: class {examples.class_names[lacking[0]]!r} has no image in the split {name}"
        if name == "train":
            raise ValueError(f"{words}: a class without training images cannot be learned")
        warn_once(words)
    return where


def _fold_splits(
    examples: Examples, data: Decoded, seed: int, validation: float, folds: int, fold: int
) -> NDArray[np.str_]:
    if data.items[0].split is not None:
        raise ValueError(f"{examples.source}: the images have splits of their own, so folds={folds} cannot be drawn")
    where = np.full(len(data.items), "test", dtype="<U10")
    rest = np.flatnonzero(draw_folds(examples, folds, seed=seed, stream="folder.folds") != fold)
    parts = draw_parts(examples.take(rest), (validation,), seed=seed, stream=f"folder.validation.{fold}")
    where[rest] = np.array(["validation", "train"])[parts]
    return where


def _check_fractions(validation: float, test: float, folds: int | None, fold: int) -> None:
    if not (validation > 0 and test > 0 and validation + test < 1):
        raise ValueError(
            f"validation and test must be above 0 and leave something to train on, got {validation:g} and {test:g}"
        )
    if folds is not None and not (folds >= 2 and 0 <= fold < folds):
        raise ValueError(f"folds must be at least 2 and fold one of 0 to folds - 1, got folds={folds}, fold={fold}")
    if folds is None and fold:
        raise ValueError(f"fold={fold} means nothing without folds: write folds=5,fold={fold}")


def _parse_size(size: str) -> tuple[int, int]:
    """Height and width of "64" or "48x64"."""
    match = re.fullmatch(r"([0-9]{1,4})(?:[xX]([0-9]{1,4}))?", size.strip())
    sides = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not all(8 <= side <= 4096 for side in sides):
        raise ValueError(f"size must be 64 or, as height x width, 48x64, each from 8 to 4096, got {size!r}")
    return sides
