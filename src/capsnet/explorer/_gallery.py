"""Test pictures to choose from, as the model's data set declares them."""

import threading
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsnet import data
from capsnet.data import Dataset, DatasetInfo
from capsnet.data.base import Singles
from capsnet.explorer._seen import place, tiled
from capsnet.inference.profiles import Profile
from capsnet.models import Model
from capsnet.serving.images import Bytes, quantise, to_wire
from capsnet.serving.problems import Missing

PAGE = 24
NUMBERS = 10_000_000  # of pairs that can be asked for
DEFAULT = "mnist"  # for a model whose card names no data set
NONE = "there is no gallery for this model"


class Examples(NamedTuple):
    """A split whose pictures fit into the model's frame, and the class of each, (N,)."""

    dataset: Dataset
    labels: NDArray[np.int64]


class Gallery:
    """The examples of one model, read on first use.

    Args:
        model: whose data set declares them.
        given: the data set that the user of the command named, for a model whose own declares none.
    """

    def __init__(self, model: Model, given: str | None = None) -> None:
        self.model = model
        self.spec = str(model.card.get("data", DEFAULT))
        self.given = given
        self._lock = threading.Lock()

    def examples(self) -> Examples:
        with self._lock:
            return self._examples

    def exists(self) -> bool:
        """Whether there is anything to choose from."""
        try:
            self.examples()
        except (Missing, ValueError, OSError):
            return False
        return True

    @property
    def info(self) -> DatasetInfo | None:
        """What the model's data set declares; None if it is not registered or its options are wrong."""
        try:
            return data.info(self.spec)
        except (ValueError, OSError):
            return None

    @property
    def source(self) -> str | None:
        """The data set that the examples come from."""
        return self.info.gallery if self.info and self.info.gallery else self.given

    @cached_property
    def _examples(self) -> Examples:
        # only bundled and generated data sets declare one: a card never makes the server download or open a folder
        source = self.source
        if source is None:
            raise Missing(f"{NONE}: its data set, {self.spec[:40]!r}, is not bundled")
        examples, model = read_examples(source), self.model
        height, width = examples.dataset.image_size
        fits = height <= model.image_size[0] and width <= model.image_size[1]
        kind = (examples.dataset.channels, examples.dataset.num_classes)
        if not fits or kind != (model.in_channels, model.num_classes):
            raise Missing(f"{NONE}: the pictures or classes of {source} do not fit it")
        return examples

    def measured_on(self) -> Dataset:
        """The data set that the profile is measured on: the model's own."""
        examples = self.examples()
        own = self.info is not None and self.info.gallery is not None
        return data.load(self.spec, "test") if own else examples.dataset

    def page(self, kind: str, page: int, profile: Profile | None) -> dict[str, Any]:
        """One page of a kind of examples: hard, wrong, any, or those of a class."""
        labels = self.examples().labels
        chosen = self._choose(kind, labels, profile)
        pages = max(1, -(-len(chosen) // PAGE))
        if page >= pages:
            raise Missing(f"there are {pages} pages of this kind, page {page} is not among them")
        shown = chosen[page * PAGE : (page + 1) * PAGE]
        height, width = self.model.image_size
        empty = np.zeros((1, height, width, self.model.in_channels), dtype=np.uint8)
        pictures = self.pictures(shown) if len(shown) else empty
        wrong = {item.index: item.seen_as for item in profile.wrong} if profile else {}
        items = [{"index": int(n), "label": int(labels[n]), "seen_as": wrong.get(int(n))} for n in shown]
        return {"items": items, "sprite": to_wire(tiled(pictures[None])), "pages": pages}

    def _choose(self, kind: str, labels: NDArray[np.int64], profile: Profile | None) -> NDArray[np.int64]:
        if kind == "any":
            return np.arange(len(labels))
        if kind in ("hard", "wrong"):
            known = (profile.hard if kind == "hard" else profile.wrong) if profile else []
            return np.array([item.index for item in known], dtype=np.int64)
        if kind.isascii() and kind.isdigit() and len(kind) < 5 and int(kind) < self.model.num_classes:
            return np.flatnonzero(labels == int(kind))
        raise ValueError(f"kind must be hard, wrong, any or a class from 0 to {self.model.num_classes - 1}")

    def pictures(self, indices: NDArray[np.int64]) -> Bytes:
        """Examples in the middle of the model's frame, (N, H, W, C)."""
        drawn = quantise(self.examples().dataset.batch(indices).images)
        return np.stack([place(picture, self.model.image_size) for picture in drawn])

    def one(self, index: int) -> dict[str, Any]:
        """One example as the network sees it."""
        labels = self.examples().labels
        if not 0 <= index < len(labels):
            raise Missing(f"there are {len(labels)} examples, number {index} is not among them")
        return {"seen": to_wire(self.pictures(np.array([index]))[0]), "label": int(labels[index])}

    def single_digits(self, number: int) -> Singles:
        """Two pictures of different classes and their offsets: the pair of that number."""
        self.examples()
        made = self._pairs.singles(number)
        assert made is not None
        return made

    def pair(self, number: int) -> dict[str, Any]:
        """The same, to send."""
        made = self.single_digits(number)
        first, second = (to_wire(picture) for picture in quantise(made.images))
        return {"first": first, "second": second, "labels": made.classes.tolist(), "offsets": made.offsets.tolist()}

    @cached_property
    def _pairs(self) -> Dataset:
        """The first data set that makes pairs of these pictures."""
        for name in self._pairing():
            if (pairs := data.load(name, "test")).singles(0):
                return pairs
        raise Missing(f"there are no pairs for this model: no data set makes them of {self.source}")

    def has_pairs(self) -> bool:
        """Whether a data set makes pairs of these pictures; nothing is loaded to find out."""
        return self.exists() and bool(self._pairing())

    def _pairing(self) -> list[str]:
        """The data sets of two objects that are made of these pictures."""
        gallery = str(self.info and self.info.gallery).partition(":")[0]
        declared = ((name, data.info(name)) for name in data.list_datasets())
        return [name for name, info in declared if info.objects == 2 and info.gallery == gallery]


@lru_cache(maxsize=8)
def read_examples(spec: str) -> Examples:
    """The test split of a data set with one class per picture."""
    dataset = data.load(spec, "test")
    labels = getattr(dataset, "targets", None)
    if labels is None:
        labels = np.concatenate([batch.targets.numpy() for batch in data.batches(dataset, 500)])
    if labels.ndim != 1:
        raise Missing(f"{NONE}: its examples have several classes each")
    return Examples(dataset, labels)
