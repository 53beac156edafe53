"""Labels from a CSV file: every documented form, and errors with line numbers."""

from pathlib import Path

import numpy as np
import pytest

from capsnet.data.folders.loader import folder
from tests.data.own_images import files_of, write


def write_csv(root: Path, text: str, *, encoding: str = "utf-8", images: int = 12) -> Path:
    for i in range(images):
        write(root / "images" / f"{i}.png", i)
    (root / "labels.csv").write_bytes(text.encode(encoding))
    return root / "labels.csv"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_gives_labels_and_splits(tmp_path: Path, mark: str, end: str, encoding: str) -> None:
    rows = [["Path ", "patient", "Label"], *([f"images/{i}.png", "x", ("gut", "müde")[i % 2]] for i in range(12))]
    path = write_csv(tmp_path, end.join(mark.join(row) for row in rows) + end, encoding=encoding)
    data = folder("train", path)
    assert data.class_names == ("gut", "müde")
    assert data.targets.dtype == np.int64
    assert [int(Path(name).stem) % 2 for name in data.files] == data.targets.tolist()
    assert folder("train", tmp_path).files == data.files  # a folder with one CSV and a folder of images


def test_csv_of_several_labels_gives_multi_hot_targets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = ["a|b", "a", "b", "", "a | b", "a", "b", "", "c|a", "c", "c|b", "c|c"]
    text = "path,labels\n" + "".join(f"images/{i}.png,{cell}\n" for i, cell in enumerate(labels))
    parts = {split: folder(split, write_csv(tmp_path, text)) for split in ("train", "validation", "test")}
    assert sum(len(part) for part in parts.values()) == 12
    for part in parts.values():
        assert part.targets.dtype == np.float32
        assert part.targets.any(axis=0).all()
        for name, row in zip(part.files, part.targets, strict=True):
            expected = set(labels[int(Path(name).stem)].replace(" ", "").split("|")) - {""}
            assert {c for c, hot in zip("abc", row, strict=True) if hot} == expected
    assert not caplog.records
    only = "path,label\n" + "".join(f"images/{i}.png,{'x' if i < 6 else ''}\n" for i in range(12))
    data = folder("train", write_csv(tmp_path, only))
    assert data.class_names == ("x",)
    assert data.targets.shape == (len(data), 1)
    assert "6 of 12 images have no label, so the targets are multi-hot" in caplog.text


def test_images_of_a_group_stay_together(tmp_path: Path) -> None:
    """Twelve patients of four images, some with both findings, and twelve images without a group."""
    patients = [f"p{i // 4}" for i in range(48)] + 12 * [""]
    labels = ["b" if i % 8 in (0, 1, 2) else "a" for i in range(60)]
    rows = [f"images/{i}.png,{labels[i]},{patients[i]}" for i in range(60)]
    path = write_csv(tmp_path, "\n".join(["path,label,group", *rows]), images=60)
    write(tmp_path / "images" / "4.png", 0)  # a copy of p0's first image among p1's: both patients stay together

    def sides(**options: int) -> dict[str, set[str]]:
        parts = files_of(path, **options)
        known = {split: [int(Path(name).stem) for name in files if "!" not in name] for split, files in parts.items()}
        assert sum(map(len, known.values())) == 60
        assert all({labels[i] for i in numbers} == {"a", "b"} for numbers in known.values())
        return {split: {patients[i] for i in numbers} - {""} for split, numbers in known.items()}

    parts = sides()
    assert sum(map(len, parts.values())) == 12  # each patient in one split
    assert all(parts.values())
    assert any({"p0", "p1"} <= side for side in parts.values())
    tested = [sides(folds=4, fold=k) for k in range(4)]
    for split in tested:
        assert sum(map(len, split.values())) == 12
    assert sorted(name for split in tested for name in split["test"]) == sorted({*patients} - {""})
    write(tmp_path / "images" / "!.png", 99)
    path.write_text("\n".join(["path,label,group", "images/!.png,a,p7", *rows]))  # one more, first by its name
    assert sides() == parts


def test_group_in_several_splits_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    splits = ["train"] * 6 + ["val"] * 3 + ["test"] * 3
    rows = [f"images/{i}.png,{'ab'[i % 2]},{split},{'x' if i in (2, 10) else ''}" for i, split in enumerate(splits)]
    folder("train", write_csv(tmp_path, "\n".join(["path,label,split,group", *rows])))
    assert "1 groups have images in several splits, for example 'x'" in caplog.text
    few = [f"images/{i}.png,{'ab'[i % 2]},{i % 2}" for i in range(12)]
    with pytest.raises(ValueError, match=r"'a' has 1, 'b' has 1 \(copies and images of one group count once\)"):
        folder("train", write_csv(tmp_path, "\n".join(["path,label,group", *few])))


def test_csv_splits_are_used(tmp_path: Path) -> None:
    splits = ["train"] * 6 + ["val", "Validation", "val"] + ["test"] * 3
    rows = [f"images\\{i}.png,{'ab'[i % 2]},{split}" for i, split in enumerate(splits)]  # as Windows writes paths
    parts = files_of(write_csv(tmp_path, "\n".join(["path,label,split", *rows])))
    assert [sorted(int(Path(name).stem) for name in part) for part in parts.values()] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\nimages/0.png,a\n", r"labels\.csv, line 1: expected a header .*found 'file,label'"),
        ("", r"labels\.csv, line 1: expected a header"),
        ("path,label\n", r"labels\.csv: expected a line for each image"),
        ("path,label\nimages/0.png,a\n\nimages/99.png,a\n", r"labels\.csv, line 4: expected an image file .*99\.png"),
        ("path,label\nimages,a\n", r"labels\.csv, line 2: .*found a folder"),
        ("path,label\nimages/0.png\n", r"labels\.csv, line 2: expected 2 columns, found 1"),
        ("path,label\n,a\n", r"line 2: the path is empty"),
        ("path,label\nimages/0.png,a\nimages/1.png,a\nimages/0.png,b\n", r"line 4: images/0\.png is already in line 2"),
        ("path,label,split\nimages/0.png,a,train\nimages/1.png,b,tset\n", r"line 3: split must be .*found 'tset'"),
        ("path,label,split\nimages/0.png,a,train\nimages/1.png,b,\n", r"line 3: split must be .* in every line"),
        ("path,label\nimages/0.png,\n", r"labels\.csv: not one of the 1 images has a label"),
        ("path,path,label\na,b,c\n", r"line 1: expected every column once"),
        ('path,label\nimages/0.png,"a\n', r"labels\.csv, line 2: "),
    ],
)
def test_csv_errors_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        folder("train", write_csv(tmp_path, text))


def test_csv_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "path,label\nimages/0.png,müde\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"labels\.csv, line 2: expected UTF-8 text, found the byte 0xfc"):
        folder("train", path)
