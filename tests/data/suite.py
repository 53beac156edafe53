"""One suite for all data sets: checks that take a spec and raise AssertionError.

They are plain functions, so that any test can run them on a data set that it registered itself: ``check("mine")``.
"""

import hashlib
import inspect
import json
import socket
import subprocess
import sys
from collections.abc import Iterable
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet import data
from capsnet.data import ArrayDataset, Batch, Dataset, Preprocess, Words

PARTS = ("train", "validation", "test")  # splits that must not share an example
SOME = 200  # generated examples of a split that are compared


def check(spec: str) -> None:
    """Run all checks but ``another_process``, which needs to know how to register the data set there."""
    for one in CHECKS.values():
        one(spec)


def some_indices(dataset: Dataset, count: int = 12) -> NDArray[np.int64]:
    """Indices from the entire data set, unordered."""
    return np.random.default_rng(0).permutation(len(dataset))[:count]


def same(a: Batch, b: Batch) -> None:
    for first, second in zip([*a[:3], *(a.sources or ())], [*b[:3], *(b.sources or ())], strict=True):
        assert torch.equal(first, second), "the same examples differ"


def declarations_are_true(spec: str) -> None:
    info = data.info(spec)
    assert info.name in data.list_datasets()
    assert 10 < len(info.description) < 130
    assert "\n" not in info.description
    assert "test" in info.splits
    assert inspect.Parameter.empty not in info.options.values(), "an option has no default"
    with patch.object(socket, "create_connection", side_effect=AssertionError(f"{spec} uses the network")):
        dataset = data.load(spec, "test")
    assert dataset.origin == "original" or info.source == "generated", "generated data must be declared so"
    batch = dataset.batch(some_indices(dataset))
    if batch.targets.ndim == 1:
        assert info.objects in (1, None), "an example has one class but is declared to have more objects"
    elif info.objects is not None:
        assert (batch.targets.sum(dim=1) == info.objects).all(), "objects must be the number of classes per example"
    if batch.sources is not None:
        assert batch.sources.images.shape[1] == info.objects
    made = dataset.singles(3)
    if made is not None:
        assert info.objects == len(made.images) == len(made.classes) == len(made.offsets)
        assert dataset.batch([3]).targets[0].nonzero()[:, 0].tolist() == sorted(made.classes.tolist())
        assert info.gallery is not None, "the single pictures are those of a gallery"
        shown = data.load(info.gallery, "test").image_size
        assert all(side <= most for side, most in zip(made.images.shape[2:], shown, strict=True))
        check_singles(made, dataset.batch([3]))
    if info.gallery is not None:
        shown = data.load(info.gallery, "test")
        assert shown.class_names == dataset.class_names, "a gallery shows other classes"
        assert shown.channels == dataset.channels


def check_singles(made: data.Singles, batch: data.Batch) -> None:
    """Each object, put into the middle of the picture and moved, is where it is in the picture."""
    assert batch.sources is not None
    height, width = batch.images.shape[2:]
    for one, offset, where in zip(made.images, made.offsets.tolist(), batch.sources.images[0], strict=True):
        y, x = (
            (whole - part) // 2 + move for whole, part, move in zip((height, width), one.shape[1:], offset, strict=True)
        )
        wide = torch.nn.functional.pad(where, (width, width, height, height))
        assert torch.equal(one, wide[:, height + y : height + y + one.shape[1], width + x : width + x + one.shape[2]])
        assert one.count_nonzero() == where.count_nonzero(), "a part is missing"


def examples_are_valid(spec: str) -> None:
    for split in data.info(spec).splits:
        dataset = data.load(spec, split)
        index = some_indices(dataset)
        batch = dataset.batch(index)
        B, J = len(index), dataset.num_classes
        assert J == len(set(dataset.class_names)) > 0
        assert batch.indices.tolist() == index.tolist()
        if dataset.vocabulary:
            assert batch.images.dtype == torch.int64
            assert batch.images.shape == (B, dataset.image_size[1])
            assert 0 <= batch.images.min() <= batch.images.max() < len(dataset.vocabulary)
        else:
            assert batch.images.dtype == torch.float32
            assert batch.images.shape == (B, dataset.channels, *dataset.image_size)
            assert 0 <= batch.images.min() <= batch.images.max() <= 1
        if batch.targets.ndim == 1:
            assert batch.targets.dtype == torch.int64
            assert batch.targets.shape == (B,)
            assert 0 <= batch.targets.min() <= batch.targets.max() < J, "a target is not a class"
        else:
            assert batch.targets.dtype == torch.float32
            assert batch.targets.shape == (B, J)
            assert set(batch.targets.unique().tolist()) <= {0.0, 1.0}
        if batch.sources is not None:
            hot = torch.zeros_like(batch.targets).scatter_(1, batch.sources.classes, 1.0)
            assert torch.equal(hot, batch.targets), "sources are of other classes than the targets"
        stored = getattr(dataset, "targets", None)
        if stored is not None:
            np.testing.assert_array_equal(stored[index], batch.targets.numpy())


