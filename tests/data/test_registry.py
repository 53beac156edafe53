"""Data sets by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capsnet.data import ArrayDataset, _registry, describe, list_datasets, load, register, splits_of

from .test_mnist import make_folder


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_ENTRIES", dict(_registry._ENTRIES))

    @register("toy", "Two grey pixels", ("all",), path="none")
    def make(split: str) -> ArrayDataset:
        return ArrayDataset(np.zeros((2, 1, 1, 1), np.uint8), np.array([0, 1]), name=split)

    @register("files", "Whatever is there", ("all",), path="required")
    def read(split: str, path: Path) -> ArrayDataset:
        return ArrayDataset(np.zeros((1, 1, 1, 1), np.uint8), np.array([0]), name=str(path))


def test_mnist_by_name(tmp_path: Path) -> None:
    assert "mnist" in list_datasets()
    assert "28x28" in describe("mnist")
    assert splits_of("mnist:/some/where") == ("train", "validation", "train+validation", "test")
    assert len(load("mnist", "test")) == 10_000
    assert len(load(f"mnist:{make_folder(tmp_path / 'own')}", "test")) == 4


def test_a_new_one_is_one_registration(toy: None, tmp_path: Path) -> None:
    assert {"toy", "files"} <= set(list_datasets())
    assert load("toy", "all").name == "all"
    (tmp_path / "x").touch()
    assert load(f"files:{tmp_path}", "all").name == str(tmp_path)
    with pytest.raises(ValueError, match="toy takes no path, got 'toy:/x'"):
        load("toy:/x", "all")
    with pytest.raises(ValueError, match="files needs a path: write files:PATH"):
        load("files", "all")
    with pytest.raises(ValueError, match="already registered"):
        register("toy", "", ())(load)


def test_errors_are_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'mnits'. Did you mean 'mnist'\? Known: .*mnist"):
        load("mnits", "train")
    with pytest.raises(ValueError, match=r"unknown split of mnist 'tset'. Did you mean 'test'\? Known: train, "):
        load("mnist", "tset")
    with pytest.raises(ValueError, match="unknown data set 'zzz'"):
        describe("zzz")
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such file or folder"):
        load(f"mnist:{tmp_path}/nowhere", "train")
    with pytest.raises(ValueError, match="the folder is empty"):
        load(f"mnist:{tmp_path}", "train")
    with pytest.raises(ValueError, match="expected a path after the colon"):
        load("mnist:", "train")


def test_the_room_knows_nothing_of_the_rooms_above() -> None:
    """Importing data pulls in no other room, nor anything heavy that only other rooms need."""
    code = (
        "import sys, types; alone = types.ModuleType('capsnet'); alone.__path__ = [sys.argv[1]];"
        "sys.modules['capsnet'] = alone; import capsnet.data;"
        "ours = {m.split('.')[1] for m in sys.modules if m.startswith('capsnet.')};"
        "ours = {room for room in ours if room != 'data' and not room.startswith('_')};"
        "heavy = {'matplotlib', 'tensorboard', 'fastapi', 'optuna', 'tyro'} & set(sys.modules);"
        "sys.exit(str(ours | heavy) if ours | heavy else 0)"
    )
    root = str(Path(_registry.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
