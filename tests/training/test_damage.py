"""Resuming: damage to a checkpoint and replaced data are noticed, and older checkpoints still resume."""

import dataclasses
import logging
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import capsnet
from capsnet import data
from capsnet.data.fingerprint import find_difference, fingerprint
from capsnet.training import TrainConfig
from tests.training.test_resume import interrupt


@pytest.fixture
def begun(quick: TrainConfig, tmp_path: Path, idx_folder: Path) -> Path:
    """A run that was stopped after two steps, on data of its own."""
    shutil.copytree(idx_folder, tmp_path / "data")
    config = own(quick, tmp_path)
    return interrupt(config, 2, out=tmp_path / "run")


def own(quick: TrainConfig, tmp_path: Path) -> TrainConfig:
    return dataclasses.replace(quick, data=f"mnist:{tmp_path / 'data'}", epochs=1, tensorboard=False)


def resume(quick: TrainConfig, run: Path) -> None:
    capsnet.train(own(quick, run.parent), resume=run, figures=False)


def test_flipped_bits_in_a_checkpoint_are_noticed(begun: Path, quick: TrainConfig) -> None:
    content = (begun / "checkpoint.pt").read_bytes()
    size = len(content)
    value = struct.pack("<f", float(torch.load(begun / "checkpoint.pt")["model"]["conv.weight"].flatten()[3]))
    for place in (content.index(value), content.index(value) + 3, size // 2, size // 3):
        damaged = bytearray(content)
        damaged[place] ^= 4
        (begun / "checkpoint.pt").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"checkpoint\.pt is not a usable checkpoint: it is damaged"):
            resume(quick, begun)
    (begun / "checkpoint.pt").write_bytes(content[:-100])
    with pytest.raises(ValueError, match="it is damaged"):
        resume(quick, begun)
    (begun / "checkpoint.pt").write_bytes(content)
    resume(quick, begun)


def test_replaced_data_is_refused(begun: Path, quick: TrainConfig) -> None:
    for stem, split, says in (
        ("train-images", "training", "(some )?examples have another content"),
        ("t10k-images", "test", "(some )?examples have another content"),
        ("train-labels", "training", "examples have (other classes|another content)"),
    ):
        path = next((begun.parent / "data").glob(f"{stem}*"))
        content = bytearray(path.read_bytes())
        before = bytes(content)
        if stem == "train-labels":
            content[8:] = content[8:][::-1]
        else:
            content[16 : 16 + 28 * 28] = bytes(28 * 28)  # the first image
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"begun with another {split} split: {says}; restore the data"):
            resume(quick, begun)
        path.write_bytes(before)
    resume(quick, begun)


def test_older_checkpoint_resumes_with_a_note(
    begun: Path, quick: TrainConfig, caplog: pytest.LogCaptureFixture
) -> None:
    content = torch.load(begun / "checkpoint.pt")
    del content["digest"], content["data"]
    torch.save(content, begun / "checkpoint.pt")
    with caplog.at_level(logging.WARNING, "capsnet"):
        resume(quick, begun)
    assert "has no digest: damage to it would not be noticed" in caplog.text
    assert "whether the data is still the same is not checked" in caplog.text


def arrays(seed: int = 0, count: int = 300) -> data.ArrayDataset:
    random = np.random.default_rng(seed)
    return data.ArrayDataset(random.integers(0, 256, (count, 1, 12, 12), np.uint8), random.integers(0, 3, count))


def test_fingerprint_tells_replaced_data_from_other_decoders() -> None:
    before = fingerprint(arrays())
    assert find_difference(before, fingerprint(arrays())) is None
    assert find_difference(before, fingerprint(arrays(count=299))) == "there were 300 examples, now there are 299"
    assert find_difference(before, fingerprint(arrays(seed=1))) == "examples have other classes"
    one = arrays()
    one.images[17] ^= 255
    assert find_difference(before, fingerprint(one)) in (
        "some examples have another content",
        "examples have another content",
    )
    shade = arrays()
    shade.images[:] = np.where(shade.images < 255, shade.images + 1, 254)  # as another decoder may do it
    assert find_difference(before, fingerprint(shade)) is None
    named = data.ArrayDataset(arrays().images, arrays().targets, ["a", "b", "c"])
    assert find_difference(before, fingerprint(named)) == "the classes were 0, 1, 2, now they are a, b, c"


@pytest.mark.parametrize("name", ["shapes", "outlines", "sentences"])
def test_fingerprint_of_generated_data_is_stable(name: str) -> None:
    one, two = (fingerprint(data.load(name, "train"), seed=3) for _ in range(2))
    assert find_difference(one, two) is None
    other = fingerprint(data.load(name, "test"), seed=3)
    assert find_difference(one, other) is not None
