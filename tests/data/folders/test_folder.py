"""A user's own images: files are found, labelled, split and prepared as by ``predict``."""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capsnet.data import Preprocess, load
from capsnet.data.folders._decode import Channels, decode
from capsnet.data.folders.loader import FolderDataset, folder
from capsnet.data.preprocess import Fit
from tests.data.own_images import files_of, write, write_tree

KINDS = {".png": "RGB", ".jpg": "RGB", ".bmp": "RGB", ".gif": "P", ".tif": "RGB", ".PNG": "RGBA"}


def test_folder_reads_a_tree_of_odd_files(tmp_path: Path) -> None:
    seed = 0
    for name in ("scratch10", "scratch2", "Good"):
        for suffix, mode in KINDS.items():
            write(
                tmp_path / name / "deeper" / f"x{seed}{suffix}", seed, mode=mode, size=(50, 40) if seed % 2 else (9, 80)
            )
            seed += 1
    (tmp_path / "Good" / "notes.txt").write_text("not an image")
    (tmp_path / "Good" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "Good" / ".hidden.png").write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    both = folder("train+validation", tmp_path, size="24x16")
    assert both.class_names == ("Good", "scratch2", "scratch10")
    assert (both.image_size, both.channels, both.images.dtype) == ((24, 16), 3, np.uint8)
    assert len(both) + len(folder("test", tmp_path, size="24x16")) == 18
    assert both.skipped == []
    for name, target in zip(both.files, both.targets, strict=True):
        assert name.split("/")[0] == both.class_names[target]


def test_every_pixel_format_is_read(tmp_path: Path) -> None:
    """The same half-dark picture in the formats of cameras, scanners and instruments."""
    grey = np.zeros((40, 40), np.uint8)
    grey[20:] = 200
    pictures = {mode: Image.fromarray(grey).convert(mode) for mode in ("L", "LA", "P", "RGB", "RGBA", "CMYK", "1")}
    pictures["I;16"] = Image.fromarray(grey.astype(np.uint16) * 257)
    for i, (mode, picture) in enumerate(pictures.items()):
        for name in "ab":
            path = tmp_path / name / f"{i}.tif"
            path.parent.mkdir(exist_ok=True)
            picture.rotate(180 if name == "b" else 0).save(path)
            assert Image.open(path).mode == mode
    exif = Image.Exif()
    exif[0x0112] = 3  # stored upside down
    pictures["L"].rotate(180).save(tmp_path / "a" / "turned.jpg", exif=exif)
    data = folder("train+validation", tmp_path)
    assert (data.channels, data.skipped) == (1, [])
    dark_above = data.images[:, 0, :12].mean(axis=(1, 2)) < data.images[:, 0, 20:].mean(axis=(1, 2)) - 150
    np.testing.assert_array_equal(dark_above, data.targets == 0)
    assert "a/turned.jpg" in data.files + folder("test", tmp_path).files


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("channels", ["auto", "grey", "rgb"])
def test_stored_images_are_what_predict_sees(tmp_path: Path, fit: Fit, channels: Channels) -> None:
    for seed, (suffix, mode) in enumerate(KINDS.items()):
        for name in "ab":
            write(tmp_path / name / f"{seed}{suffix}", 2 * seed + (name == "b"), mode=mode, size=(30, 70))
    data = folder("train", tmp_path, fit=fit, channels=channels, size="20x24")
    prepare = data.preprocess
    assert prepare is not None
    expected: dict[str, Any] = {
        "style": "plain",
        "height": 20,
        "width": 24,
        "channels": 1 if channels == "grey" else 3,
        "fit": fit,
    }
    assert prepare == Preprocess(**expected) == data.subset([1, 0]).preprocess
    for i, name in enumerate(data.files):
        np.testing.assert_allclose(data.batch([i]).images[0], prepare(tmp_path / name), atol=0.51 / 255)


def test_channels_are_decided_over_the_whole_set(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 8, "b": 8})
    for i in range(8):
        Image.new("RGB", (40, 40), (100 + i, 106 + i, 100 + i)).save(tmp_path / "b" / f"{i}.png")  # a cast, no colour
    grey = folder("train", tmp_path)
    assert grey.channels == 1
    assert grey.preprocess is not None
    for i, name in enumerate(grey.files):
        np.testing.assert_allclose(grey.batch([i]).images[0], grey.preprocess(tmp_path / name), atol=1.01 / 255)
    assert folder("train", tmp_path, channels="rgb").channels == 3
    for i in range(8):  # grey, although stored as colour
        Image.open(tmp_path / "a" / f"{i}.png").convert("RGB").save(tmp_path / "a" / f"{i}.jpg")
    assert folder("train", tmp_path).channels == 1
    test = folder("test", tmp_path).files[0]
    write((tmp_path / test).with_suffix(".png"), 99, mode="RGB")
    assert folder("train", tmp_path).channels == 3


