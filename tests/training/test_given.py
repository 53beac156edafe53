"""Runs on data that were given in Python."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import TensorDataset

import capsnet
from capsnet import data
from capsnet.training import Interrupted, loop


def blocks(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of 18 x 18 whose class is the corner of a bright block."""
    generator = np.random.default_rng(seed)
    images, labels = generator.integers(0, 40, (count, 18, 18), dtype=np.uint8), np.arange(count) % 3
    for image, label in zip(images, labels, strict=True):
        y, x = 9 * (int(label) // 2), 9 * (int(label) % 2)
        image[y + 1 : y + 8, x + 1 : x + 8] = 220
    return images, labels


CONFIG = capsnet.TrainConfig(
    recipe="given",
    model="capsnet",
    model_options={"conv_channels": 4, "primary_types": 2},
    decoder=False,
    epochs=2,
    batch_size=16,
    lr=1e-2,
    checkpoint_every=3,
    tensorboard=False,
)


def test_a_pair_of_arrays_is_split_and_recorded(tmp_path: Path) -> None:
    images, labels = blocks()
    done = capsnet.train(CONFIG, data=(images, labels), out=tmp_path / "run", figures=False)
    assert done.test.accuracy.n == 18  # 15 % of each of three classes of 40
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["data"].startswith("python:")
    assert capsnet.load(tmp_path / "run").card["data"] == saved["data"]
    page = (tmp_path / "run" / "README.md").read_text()
    assert "data given in Python" in page
    assert "capsnet evaluate" not in page
    with pytest.raises(ValueError, match=r"given in Python and is not stored .*: pass a data set") as caught:
        capsnet.evaluate(tmp_path / "run")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="given in Python"):
        capsnet.train(capsnet.read_config(tmp_path / "run" / "config.json"), out=tmp_path / "again")
    assert capsnet.evaluate(tmp_path / "run", (images, labels)).accuracy.n == 120


def test_splits_do_not_depend_on_the_order_and_keep_copies_together() -> None:
    images, labels = blocks(60)
    images[3] = images[0]  # a copy
    one, order = data.given((images, labels)), np.random.default_rng(0).permutation(60)
    other = data.given((images[order], labels[order]))

    def pictures(parts: data.Given, split: str) -> set[bytes]:
        loaded = parts.load(split)
        return {image.numpy().tobytes() for image in loaded.batch(range(len(loaded))).images}

    for split in ("train", "validation", "test"):
        assert pictures(one, split) == pictures(other, split)
    parts = [pictures(one, split) for split in ("train", "validation", "test")]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    assert sum(len(one.load(split)) for split in ("train", "validation", "test")) == 60
    assert len(one.load("train+validation")) == len(one.load("train")) + len(one.load("validation"))


def test_a_mapping_of_splits_is_used_as_it_is(tmp_path: Path) -> None:
    images, labels = blocks(60)
    names = np.array(["left", "right", "below"])[labels]
    parts = data.given({"train": (images, names), "val": (images[:6], names[:6])})
    assert (len(parts.load("validation")), len(parts.load("test"))) == (6, 9)  # the test split is drawn from train
    # the small split lacks a class: it is numbered as train is
    parts = data.given({"train": (images, names), "validation": (images[:2], names[:2]), "test": (images, names)})
    assert parts.load("validation").batch([0, 1]).targets.tolist() == [1, 2]
    done = capsnet.train(
        dataclasses.replace(CONFIG, train_on="train+validation", epochs=1),
        data={"train": (images, names), "validation": (images[:2], names[:2]), "test": (images[:9], names[:9])},
        out=tmp_path / "run",
        figures=False,
    )
    assert (done.test.accuracy.n, done.model.class_names) == (9, ("below", "left", "right"))


def test_an_interrupted_run_continues_with_the_same_data_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = blocks()
    whole = capsnet.train(CONFIG, data=source, out=tmp_path / "whole", figures=False)
    steps = []

    def counted(*arguments: Any) -> None:
        steps.append(loop.__dict__["_train_step"](*arguments))
        if len(steps) == 4:
            raise Interrupted(tmp_path / "run")

    monkeypatch.setattr(loop, "_train_step", loop.train_step, raising=False)
    monkeypatch.setattr(loop, "train_step", counted)
    with pytest.raises(Interrupted):
        capsnet.train(CONFIG, data=source, out=tmp_path / "run", figures=False)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="another configuration: data differ"):
        capsnet.train(CONFIG, data=blocks(seed=1), resume=tmp_path / "run", figures=False)
    done = capsnet.train(CONFIG, data=source, resume=tmp_path / "run", figures=False)
    assert done.test.metrics == whole.test.metrics
    for one, other in zip(done.model.parameters(), whole.model.parameters(), strict=True):
        assert one.equal(other)


def test_cross_validation_tests_every_example_once(tmp_path: Path) -> None:
    images, labels = blocks(60)
    config = dataclasses.replace(CONFIG, epochs=1)
    done = capsnet.cross_validate(config, 2, data=TensorDataset(*map(_tensor, (images, labels))), out=tmp_path / "cv")
    assert done.pooled.n == 60
    specs = [json.loads((tmp_path / "cv" / f"fold-{k}" / "config.json").read_text())["data"] for k in (0, 1)]
    assert [spec.partition(",")[2] for spec in specs] == ["folds=2,fold=0", "folds=2,fold=1"]
    again = capsnet.cross_validate(config, 2, data=(images, labels), out=tmp_path / "cv", resume="auto")
    assert again.accuracies == done.accuracies  # nothing was trained again
    with pytest.raises(ValueError, match="are not those that the cross-validation"):
        capsnet.cross_validate(config, 2, data=blocks(60, seed=1), out=tmp_path / "cv", resume="auto")
    start = dataclasses.replace(config, init=str(tmp_path / "cv" / "fold-0"))
    with pytest.raises(ValueError, match=r"was trained on python:.*images that the folds test"):
        capsnet.cross_validate(start, 2, data=(images, labels), out=tmp_path / "new")


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"test": blocks(9)}, "a mapping of splits needs train, got test"),
        ({"train": blocks(9), "dev": blocks(9)}, "unknown split of the data 'dev'"),
        ({"train": blocks(9), "val": blocks(9), "validation": blocks(9)}, "the split validation is given twice"),
        ({"train": data.ArrayDataset(blocks(9)[0][:, None], blocks(9)[1], "abc"), "test": 3}, "expected .* got int"),
        (blocks(6), "every class needs at least 3 different images"),
        (3, "expected a data set of this package"),
    ],
)
def test_other_sources_are_refused(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data.given(source)


def test_folds_need_one_source() -> None:
    with pytest.raises(ValueError, match="folds need all examples in one source, got a mapping of train"):
        capsnet.cross_validate(CONFIG, 2, data={"train": blocks(9)})