def examples_are_deterministic(spec: str) -> None:
    """Alone or in a batch, in any order, from any loading: the same example."""
    for split in {data.info(spec).splits[0], "test"}:
        dataset, again = data.load(spec, split), data.load(spec, split)
        index = some_indices(dataset)
        expected = dataset.batch(index, seed=3, epoch=5)
        same(expected, dataset.batch(index, seed=3, epoch=5))
        backwards = again.batch(index[::-1], seed=3, epoch=5)
        for row in range(0, len(index), 5):
            alone = again.batch(index[row : row + 1], seed=3, epoch=5)
            assert torch.equal(alone.images[0], expected.images[row]), "an example depends on its batch"
            assert torch.equal(backwards.images[-1 - row], expected.images[row]), "an example depends on the order"
            assert torch.equal(backwards.targets[-1 - row], expected.targets[row])


def splits_do_not_overlap(spec: str) -> None:
    contents = {split: _contents(data.load(spec, split)) for split in PARTS if split in data.info(spec).splits}
    for one, other in ((a, b) for a in contents for b in contents if a < b):
        assert not contents[one] & contents[other], f"{one} and {other} share examples"


def _contents(dataset: Dataset) -> set[bytes]:
    """Hashes of what a split is made of: stored pictures, or the digits of generated ones, or generated examples."""
    source = getattr(dataset, "digits", dataset)
    rows = source.images if isinstance(source, ArrayDataset) else source.batch(range(min(SOME, len(source)))).images
    return {hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest() for row in np.asarray(rows)}


def preprocessing_survives_storage(spec: str) -> None:
    """Preprocessing as stored with the weights gives the same input as the data set's object."""
    dataset = data.load(spec, "test")
    prepare = dataset.preprocess
    assert dataset.subset([0]).preprocess == prepare
    if prepare is None:
        assert dataset.channels not in (1, 3) or min(dataset.image_size) < 8
        return
    again = type(prepare)(**json.loads(json.dumps(prepare.model_dump())))
    assert again == prepare
    example = dataset.batch([0]).images[0]
    if isinstance(prepare, Words):
        text = prepare.text(example.numpy())
        assert torch.equal(again(text), prepare(text))
        assert prepare(text).tolist() == example[example > 0].tolist()
        return
    assert isinstance(prepare, Preprocess)
    assert (prepare.channels, prepare.height, prepare.width) == (dataset.channels, *dataset.image_size)
    picture = (example.movedim(0, -1) * 255).round().to(torch.uint8).numpy()  # (H, W, C), as a file holds it
    prepared = prepare(picture)
    assert torch.equal(again(picture), prepared)
    assert prepared.shape == example.shape
    if prepare.style == "plain":
        torch.testing.assert_close(prepared, example, rtol=0, atol=1.01 / 255)


def subsets_keep_examples(spec: str) -> None:
    dataset = data.load(spec, "test")
    last = len(dataset) - 1
    some = dataset.subset([last, 0], name="two")
    assert (len(some), some.name, some.class_names) == (2, "two", dataset.class_names)
    assert (some.image_size, some.channels, some.origin) == (dataset.image_size, dataset.channels, dataset.origin)
    batch, expected = some.batch([1, 0], epoch=2), dataset.batch([0, last], epoch=2)
    same(batch, expected._replace(indices=torch.tensor([1, 0])))
    for wrong in ([2], [-1], [[0]]):
        _refused(lambda wrong=wrong: some.batch(wrong))


def versions_share_their_target(spec: str) -> None:
    """Of which original each example is a version, where a data set says so; also of a subset."""
    dataset = data.load(spec, "test")
    originals = dataset.originals()
    if originals is None:
        return
    assert originals.shape == (len(dataset),)
    assert len(np.unique(originals)) < len(dataset)
    first = np.flatnonzero(originals == originals[0])
    assert len(np.unique(dataset.batch(first).targets.numpy(), axis=0)) == 1
    chosen = dataset.subset(first[::-1]).originals()
    assert chosen is not None
    assert set(chosen.tolist()) == {int(originals[0])}


def bad_names_are_refused(spec: str) -> None:
    _refused(lambda: data.load(spec, "no-such-split"), "no-such-split", *data.info(spec).splits)
    _refused(lambda: data.load(f"{spec}{',' if ':' in spec else ':'}no_such_option=1", "test"), "no_such_option")


def _refused(call, *words: str) -> None:
    """Whether the call raises one sentence that contains all words."""
    try:
        call()
    except (ValueError, OSError) as error:
        text = str(error)
        assert "\n" not in text
        assert all(word in text for word in words), text
        return
    raise AssertionError("bad input was accepted")


def digest(spec: str) -> str:
    """A hash of some examples of all splits of a data set."""
    total = hashlib.sha256()
    for split in data.info(spec).splits:
        dataset = data.load(spec, split)
        batch = dataset.batch(some_indices(dataset), seed=1, epoch=2)
        for tensor in [*batch[:3], *(batch.sources or ())]:
            total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def another_process(specs: Iterable[str], setup: str = "") -> None:
    """Another process makes the same examples. ``setup`` is code that registers there what is not in the package."""
    listed = list(specs)
    code = f"{setup}\nfrom tests.data.suite import digest\nfor spec in {listed!r}: print(digest(spec))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [digest(spec) for spec in listed]


CHECKS = {
    check.__name__: check
    for check in (
        declarations_are_true,
        examples_are_valid,
        examples_are_deterministic,
        splits_do_not_overlap,
        preprocessing_survives_storage,
        subsets_keep_examples,
        versions_share_their_target,
        bad_names_are_refused,
    )
}
