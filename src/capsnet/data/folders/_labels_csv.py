"""A CSV file of images and labels: columns ``path`` and ``label`` (or ``labels``), perhaps ``split`` and ``group``.

Paths are relative to the CSV file. Several labels are separated by |, an empty cell is no label. Images with the same
``group`` (a patient, a day, a camera) stay in one split. Other columns are ignored. Columns are separated by comma,
semicolon or tab; the text is UTF-8.
"""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from capsnet.data.folders._listing import SPLIT_NAMES, Item, Listing, natural, ordered, stamp_of, warn_once

_LABELS = ("label", "labels")
_HEADER = "a header with the columns path and label (or labels), and perhaps split and group"


def list_csv(path: Path) -> Listing:
    """Read the file; every error names the line."""
    text = _text(path)
    delimiter, columns = _header(path, text)
    items: dict[str, tuple[int, Item]] = {}
    for line, cells in _rows(path, text, delimiter, len(columns)):
        item = _item(path, line, dict(zip(columns, cells, strict=True)))
        if item.name in items:
            raise ValueError(f"{path}, line {line}: {item.name} is already in line {items[item.name][0]}")
        items[item.name] = (line, item)
    if not items:
        raise ValueError(f"{path}: expected a line for each image after the header, found none")
    counts = {len(item.labels) for _, item in items.values()}
    if 0 in counts and max(counts) == 1:
        empty = sum(not item.labels for _, item in items.values())
        warn_once(f"{path}: {empty} of {len(items)} images have no label, so the targets are multi-hot")
    names = {label for _, item in items.values() for label in item.labels}
    if not names:
        raise ValueError(f"{path}: not one of the {len(items)} images has a label")
    return Listing(path.parent, ordered(item for _, item in items.values()), tuple(sorted(names, key=natural)))


def looks_like_labels(path: Path) -> bool:
    """Whether the first line is a header of the kind that ``list_csv`` reads."""
    try:
        _header(path, _text(path))
    except ValueError:
        return False
    return True


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: expected UTF-8 text, found the byte {data[error.start]:#04x}: save the file as UTF-8"
        ) from None


def _header(path: Path, text: str) -> tuple[str, list[str]]:
    """The delimiter and the columns: the delimiter is the one that gives a valid header."""
    first = re.split(r"[\r\n]", text, maxsplit=1)[0]
    for delimiter in ",;\t":
        columns = [name.strip().lower() for name in next(csv.reader([first], delimiter=delimiter), [])]
        if "path" in columns and len(set(_LABELS) & set(columns)) == 1:
            if len(set(columns)) < len(columns):
                raise ValueError(f"{path}, line 1: expected every column once, found {first!r}")
            return delimiter, columns
    raise ValueError(f"{path}, line 1: expected {_HEADER}, found {first[:80]!r}")


def _rows(path: Path, text: str, delimiter: str, width: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        next(reader)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != width:
                raise ValueError(f"{path}, line {reader.line_num}: expected {width} columns, found {len(cells)}")
            yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def _item(path: Path, line: int, row: dict[str, str]) -> Item:
    name = row["path"]
    if not name:
        raise ValueError(f"{path}, line {line}: the path is empty")
    if not (path.parent / name).is_file():
        name = name.replace("\\", "/")  # written on Windows
    file = path.parent / name
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "nothing"
        raise FileNotFoundError(f"{path}, line {line}: expected an image file {file}, found {kind}")
    labels = {label.strip() for label in (row.get("label") or row.get("labels") or "").split("|")} - {""}
    if odd := [label for label in labels if re.search(r"[,;/]", label)]:
        warn_once(f"{path}: {odd[0]!r} is taken as one label; several labels are separated by |")
    split = row.get("split")
    if split is not None and split.lower() not in SPLIT_NAMES:
        raise ValueError(f"{path}, line {line}: split must be train, validation or test in every line, found {split!r}")
    name = Path(name).as_posix()
    where = SPLIT_NAMES[split.lower()] if split else None
    return Item(name, tuple(sorted(labels, key=natural)), where, stamp_of(file), row.get("group", ""))