def test_splits_are_disjoint_stratified_and_from_the_seed(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 40, "b": 20})
    parts = files_of(tmp_path)
    assert [len(parts[s]) for s in ("train", "validation", "test")] == [42, 9, 9]
    assert len({name for part in parts.values() for name in part}) == 60
    assert sum(name.startswith("a/") for name in parts["test"]) == 6
    assert sorted(parts["train"] + parts["validation"]) == sorted(folder("train+validation", tmp_path).files)
    assert files_of(tmp_path) == parts
    assert files_of(tmp_path, seed=1)["test"] != parts["test"]
    assert len(folder("test", tmp_path, test=0.5)) == 30
    moved = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name} moved")
    assert files_of(moved) == parts


def test_adding_an_image_keeps_the_others(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 40, "b": 20})
    before = {name: split for split, names in files_of(tmp_path).items() for name in names}
    write(tmp_path / "a" / "0000 new.png", 1000)
    after = {name: split for split, names in files_of(tmp_path).items() for name in names}
    assert len(after) == 61
    moved = [name for name in before if before[name] != after[name]]
    assert len(moved) <= 2
    assert all(name.startswith("a/") for name in moved)


def test_folds_test_every_image_once(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 14, "b": 11})
    tested: list[str] = []
    for fold in range(4):
        parts = files_of(tmp_path, folds=4, fold=fold)
        assert len({name for part in parts.values() for name in part}) == 25
        assert {name[0] for name in parts["validation"]} == {name[0] for name in parts["train"]} == {"a", "b"}
        tested += parts["test"]
    assert len(tested) == 25
    assert len(set(tested)) == 25
    with pytest.raises(ValueError, match="fold=4"):
        folder("test", tmp_path, folds=4, fold=4)
    with pytest.raises(ValueError, match="fold=2 means nothing without folds"):
        folder("test", tmp_path, fold=2)


def test_copies_stay_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tree(tmp_path, {"a": 10, "b": 10})
    for i in range(10):
        shutil.copy(tmp_path / "a" / f"{i}.png", tmp_path / "a" / f"copy of {i}.png")
    shutil.copy(tmp_path / "a" / "3.png", tmp_path / "b" / "wrong.png")
    with caplog.at_level(logging.INFO, "capsnet"):
        parts = files_of(tmp_path)
    where = {name: split for split, names in parts.items() for name in names}
    assert len(set(where.values())) == 3
    for i in range(10):
        assert where[f"a/{i}.png"] == where[f"a/copy of {i}.png"]
    assert where["b/wrong.png"] == where["a/3.png"]
    messages = [record.getMessage() for record in caplog.records]
    assert sum("11 of 31 images are copies" in m for m in messages) == 1  # logged once, not once per split
    assert any("different labels: a/3.png (a) and b/wrong.png (b)" in m for m in messages)


def test_unreadable_files_are_named_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"a": 10, "b": 10})
    (tmp_path / "a" / "empty.png").touch()
    (tmp_path / "a" / "text.jpg").write_text("not an image")
    content = write(tmp_path / "b" / "cut.png", 77, size=(200, 200)).read_bytes()
    (tmp_path / "b" / "cut.png").write_bytes(content[: len(content) // 2])
    write(tmp_path / "b" / "bomb.png", 78, size=(300, 300))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 41_000)  # an error beyond twice that
    data = folder("train", tmp_path)
    assert data.skipped == ["a/empty.png", "a/text.jpg", "b/bomb.png", "b/cut.png"]
    assert not set(data.skipped) & {n for names in files_of(tmp_path).values() for n in names}
    (warning,) = [r.getMessage() for r in caplog.records if "skipped" in r.getMessage()]
    assert "skipped 4 of 24 images: a/empty.png (the file is empty), a/text.jpg (this is not an image" in warning
    assert "b/bomb.png (the image is too large" in warning
    assert "b/cut.png (the image is damaged" in warning
    assert f"({tmp_path}" not in warning
    assert data.preprocess is not None
    for i, name in enumerate(data.files):
        np.testing.assert_allclose(data.batch([i]).images[0], data.preprocess(tmp_path / name), atol=1.01 / 255)


def test_many_unreadable_files_are_summarised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tree(tmp_path, {"a": 3, "b": 3})
    for i in range(25):
        (tmp_path / "a" / f"bad{i}.png").write_text("x")
    assert len(folder("test", tmp_path).skipped) == 25
    assert "and 15 more" in caplog.text
    for file in tmp_path.rglob("*.png"):
        file.write_text("x")
    with pytest.raises(ValueError, match=r"none of the 31 images can be read, for example a/0.png \(this is not"):
        folder("test", tmp_path)


def test_pixels_are_decoded_once_until_a_file_changes(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 10, "b": 10})
    decode.cache_clear()
    files_of(tmp_path)
    for fold in range(3):
        folder("test", tmp_path, folds=3, fold=fold, seed=5)
    assert decode.cache_info().misses == 1
    first = folder("test", tmp_path)
    write(tmp_path / first.files[0], 500, mode="L", size=(33, 44))
    second = folder("test", tmp_path)
    assert second.files == first.files
    assert (second.images[0] != first.images[0]).any()
    np.testing.assert_array_equal(second.images[1:], first.images[1:])


