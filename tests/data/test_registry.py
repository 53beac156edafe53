"""Data sets by name."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from capsnet.data import (
    ArrayDataset,
    _registry,
    canonical,
    describe,
    info,
    list_datasets,
    load,
    options_of,
    register,
    with_options,
)
from tests.data.readers.test_mnist import make_folder


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_ENTRIES", dict(_registry._ENTRIES))

    @register("toy", "Two grey pixels", ("all",), path="none")
    def make(split: str) -> ArrayDataset:
        return ArrayDataset(np.zeros((2, 1, 1, 1), np.uint8), np.array([0, 1]), name=split)

    @register("files", "Whatever is there", ("all",), path="required")
    def read(split: str, path: Path) -> ArrayDataset:
        return ArrayDataset(np.zeros((1, 1, 1, 1), np.uint8), np.array([0]), name=str(path))


def test_mnist_loads_by_name(tmp_path: Path) -> None:
    assert "mnist" in list_datasets()
    assert "28x28" in describe("mnist")
    assert info("mnist:/some/where").splits == ("train", "validation", "train+validation", "test")
    assert len(load("mnist", "test")) == 10_000
    assert len(load(f"mnist:{make_folder(tmp_path / 'own')}", "test")) == 4


def test_register_makes_a_data_set_loadable(toy: None, tmp_path: Path) -> None:
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


def test_bad_specs_are_refused_in_one_sentence(tmp_path: Path) -> None:
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


def test_importing_data_imports_no_other_room() -> None:
    """Importing data imports no other package of capsnet and no heavy dependency."""
    code = (
        "import sys, types; alone = types.ModuleType('capsnet'); alone.__path__ = [sys.argv[1]];"
        "sys.modules['capsnet'] = alone; import capsnet.data;"
        "ours = {m.split('.')[1] for m in sys.modules if m.startswith('capsnet.')};"
        "ours = {room for room in ours if room != 'data' and not room.startswith('_')};"
        "heavy = {'matplotlib', 'tensorboard', 'fastapi', 'optuna', 'tyro', 'scipy'} & set(sys.modules);"
        "sys.exit(str(ours | heavy) if ours | heavy else 0)"
    )
    root = str(Path(_registry.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_ENTRIES", dict(_registry._ENTRIES))

    @register("made", "With options", ("all",), path="none")
    def make(split: str, *, size: int = 4, kind: Literal["a", "b"] = "a", flag: bool = False) -> ArrayDataset:
        return ArrayDataset(np.zeros((size, 1, 1, 1), np.uint8), np.zeros(size, int), name=f"{kind} {flag}")

    @register("both", "Path and options", ("all",), environment="CAPSNET_TEST_BOTH")
    def read(split: str, path: Path | None = None, *, size: int | None = None) -> ArrayDataset:
        return ArrayDataset(np.zeros((1, 1, 1, 1), np.uint8), np.array([0]), name=f"{path} {size}")


def test_options_follow_the_name(optional: None) -> None:
    assert options_of("made") == {"size": 4, "kind": "a", "flag": False}
    assert len(load("made", "all")) == 4
    dataset = load("made:size=7,kind=b,flag=true", "all")
    assert len(dataset) == 7
    assert dataset.name == "b True"
    assert with_options("made:size=7,kind=b", size=9) == "made:size=9,kind=b"
    assert with_options("made", size=2) == "made:size=2"
    assert canonical("made:size=7") == "made:size=7"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("made:sise=7", r"unknown option of made 'sise'. Did you mean 'size'\?"),
        ("made:size=x", "option size of made must be a valid integer.*, got 'x'"),
        ("made:kind=c", "option kind of made must be 'a' or 'b', got 'c'"),
        ("made:size=1,size=2", "size is given twice"),
        ("made:size=1,", "takes no path, got 'made:size=1,'; its options are size, kind, flag"),
        ("made:/some/where", "made takes no path, got 'made:/some/where'; its options are size, kind, flag"),
        ("made:,size=1", "expected something before the comma"),
    ],
)
def test_options_are_checked(optional: None, spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(spec, "all")


def test_option_without_annotation_has_the_type_of_its_default(optional: None) -> None:
    @register("plain", "Without annotations", ("all",), path="none")
    def plain(split, *, level=0.5, limit=None):
        return ArrayDataset(np.zeros((1, 1, 1, 1), np.uint8), np.array([0]), name=f"{level + 1} {limit}")

    assert load("plain:level=0.25,limit=3", "all").name == "1.25 3"
    with pytest.raises(ValueError, match="option level of plain must be a valid number"):
        load("plain:level=x", "all")


def test_path_may_look_like_options(optional: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "a,b=c" / "size=3"
    odd.mkdir(parents=True)
    (odd / "x").touch()
    assert load(f"both:{odd}", "all").name == f"{odd} None"
    assert load(f"both:{odd},size=5", "all").name == f"{odd} 5"
    assert load("both:size=None", "all").name == "None None"
    with pytest.raises(ValueError, match=r"unknown option of both 'sise'. Did you mean 'size'\?"):
        load("both:sise=3", "all")
    monkeypatch.chdir(odd.parent)
    assert canonical("both:./size=3,size=5") == f"both:{odd},size=5"
    monkeypatch.setenv("CAPSNET_TEST_BOTH", str(odd))
    assert load("both:size=5", "all").name == f"{odd} 5"
    assert canonical("both") == f"both:{odd}"


@pytest.mark.parametrize(
    ("spec", "source", "gallery", "objects"),
    [
        ("mnist", "bundled", "mnist", 1),
        ("mnist:per_class=10,seed=1", "bundled", "mnist:per_class=10,seed=1", 1),
        ("mnist:/some/where", "folder", None, 1),
        ("multimnist", "generated", "mnist", 2),
        ("multimnist:shift=6,canvas=40", "generated", "mnist", 2),
        ("expanded-mnist", "generated", "expanded-mnist", 1),
        ("affnist:versions=2", "generated", "affnist:versions=2", 1),
        ("affnist:source=original", "download", None, 1),
        ("shapes", "generated", "shapes", 1),
        ("shapes:kind=crowded,objects=3", "generated", "shapes:kind=crowded,objects=3", 3),
        ("outlines:size=24", "generated", "outlines:size=24", 2),
        ("sentences", "generated", None, 1),
        ("sentences:labels=multi", "generated", None, None),
        ("folder:/some/where", "folder", None, None),
        ("cifar10", "download", None, 1),
    ],
)
def test_info_follows_the_options_of_a_spec(
    spec: str, source: str, gallery: str | None, objects: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSNET_DATA", "/elsewhere")  # a gallery must not depend on it
    known = info(spec)
    assert (known.source, known.gallery, known.objects) == (source, gallery, objects)
    assert known.name == spec.partition(":")[0]
    assert known.options == options_of(known.name)
    assert known.description == describe(known.name)


def test_info_checks_names_and_options() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'mnits'. Did you mean 'mnist'\?"):
        info("mnits")
    with pytest.raises(ValueError, match=r"option objects of shapes must be at most 3, got '9'"):
        info("shapes:kind=crowded,objects=9")


def test_info_of_a_plain_registration_has_defaults(toy: None) -> None:
    known = info("toy")
    assert (known.source, known.gallery, known.objects, known.options) == ("generated", None, None, {})
