"""Test pictures for the page without a server: some of each class, hard and misread ones, and pairs."""

import io
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capsnet.explorer._first_pair import first_pair
from capsnet.explorer._gallery import PAGE, Gallery
from capsnet.explorer._seen import tiled
from capsnet.explorer._service import ModelEntry
from capsnet.inference.profiles import Example
from capsnet.serving.images import Bytes, quantise, to_array
from capsnet.serving.problems import Missing
from capsnet.serving.wire import Pixels

PAIRS = 24  # the first ones; higher numbers begin again
COLUMNS = 24

Write = Callable[[str, bytes], object]
Row = tuple[int, list[int], int | None]  # index, classes, what it is read as if that is wrong


def write_examples(entries: Collection[ModelEntry], write: Write) -> dict[str, Any]:
    """Write the pictures as PNG files. Returns what is in them:

    - ``models``: by model, the number of its set, its first pair, and by kind [index, labels, seen as] of examples;
    - ``sets``: by number, ``file``, and the index of each picture in it; ``pairs`` likewise, with labels and offsets.
    """
    galleries: dict[str, list[ModelEntry]] = {}
    for entry in entries:
        if entry.gallery.exists():
            galleries.setdefault(str(entry.gallery.source), []).append(entry)
    about: dict[str, Any] = {"models": {}, "sets": []}
    for number, group in enumerate(galleries.values()):
        kinds = {entry.name: _kinds(entry) for entry in group}
        rows = [row for own in kinds.values() for shown in own.values() for row in shown]
        indices = sorted({index for index, *_ in rows if index is not None})
        dataset = group[0].gallery.examples().dataset
        pictures = quantise(dataset.batch(np.array(indices)).images)
        file = f"examples-{number}.png"
        write(file, png(pictures))
        described = {"file": file, "size": list(pictures.shape[1:]), "indices": indices}
        about["sets"].append(described | {"pairs": _pairs(group[0].gallery, f"pairs-{number}.png", write)})
        paired = about["sets"][number]["pairs"] is not None
        for entry in group:
            first = first_pair(entry, entries) if paired else None
            about["models"][entry.name] = {"set": number, "kinds": kinds[entry.name], "first_pair": first}
    return about


def _kinds(entry: ModelEntry) -> dict[str, list[Row]]:
    """The first page of each kind, and all of these under "any"."""
    examples, profile = entry.gallery.examples(), entry.profile
    wrong = {item.index: item.seen_as for item in profile.wrong} if profile else {}

    def rows(indices: Iterable[int]) -> list[Row]:
        return [(int(n), examples.labels(n), wrong.get(int(n))) for n in indices]

    def first(items: list[Example]) -> list[Row]:
        return rows([item.index for item in items[:PAGE]])

    kinds = {str(k): rows(np.flatnonzero(examples.classes[:, k])[:PAGE]) for k in range(entry.model.num_classes)}
    kinds |= {"hard": first(profile.hard if profile else []), "wrong": first(profile.wrong if profile else [])}
    return kinds | {"any": rows(sorted({row[0] for own in kinds.values() for row in own}))}


def _pairs(gallery: Gallery, file: str, write: Write) -> dict[str, Any] | None:
    """The first pairs: first and second picture of each in turn."""
    try:
        made = [gallery.pair(number) for number in range(PAIRS)]
    except Missing:
        return None
    pictures = [to_array(Pixels(**pair[which]), which) for pair in made for which in ("first", "second")]
    write(file, png(np.stack(pictures)))
    places = {"labels": [pair["labels"] for pair in made], "offsets": [pair["offsets"] for pair in made]}
    return {"file": file, "size": list(pictures[0].shape)} | places


def png(pictures: Bytes) -> bytes:
    """Pictures (N, H, W, C) row by row, ``COLUMNS`` in each, as one image file."""
    empty: NDArray[np.uint8] = np.zeros((-len(pictures) % COLUMNS, *pictures.shape[1:]), dtype=np.uint8)
    whole = tiled(np.concatenate([pictures, empty]).reshape(-1, COLUMNS, *pictures.shape[1:]))
    content = io.BytesIO()
    Image.fromarray(whole if whole.shape[2] == 3 else whole[:, :, 0]).save(content, "PNG", optimize=True)
    return content.getvalue()