def test_train_and_test_folders_are_the_splits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tree(tmp_path / "train", {"a": 10, "b": 10})
    write_tree(tmp_path / "test", {"a": 4, "b": 3}, start=100)
    parts = files_of(tmp_path)
    assert len(parts["test"]) == 7
    assert all(name.startswith("test/") for name in parts["test"])
    assert all(name.startswith("train/") for name in parts["train"] + parts["validation"])
    assert len(parts["validation"]) == 4
    write_tree(tmp_path / "val", {"a": 2}, start=200)
    shutil.copy(tmp_path / "train" / "a" / "0.png", tmp_path / "test" / "a" / "leak.png")
    parts = files_of(tmp_path)
    assert (len(parts["train"]), sorted(parts["validation"])) == (20, ["val/a/0.png", "val/a/1.png"])
    assert folder("test", tmp_path).class_names == ("a", "b")
    assert "class 'b' has no image in the split validation" in caplog.text
    assert "test/a/leak.png in test and train/a/0.png in train" in caplog.text
    with pytest.raises(ValueError, match="splits of their own, so folds=5"):
        folder("test", tmp_path, folds=5)
    write_tree(tmp_path / "test", {"c": 1}, start=300)
    with pytest.raises(ValueError, match="class 'c' has no image in the split train"):
        folder("test", tmp_path)


def test_csv_beside_class_folders_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "metadata.csv").write_text("id,age\n1,30\n")
    assert folder("train", tmp_path).class_names == ("a", "b")
    (tmp_path / "metadata.csv").write_text("path,label\na/0.png,x\n")
    with pytest.raises(ValueError, match=r"found metadata\.csv as well as 2 sub-folders"):
        folder("train", tmp_path)


def test_wrong_folders_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: expected a folder of images or a CSV file, found nothing"):
        folder("train", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="folder needs the path"):
        folder("train")
    write(tmp_path / "flat" / "0.png", 0)
    with pytest.raises(ValueError, match=r"expected one sub-folder per class, found only 1 \.png files"):
        folder("train", tmp_path / "flat")
    write_tree(tmp_path / "one" / "inner", {"a": 3, "b": 3})
    with pytest.raises(ValueError, match="at least two classes, found only 'inner'; is that the folder you meant"):
        folder("train", tmp_path / "one")
    few = write_tree(tmp_path / "few", {"a": 9, "b": 2})
    with pytest.raises(ValueError, match=r"every class needs at least 3 different images .*class 'b' has 2"):
        folder("train", few)
    (few / "c").mkdir()
    (few / "c" / "scan.dcm").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"class 'c' has 0 images, found only 1 \.dcm files"):
        folder("train", few)
    shutil.rmtree(few / "c")
    write_tree(few, {"b": 4})
    write(few / "loose.png", 50)
    assert len(folder("train+validation", few)) == 11
    assert "ignored 1 images that lie outside" in caplog.text
    with pytest.raises(ValueError, match="Did you mean 'validation'"):
        folder("valid", few)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("size=big", "size must be 64 or, as height x width, 48x64, .*'big'"),
        ("size=4", "size must be"),
        ("size=8x5000", "size must be"),
        ("validation=0.6,test=0.5", "leave something to train on, got 0.6 and 0.5"),
        ("test=0", "option test of folder"),
        ("fit=zoom", "option fit of folder"),
        ("folds=1", "option folds of folder"),
        ("sise=64", "Did you mean 'size'"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: str, message: str) -> None:
    write_tree(tmp_path, {"a": 3, "b": 3})
    with pytest.raises(ValueError, match=message):
        load(f"folder:{tmp_path},{options}", "train")


