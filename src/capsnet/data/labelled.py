"""The examples that people hold in Python, seen as a sequence of (image, label).

Arrays, torch data sets, lists of pairs and Hugging Face data sets are told apart here and nowhere else. The libraries
are not imported: a Hugging Face data set is recognised by its ``features`` and ``column_names``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

KINDS = (
    "a data set of this package, a pair of arrays (images, labels), a torch Dataset or a sequence of (image, label), "
    "or a Hugging Face dataset with a column of images and one of labels"
)
_CHANNELS = (1, 3, 4)
_COLUMNS = {  # of a Hugging Face data set: the feature that declares what a column is, and usual names of the column
    "image": ("Image", ("image", "img", "images", "picture", "pixel_values")),
    "label": ("ClassLabel", ("label", "labels", "class", "target")),
}


class Labelled:
    """A sequence of pairs (image, label), and the names of the classes if the source knows them.

    ``rows`` are read by number: pairs, or mappings with the two ``columns``. The label of a pair is whatever the
    source has: a number, a text, multi-hot.
    """

    def __init__(
        self, rows: Any, class_names: Sequence[str] | None = None, columns: tuple[str, str] | None = None
    ) -> None:
        self.rows, self.class_names = rows, None if class_names is None else tuple(map(str, class_names))
        self.columns = columns

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        row = self.rows[index]
        return pair_of(row if self.columns is None else [row[column] for column in self.columns])


def labelled(source: Any, what: str = "expected") -> Labelled:
    """Any of ``KINDS`` but a data set of this package. ``what`` begins the sentence about a wrong one."""
    if is_columns(source):
        return _of_columns(source)
    if _is_pair_of_arrays(source):
        images, labels = source
        images, labels = with_channels(as_array(images)), as_array(labels)
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images need as many labels, got {len(labels)}")
        return Labelled(list(zip(images, labels, strict=True)))
    sequence = hasattr(source, "__getitem__") and hasattr(source, "__len__") and not hasattr(source, "ndim")
    if not sequence or isinstance(source, str | bytes | Mapping):
        raise ValueError(f"{what} {KINDS}, got {described(source)}")
    names = getattr(source, "classes", None)
    known = isinstance(names, list | tuple) and bool(names) and all(isinstance(name, str) for name in names)
    return Labelled(source, names if known else None)


def described(source: Any) -> str:
    """What somebody gave, for an error: its type, or the keys of a mapping, such as the splits of a data set."""
    if isinstance(source, Mapping):
        return f"a mapping of {', '.join(map(str, source)) or 'nothing'}: give one of them"
    return type(source).__name__


def is_columns(source: Any) -> bool:
    """Whether this is a data set as Hugging Face's ``datasets`` has them."""
    return hasattr(source, "features") and isinstance(getattr(source, "column_names", None), list)


def images_of(source: Any) -> Iterator[Any]:
    """The images of a torch or Hugging Face data set; the latter needs no labels."""
    if is_columns(source):
        column = _column(source, "image")
        return (source[i][column] for i in range(len(source)))
    examples = labelled(source)
    return (examples[i][0] for i in range(len(examples)))


def pair_of(example: Any) -> tuple[Any, Any]:
    """The example itself, if it is a pair."""
    if isinstance(example, list | tuple) and len(example) == 2:
        return example[0], example[1]
    kind = f"{len(example)} values" if isinstance(example, list | tuple) else type(example).__name__
    raise ValueError(f"an example must be a pair (image, label), got {kind}: give a data set that returns such pairs")


def as_array(values: Any) -> NDArray:
    """A tensor, an array or a list as an array."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def as_picture(image: Any) -> Any:
    """What ``Preprocess`` takes: tensors become arrays, and an undecoded image of Hugging Face its file."""
    if isinstance(image, Mapping) and {"bytes", "path"} & set(image):
        return image.get("bytes") or image["path"]
    return as_array(image) if isinstance(image, Tensor) else image


def number_labels(labels: NDArray, class_names: Sequence[str] | None) -> tuple[NDArray, tuple[str, ...] | None]:
    """Labels as class numbers (or multi-hot, as they are), and the names of the classes if they are known.

    Texts are numbered in the order of ``class_names``, or of the alphabet.
    """
    names = None if class_names is None else tuple(map(str, class_names))
    if labels.dtype.kind == "b" and labels.ndim == 1:
        return labels.astype(np.int64), names or ("False", "True")
    if labels.dtype.kind in "OUS":
        texts = [text.decode() if isinstance(text, bytes) else text for text in labels.tolist()]
        if others := {type(text).__name__ for text in texts if not isinstance(text, str)}:
            raise ValueError(f"labels must be class numbers or texts, got {', '.join(sorted(others))}")
        names = names or tuple(sorted(set(texts)))
        if unknown := set(texts) - set(names):
            raise ValueError(f"the label {min(unknown)!r} is none of the classes {', '.join(names)}")
        number = {name: j for j, name in enumerate(names)}
        return np.array([number[text] for text in texts], dtype=np.int64), names
    if labels.ndim == 1 and labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers or texts, got {labels.dtype}")
    if labels.ndim == 1 and names is None and int(labels.min()) > 0:
        raise ValueError(
            f"class numbers begin at 0, got {labels.min()} to {labels.max()}: subtract {labels.min()}, give texts, or "
            "name all classes with class_names"
        )
    return labels, names


def with_channels(images: NDArray) -> NDArray:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W).

    The axis of 1, 3 or 4 is that of the channels; if both or neither are, the shorter one.
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise ValueError(f"images must have shape (N, H, W), (N, H, W, C) or (N, C, H, W), got {images.shape}")
    first, last = images.shape[1], images.shape[3]
    decided = (first in _CHANNELS) != (last in _CHANNELS)
    return images.transpose(0, 3, 1, 2) if (last in _CHANNELS if decided else last < first) else images


def _is_pair_of_arrays(source: Any) -> bool:
    if not isinstance(source, tuple | list) or len(source) != 2:
        return False
    images, labels = source
    return isinstance(images, np.ndarray | Tensor) and (
        isinstance(labels, list | tuple) or hasattr(labels, "__array__")
    )


def _of_columns(source: Any) -> Labelled:
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise ValueError(f"{type(source).__name__} is streamed, without a length: load it without streaming=True")
    image, label = (_column(source, role) for role in _COLUMNS)
    return Labelled(source, getattr((source.features or {}).get(label), "names", None), (image, label))


def _column(source: Any, role: str) -> str:
    """The column that plays a role: the one whose feature says so, else one with a usual name."""
    feature, usual = _COLUMNS[role]
    columns = list(source.column_names)
    found = [name for name in columns if type((source.features or {}).get(name)).__name__ == feature]
    found = found or [name for name in columns if name in usual]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} columns of {role}s ({', '.join(found)})" if found else f"no column of {role}s"
    raise ValueError(
        f"the dataset has {problem} among {', '.join(columns)}: choose with select_columns, or rename_column to "
        f"{role!r}"
    )
