"""The data of a run that was given in Python: its splits or folds, and how the run records it.

There are no file names to draw splits by, so an example is known by its pixels: the splits do not depend on the order
of the examples, and copies of an image stay together.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet._names import check_name
from capsnet.data import keyed
from capsnet.data._adapt import adapt
from capsnet.data._registry import GIVEN
from capsnet.data.base import ArrayDataset, Dataset, Subset, batches
from capsnet.data.folders._stratify import Examples, draw_folds, draw_parts
from capsnet.data.labelled import labelled

FRACTION = 0.15  # of each class, for validation and for test, as in folders
_SAMPLE = 1000  # examples that a fingerprint is made of
_NAMES = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}


class Given(NamedTuple):
    """Data given in Python: ``spec`` is what a configuration records, ``splits`` are train, validation and test."""

    spec: str
    splits: dict[str, Dataset]

    def load(self, split: str) -> Dataset:
        """A split, or ``train+validation``."""
        if split == "train+validation":
            return _joined(self.splits["train"], self.splits["validation"])
        return self.splits[split]


class Folded(NamedTuple):
    """The folds of data given in Python; ``spec`` is that of all of it."""

    spec: str
    folds: list[Given]


def given(source: Any) -> Given:
    """The splits of one source (see ``adapt``), or of a mapping of splits to sources.

    A split that is missing is drawn: 15 % of each class for validation and for test.
    """
    if isinstance(source, Given):
        return source
    splits = _adapted(source) if isinstance(source, Mapping) else {"train": adapt(source)}
    spec = f"{GIVEN}:{fingerprint(*splits.values())}"
    missing = [name for name in ("test", "validation") if name not in splits]
    if missing:
        whole = splits["train"]
        parts = draw_parts(_examples(whole), (FRACTION,) * len(missing), seed=0, stream="given.split")
        splits |= {name: _part(whole, parts == k, name) for k, name in enumerate((*missing, "train"))}
    return Given(spec, {name: splits[name] for name in ("train", "validation", "test")})


def given_folds(source: Any, folds: int) -> Folded:
    """Each of ``folds`` parts of one source as the test split once, and the others as train and validation."""
    if isinstance(source, Mapping):
        raise ValueError(f"folds need all examples in one source, got a mapping of {', '.join(map(str, source))}")
    dataset = adapt(source)
    spec, examples = f"{GIVEN}:{fingerprint(dataset)}", _examples(dataset)
    numbers, cut = draw_folds(examples, folds, seed=0, stream="given.folds"), []
    for fold in range(folds):
        where, rest = np.full(len(dataset), 2), np.flatnonzero(numbers != fold)
        where[rest] = draw_parts(examples.take(rest), (FRACTION,), seed=0, stream=f"given.validation.{fold}")
        splits = {name: _part(dataset, where == k, name) for k, name in enumerate(("validation", "train", "test"))}
        cut.append(Given(f"{spec},folds={folds},fold={fold}", splits))
    return Folded(spec, cut)


def fingerprint(*datasets: Dataset) -> str:
    """A hash of the classes, the numbers of examples, and up to 1,000 examples of each data set."""
    digest = hashlib.sha256()
    for dataset in datasets:
        shape = [len(dataset), dataset.channels, *dataset.image_size]
        digest.update(json.dumps([list(dataset.class_names), shape]).encode())
        some = np.unique(np.linspace(0, len(dataset) - 1, min(_SAMPLE, len(dataset))).round().astype(np.int64))
        batch = dataset.batch(some)
        digest.update(batch.images.numpy().tobytes() + batch.targets.numpy().tobytes())
    return digest.hexdigest()[:16]


def split_off(dataset: Dataset, fraction: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """(the rest, a ``fraction`` of each class), drawn by the pixels of the examples."""
    parts = draw_parts(_examples(dataset), (fraction,), seed=seed, stream="given.split")
    return _part(dataset, parts == 1, "train"), _part(dataset, parts == 0, "validation")


def _adapted(sources: Mapping[str, Any]) -> dict[str, Dataset]:
    found: dict[str, Any] = {}
    for key, source in sources.items():
        name = _NAMES[check_name("split of the data", str(key), _NAMES)]
        if name in found:
            raise ValueError(f"the split {name} is given twice: {', '.join(map(str, sources))}")
        found[name] = source
    if "train" not in found:
        raise ValueError(f"a mapping of splits needs train, got {', '.join(map(str, sources)) or 'an empty one'}")
    splits = {"train": adapt(found.pop("train"))}
    classes = splits["train"].class_names
    for name, source in found.items():
        own = source.class_names if isinstance(source, Dataset) else labelled(source).class_names
        if own is not None and own != classes:
            raise ValueError(f"the split {name} has the classes {', '.join(own)}, train has {', '.join(classes)}")
        splits[name] = adapt(source, classes)  # a smaller split may lack some of them
    return splits


def _part(dataset: Dataset, chosen: NDArray[np.bool_], name: str) -> Dataset:
    rows = np.flatnonzero(chosen)
    order = keyed.permutation(0, 0, len(rows), "given.order")  # the first n should be of all classes
    return dataset.subset(rows[order], name=f"{dataset.name} {name}")


def _examples(dataset: Dataset) -> Examples:
    """What a split needs to know; an example's name is a hash of its pixels."""
    names: list[str] = []
    targets = []
    for batch in batches(dataset, 500):
        names += [hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest() for image in batch.images.numpy()]
        targets.append(batch.targets)
    labels = torch.cat(targets).numpy()
    member = labels > 0 if labels.ndim == 2 else labels[:, None] == np.arange(dataset.num_classes)
    groups = np.unique(names, return_inverse=True)[1].astype(np.int64)
    return Examples(dataset.name, tuple(names), member, groups, dataset.class_names)


def _joined(first: Dataset, second: Dataset) -> Dataset:
    name = f"{first.name}+validation"
    arrays = [part for part in (first, second) if isinstance(part, ArrayDataset)]
    if len(arrays) == 2 and arrays[0].images.dtype == arrays[1].images.dtype:
        images, targets = (np.concatenate([getattr(part, key) for part in arrays]) for key in ("images", "targets"))
        whole = ArrayDataset(images, targets, first.class_names, name=name)
        whole.preprocess = first.preprocess
        return whole
    if isinstance(first, Subset) and isinstance(second, Subset) and first.dataset is second.dataset:
        return Subset(first.dataset, np.concatenate([first.indices, second.indices]), name=name)
    raise ValueError("train_on=train+validation needs both splits as arrays: give one source, or join them first")
