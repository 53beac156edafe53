"""Data sets by name. A new one is one file with one `@register` line; `load` finds it as NAME or NAME:PATH."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from capsnet._names import check_name

from .base import Dataset

PathUse = Literal["none", "optional", "required"]
Loader = TypeVar("Loader", bound=Callable[..., Dataset])


@dataclass(frozen=True)
class Entry:
    """What is known about a data set before it is loaded."""

    loader: Callable[..., Dataset]  # loader(split) or loader(split, path)
    description: str
    splits: tuple[str, ...]
    path: PathUse
    environment: str | None  # a variable that may name the path


_ENTRIES: dict[str, Entry] = {}


def register(
    name: str,
    description: str,
    splits: tuple[str, ...],
    *,
    path: PathUse = "optional",
    environment: str | None = None,
) -> Callable[[Loader], Loader]:
    """Make a function `loader(split, path=None) -> Dataset` known under `name`; `path` says what NAME:PATH may hold."""

    def decorate(loader: Loader) -> Loader:
        if name in _ENTRIES:
            raise ValueError(f"a data set named {name!r} is already registered")
        _ENTRIES[name] = Entry(loader, description, splits, path, environment)
        return loader

    return decorate


def list_datasets() -> list[str]:
    """The names that `load` knows."""
    return sorted(_ENTRIES)


def describe(name: str) -> str:
    """One line about a data set."""
    return _ENTRIES[check_name("data set", name, list_datasets())].description


def splits_of(spec: str) -> tuple[str, ...]:
    """The splits that `load(spec, split)` knows."""
    return _ENTRIES[check_name("data set", spec.partition(":")[0], list_datasets())].splits


def canonical(spec: str) -> str:
    """The spec with its path made absolute, and with the path that an environment variable names: what to record."""
    name, colon, path = spec.partition(":")
    entry = _ENTRIES[check_name("data set", name, list_datasets())]
    if not colon and entry.environment:
        path = os.environ.get(entry.environment, "")
    return f"{name}:{Path(path).expanduser().resolve()}" if path else spec


def load(spec: str, split: str = "train") -> Dataset:
    """Load a split of a data set given as NAME, or as NAME:PATH for one that reads a user's files."""
    name, colon, path = spec.partition(":")
    entry = _ENTRIES[check_name("data set", name, list_datasets())]
    check_name(f"split of {name}", split, entry.splits)
    if not colon:
        if entry.path == "required":
            raise ValueError(f"{name} needs a path: write {name}:PATH")
        return entry.loader(split)
    if entry.path == "none":
        raise ValueError(f"{name} takes no path, got {spec!r}")
    if not path:
        raise ValueError(f"expected a path after the colon in {spec!r}")
    return entry.loader(split, _existing(Path(path).expanduser()))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    if path.is_dir() and not any(path.iterdir()):
        raise ValueError(f"{path}: the folder is empty")
    return path
