"""Every registered data set passes the suite, and the suite detects broken ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capsnet import data
from capsnet.data import ArrayDataset, Batch, _registry
from capsnet.data.readers.cifar import TEST, TRAIN
from capsnet.data.readers.norb import TEST as NORB_TEST
from capsnet.data.readers.norb import TRAIN as NORB_TRAIN
from tests.data import suite
from tests.data.own_images import write_tree
from tests.data.readers import test_cifar, test_fashion, test_norb, test_svhn


def cifar10(folder: Path) -> None:
    for number, name in enumerate((*TRAIN, *TEST)):
        (folder / name).write_bytes(test_cifar.batch_bytes(4 * number, 4))


def small_norb(folder: Path) -> None:
    for part, objects in ((NORB_TRAIN, [9, 4, 7]), (NORB_TEST, [0, 1])):
        test_norb.fill(folder, part, objects)


def svhn(folder: Path) -> None:
    for part, count in (("train", 20), ("test", 12)):
        test_svhn.write(folder / f"{part}_32x32.mat", count)


FILES: dict[str, Callable[[Path], Any]] = {  # what a data set that is not on every machine reads
    "cifar10": cifar10,
    "fashion-mnist": lambda folder: test_fashion.fill(folder / "idx"),
    "folder": lambda folder: write_tree(folder, {"a": 9, "b": 8}),
    "small-norb": small_norb,
    "svhn": svhn,
}
OPTIONS = (  # other kinds of what is registered
    "mnist:per_class=10",
    "multimnist:shift=6,canvas=36",
    "affnist:source=generated,versions=2",
    "corrupted-mnist:kind=noise",
    "shapes:kind=crowded,objects=3",
    "shapes:kind=scrambled",
    "shapes:kind=parts",
    "outlines:objects=3",
    "outlines:digit=true",
    "sentences:labels=multi",
    "folder,size=8x12,fit=pad,channels=rgb",
    "small-norb,views=left,size=30",
)


@pytest.fixture(scope="module")
def spec_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A spec that can be loaded offline, for a name or for NAME,options where a path has to come between."""

    def make(text: str) -> str:
        name, comma, options = text.partition(",")
        if data.info(name.partition(":")[0]).source in ("bundled", "generated"):
            return text
        assert name in FILES, f"tell this test how to make files for {name}"
        folder = tmp_path_factory.mktemp(name)
        FILES[name](folder)
        inner = next((path for path in folder.glob("idx")), folder)
        return f"{name}:{inner}{comma}{options}"

    return make


@pytest.mark.parametrize("check", suite.CHECKS)
@pytest.mark.parametrize("text", [*data.list_datasets(), *OPTIONS])
def test_data_set_keeps_the_contract(text: str, check: str, spec_of: Callable[[str], str]) -> None:
    suite.CHECKS[check](spec_of(text))


def test_another_process_makes_the_same_examples(spec_of: Callable[[str], str]) -> None:
    suite.another_process([spec_of(text) for text in (*data.list_datasets(), *OPTIONS)])


class Unsteady(ArrayDataset):
    """Examples depend on earlier calls."""

    calls = 0

    def batch(self, indices, **options) -> Batch:
        self.calls += 1
        made = super().batch(indices, **options)
        return made._replace(images=made.images / (1 + self.calls))


class Careless(ArrayDataset):
    """Has more classes than names."""

    def batch(self, indices, **options) -> Batch:
        made = super().batch(indices, **options)
        return made._replace(targets=made.targets + 3)


def pictures(split: str, kind: type[ArrayDataset] = ArrayDataset, *, shared: bool = False) -> ArrayDataset:
    seed = 0 if shared else suite.PARTS.index(split)
    images = np.random.default_rng(seed).integers(0, 256, (20, 1, 9, 9), dtype=np.uint8)
    return kind(images, np.arange(20) % 3, ("a", "b", "c"), name=split)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(_registry, "_ENTRIES", dict(_registry._ENTRIES))

    def make(make_split: Callable[[str], ArrayDataset], **declared: Any) -> str:
        data.register("made", "Made for a test", suite.PARTS, path="none", **declared)(make_split)
        return "made"

    return make


def test_suite_accepts_a_data_set_from_outside(registered: Callable[..., str]) -> None:
    suite.check(registered(lambda split: pictures(split), objects=1))


@pytest.mark.parametrize(
    ("make_split", "declared", "message"),
    [
        (lambda split: pictures(split, Unsteady), {}, "differ"),
        (lambda split: pictures(split, Careless), {}, "a target is not a class"),
        (lambda split: pictures(split, shared=True), {}, "share examples"),
        (lambda split: pictures(split), {"objects": 2}, "declared to have more objects"),
        (lambda split: pictures(split), {"objects": 1, "gallery": "shapes"}, "other classes"),
    ],
)
def test_suite_notices_broken_data_sets(
    registered: Callable[..., str], make_split: Callable[[str], ArrayDataset], declared: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        suite.check(registered(make_split, **declared))
