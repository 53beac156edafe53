"""Data sets by name: NAME, NAME:PATH or NAME:PATH,key=value,...

Options are the keyword-only parameters of the loader, checked against their annotations. So one string describes the
data of a run, in a configuration, on the command line and on the card of trained weights.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from capsnet._files import check_text, expanded
from capsnet._names import check_name, check_value
from capsnet.data.base import Dataset

PathUse = Literal["none", "optional", "required"]
Source = Literal["bundled", "generated", "download", "folder"]
Loader = TypeVar("Loader", bound=Callable[..., Dataset])
_Options = Mapping[str, Any]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded."""

    name: str
    description: str
    splits: tuple[str, ...]
    source: Source  # "download" is the only one that may use the network
    gallery: str | None  # spec of the data set whose pictures a gallery shows; None: no gallery
    objects: int | None  # objects (or topics) per example; None: not known, or not the same for all examples
    options: _Options  # what NAME:key=value may set, with the defaults
    path: PathUse  # whether NAME:PATH is possible
    environment: str | None  # the environment variable that may name the path


@dataclass(frozen=True)
class Entry:
    """The arguments of ``register``."""

    loader: Callable[..., Dataset]  # loader(split) or loader(split, path)
    description: str
    splits: tuple[str, ...]
    path: PathUse
    environment: str | None
    source: Source | Callable[[_Options], Source]
    gallery: str | None
    objects: int | Callable[[_Options], int | None] | None

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What NAME:key=value may set."""
        parameters = inspect.signature(self.loader, eval_str=True).parameters.values()
        return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}


_ENTRIES: dict[str, Entry] = {}
GIVEN = "python"  # instead of the name of a data set: the data were given in Python


def is_given(spec: str) -> bool:
    """Whether the data of this spec were given in Python, so that no name finds them again."""
    return spec.partition(":")[0] == GIVEN


def register(
    name: str,
    description: str,
    splits: tuple[str, ...],
    *,
    source: Source | Callable[[_Options], Source] = "generated",
    gallery: str | None = None,
    objects: int | Callable[[_Options], int | None] | None = None,
    path: PathUse = "optional",
    environment: str | None = None,
) -> Callable[[Loader], Loader]:
    """Make a function ``loader(split, path=None, *, options) -> Dataset`` known under ``name``.

    Keyword-only parameters are the options that NAME:key=value sets.

    Args:
        source: where the data comes from if no path is given.
        gallery: the data set whose pictures a gallery shows; the name itself means this one, with its options.
        objects: objects per picture, if known. ``source`` and ``objects`` may be functions of the options.
        path: whether NAME:PATH may, must or must not be given.
        environment: a variable that may name the path.
    """

    def decorate(loader: Loader) -> Loader:
        if name in (*_ENTRIES, GIVEN):
            raise ValueError(f"a data set named {name!r} is already registered")
        _ENTRIES[name] = Entry(loader, description, splits, path, environment, source, gallery, objects)
        return loader

    return decorate


def list_datasets() -> list[str]:
    """The names that ``load`` knows."""
    return sorted(_ENTRIES)


def info(spec: str) -> DatasetInfo:
    """What a data set declares about itself, with the options and the path in ``spec``."""
    name, entry = _find(spec)
    path, texts = _parse(spec, entry, environment=False)
    options = {key: parameter.default for key, parameter in entry.options.items()}
    values = options | _values(name, entry, texts)
    source = "folder" if path else entry.source(values) if callable(entry.source) else entry.source
    objects = entry.objects(values) if callable(entry.objects) else entry.objects
    gallery = entry.gallery
    if gallery == name:
        gallery = spec
    if source not in ("bundled", "generated"):
        gallery = None
    return DatasetInfo(
        name, entry.description, entry.splits, source, gallery, objects, options, entry.path, entry.environment
    )


def describe(name: str) -> str:
    """One line about a data set."""
    return info(name).description


def options_of(name: str) -> dict[str, Any]:
    """What NAME:key=value may set, with the defaults."""
    return dict(info(name).options)


def canonical(spec: str) -> str:
    """The spec to record: with an absolute path, also if an environment variable names it."""
    name, entry = _find(spec)
    return _joined(name, path_of(spec), _parse(spec, entry)[1])


def path_of(spec: str) -> Path | None:
    """The absolute path that a spec (or an environment variable) names, or None."""
    path = _parse(spec, _find(spec)[1])[0]
    return expanded(path).resolve() if path else None


def with_options(spec: str, **options: Any) -> str:
    """The spec with some options changed: ``with_options("multimnist", shift=6)``."""
    name, entry = _find(spec)
    path, texts = _parse(spec, entry)
    return _joined(name, path, texts | options)


def _joined(name: str, path: str | Path | None, options: _Options) -> str:
    words = ([str(path)] if path else []) + [f"{key}={value}" for key, value in options.items()]
    return f"{name}:{','.join(words)}" if words else name


def load(spec: str, split: str = "train") -> Dataset:
    """Load a split of a data set given as NAME, NAME:PATH or NAME:PATH,key=value,..."""
    name, entry = _find(spec)
    check_name(f"split of {name}", split, entry.splits)
    path, texts = _parse(spec, entry)
    options = _values(name, entry, texts)
    if not path:
        if entry.path == "required":
            raise ValueError(f"{name} needs a path: write {name}:PATH")
        return entry.loader(split, **options)
    return entry.loader(split, _existing(expanded(path)), **options)


def _find(spec: str) -> tuple[str, Entry]:
    if is_given(spec):
        raise ValueError(
            "the data set was given in Python and is not stored with the run: pass a data set, as in "
            "evaluate(model, dataset) or train(config, data=...)"
        )
    name = check_name("data set", spec.partition(":")[0], list_datasets())
    return name, _ENTRIES[name]


def _parse(spec: str, entry: Entry, *, environment: bool = True) -> tuple[str, dict[str, str]]:
    """Split a spec into path and options, from the end: a path may contain commas and equals signs."""
    name, colon, rest = spec.partition(":")
    if colon and not rest:
        raise ValueError(f"expected a path after the colon in {spec!r}")
    options: dict[str, str] = {}
    while rest and entry.options:
        before, comma, last = rest.rpartition(",")
        key, equals, value = last.partition("=")
        is_path = entry.path != "none" and expanded(rest).exists()
        if not equals or not re.fullmatch(r"[a-z_]+", key) or (key not in entry.options and is_path):
            break
        check_name(f"option of {name}", key, entry.options)
        if key in options:
            raise ValueError(f"{key} is given twice in {spec!r}")
        options = {key: value} | options
        rest = before
        if comma and not before:
            raise ValueError(f"expected something before the comma in {spec!r}")
    if rest and entry.path == "none":
        known = f"; its options are {', '.join(entry.options)}" if entry.options else ""
        raise ValueError(f"{name} takes no path, got {spec!r}{known}")
    if not rest and environment and entry.environment:
        rest = os.environ.get(entry.environment, "")
    return rest, options


def _values(name: str, entry: Entry, texts: Mapping[str, str]) -> dict[str, Any]:
    """The texts of options as the types that the loader declares: "4" is the number 4."""
    values = {}
    for key, text in texts.items():
        kind, value = entry.options[key], None if text == "None" else text
        values[key] = check_value(f"option {key} of {name}", value, kind.annotation, kind.default, strict=False)
    return values


def _existing(path: Path) -> Path:
    check_text(path.resolve(), "data")  # the card will contain it
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    if path.is_dir() and not any(path.iterdir()):
        raise ValueError(f"{path}: the folder is empty")
    return path