def test_folder_loads_by_name(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 8, "b": 8})
    data = load(f"folder:{tmp_path},size=16x24,channels=rgb,fit=pad,folds=2,fold=1,seed=3", "test")
    assert (data.image_size, data.channels, len(data)) == ((16, 24), 3, 8)
    assert data.preprocess == Preprocess(style="plain", height=16, width=24, channels=3, fit="pad")
    assert tmp_path.name in data.name
    with pytest.raises(ValueError, match="folder needs a path"):
        load("folder", "train")


@pytest.mark.parametrize("names", [("train", "valid", "test"), ("Train", "Val", "Test"), ("training", "testing")])
def test_other_spellings_of_splits_are_known(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        write_tree(tmp_path / name, {"cat": 4, "dog": 4}, start=100 * len(name))
    training = folder("train", tmp_path)
    assert training.class_names == ("cat", "dog")
    assert all(file.casefold().startswith("train") for file in training.files)
    write_tree(tmp_path / "extra", {"cat": 4, "dog": 4}, start=900)
    with pytest.raises(ValueError, match="found a folder of training images beside 'extra'"):
        folder("train", tmp_path)


def test_first_examples_are_of_all_classes(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": 40, "b": 40, "c": 40})
    assert set(folder("train", tmp_path).targets[:20]) == {0, 1, 2}


def test_white_level_of_twelve_bit_images_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Read as 16 bits, only 17 dark greys would be left of 4096."""
    ramp = np.tile(np.linspace(0, 4095, 64).astype(np.uint16), (64, 1))
    for i, name in enumerate("aaaabbbb"):
        path = tmp_path / name / f"{i}.{('png', 'tif')[i % 2]}"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.roll(ramp, i) if name == "a" else np.roll(ramp.T, i)).save(path)
    write(tmp_path / "a" / "ordinary.jpg", 1, mode="L")  # 8 bits, bright: not compared with the others
    with caplog.at_level(logging.WARNING, "capsnet"):
        dark = [folder(split, tmp_path, size="64") for split in ("train", "test")]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: none of the 8 images with 16-bit grey levels reaches a quarter of white (65535), for example "
        "a/0.png: if white is a lower level, set it: white=4095 for 12 bits"
    ]
    deep = [i for i, name in enumerate(dark[0].files) if "ordinary" not in name]
    assert len(np.unique(dark[0].images[deep])) <= 17
    caplog.clear()
    with caplog.at_level(logging.WARNING, "capsnet"):
        scaled = load(f"folder:{tmp_path},size=64,white=4095", "train")
    assert not caplog.records
    assert isinstance(scaled, FolderDataset)
    assert scaled.images[deep].max() == 255
    assert len(np.unique(scaled.images[deep])) > 60
    prepare = scaled.preprocess
    assert isinstance(prepare, Preprocess)
    assert prepare.model_dump()["white"] == 4095
    assert scaled.subset([0]).preprocess == prepare
    assert "white" not in Preprocess().model_dump()
    for i, name in enumerate(scaled.files):  # predict and the server see the same
        np.testing.assert_allclose(scaled.batch([i]).images[0], prepare(tmp_path / name), atol=0.51 / 255)
    values = np.array([[0, 2048, 4095, 60000]] * 4, np.uint16)
    for image in (values, Image.fromarray(values), Image.fromarray(values.astype(np.int32))):
        prepared = Preprocess(style="plain", height=8, width=8, fit="stretch", white=4095)(image)
        np.testing.assert_allclose(prepared[0, 0, [0, -1]], [0, 1], atol=1e-6)
    Image.fromarray(np.full((64, 64), 40_000, np.uint16)).save(tmp_path / "b" / "bright.png")
    with caplog.at_level(logging.WARNING, "capsnet"):
        folder("train", tmp_path)
    assert not caplog.records  # one of them does need all 16 bits


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    """Figures, pages and terminals would fail on them after training."""
    odd = os.fsdecode(b"sch\xf6n")
    write_tree(tmp_path / "own", {"a": 8, odd: 8})
    with pytest.raises(ValueError, match=r"/sch.udcf6n: the name of the class folder is not UTF-8: rename"):
        folder("train", tmp_path / "own")
    write_tree(tmp_path / odd, {"a": 8, "b": 8})
    with pytest.raises(ValueError, match=r"/sch.udcf6n: the name of the data is not UTF-8: rename it"):
        load(f"folder:{tmp_path / odd}", "train")
    (tmp_path / "own" / odd).rename(tmp_path / "own" / "schön")
    assert folder("train", tmp_path / "own").class_names == ("a", "schön")
