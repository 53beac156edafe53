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
from capsnet.metrics import multi_hot
from capsnet.models import Model
from capsnet.serving.images import Bytes, quantise, to_wire
from capsnet.serving.problems import Missing

PAGE = 24
NUMBERS = 10_000_000  # of pairs that can be asked for
DEFAULT = "mnist"  # for a model whose card names no data set
NONE = "there is no gallery for this model"


class Examples(NamedTuple):
    """A split whose pictures fit into the model's frame, and whether each class is in each picture, (N, J)."""

    dataset: Dataset
    classes: NDArray[np.bool_]

    def labels(self, index: int) -> list[int]:
        """The classes of one picture."""
        return np.flatnonzero(self.classes[index]).tolist()


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
        examples = self.examples()
        chosen = self._choose(kind, examples.classes, profile)
        pages = max(1, -(-len(chosen) // PAGE))
        if page >= pages:
            raise Missing(f"there are {pages} pages of this kind, page {page} is not among them")
        shown = chosen[page * PAGE : (page + 1) * PAGE]
        height, width = self.model.image_size
        empty = np.zeros((1, height, width, self.model.in_channels), dtype=np.uint8)
        pictures = self.pictures(shown) if len(shown) else empty
        wrong = {item.index: item.seen_as for item in profile.wrong} if profile else {}
        items = [{"index": int(n), "labels": examples.labels(n), "seen_as": wrong.get(int(n))} for n in shown]
        return {"items": items, "sprite": to_wire(tiled(pictures[None])), "pages": pages}

    def _choose(self, kind: str, classes: NDArray[np.bool_], profile: Profile | None) -> NDArray[np.int64]:
        if kind == "any":
            return np.arange(len(classes))
        if kind in ("hard", "wrong"):
            known = (profile.hard if kind == "hard" else profile.wrong) if profile else []
            return np.array([item.index for item in known], dtype=np.int64)
        if kind.isascii() and kind.isdigit() and len(kind) < 5 and int(kind) < self.model.num_classes:
            return np.flatnonzero(classes[:, int(kind)])
        raise ValueError(f"kind must be hard, wrong, any or a class from 0 to {self.model.num_classes - 1}")

    def pictures(self, indices: NDArray[np.int64]) -> Bytes:
        """Examples in the middle of the model's frame, (N, H, W, C)."""
        drawn = quantise(self.examples().dataset.batch(indices).images)
        return np.stack([place(picture, self.model.image_size) for picture in drawn])

    def one(self, index: int) -> dict[str, Any]:
        """One example as the network sees it."""
        examples = self.examples()
        if not 0 <= index < len(examples.classes):
            raise Missing(f"there are {len(examples.classes)} examples, number {index} is not among them")
        return {"seen": to_wire(self.pictures(np.array([index]))[0]), "labels": examples.labels(index)}

    def two(self, number: int) -> Singles:
        """Two pictures of different classes and their offsets: the pair of that number."""
        self.examples()
        made = self._pairs.singles(number)
        assert made is not None
        return made

    def pair(self, number: int) -> dict[str, Any]:
        """The same, to send."""
        made = self.two(number)
        first, second = (to_wire(picture) for picture in quantise(made.images))
        return {"first": first, "second": second, "labels": made.classes.tolist(), "offsets": made.offsets.tolist()}

    @cached_property
    def _pairs(self) -> Dataset:
        """The model's own data set if it makes pairs, else the first that makes pairs of these pictures."""
        for name in self._pairing():
            if (pairs := data.load(name, "test")).singles(0):
                return pairs
        raise Missing(f"there are no pairs for this model: no data set makes them of {self.source}")

    def has_pairs(self) -> bool:
        """Whether a data set makes pairs of these pictures; only the examples are loaded to find out."""
        return self.exists() and bool(self._pairing())

    def _pairing(self) -> list[str]:
        """The model's own data set of two objects, or those that are made of these pictures."""
        info = self.info
        if info is None or info.gallery is None:
            return []
        if info.objects == 2:
            return [self.spec]
        gallery = info.gallery.partition(":")[0]
        declared = ((name, data.info(name)) for name in data.list_datasets() if name != gallery)
        return [name for name, other in declared if other.objects == 2 and other.gallery == gallery]


@lru_cache(maxsize=8)
def read_examples(spec: str) -> Examples:
    """The test split of a data set."""
    dataset = data.load(spec, "test")
    targets = getattr(dataset, "targets", None)
    if targets is None:
        targets = np.concatenate([batch.targets.numpy() for batch in data.batches(dataset, 500)])
    return Examples(dataset, multi_hot(targets, len(dataset), dataset.num_classes))
