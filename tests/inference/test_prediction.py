"""``capsnet predict`` and ``capsnet.predict``: inputs, output, skipped pictures, reconstructions."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import capsnet
from capsnet import cli
from capsnet.inference import predictions
from capsnet.inference.prediction import Album, Skipped
from capsnet.models import Model, Output


class Steps(Model):
    """Three lengths, exact functions of the picture's brightness."""

    def __init__(self) -> None:
        super().__init__((10, 10), 1, 3)
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.class_names = ("ant", "bee", "cat")
        self.batches: list[int] = []

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None, trace: bool = False) -> Output:
        self.batches.append(len(images))
        light = images.mean(dim=(1, 2, 3))  # (B,)
        lengths = torch.stack([light, light * 0.75, 1 - light], dim=1)
        return Output(lengths, None, images)


@pytest.fixture
def steps() -> Steps:
    return Steps().eval()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures 1, 2 and 10, dark, grey and bright, one in a sub-folder; and other files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "deeper").mkdir(parents=True)
    for name, grey in (("in/1.png", 25), ("in/2.PNG", 115), ("in/deeper/10.png", 204)):
        Image.fromarray(np.full((12, 12), grey, np.uint8)).save(tmp_path / name)
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    (tmp_path / "in" / ".hidden.png").write_text("no picture")
    return tmp_path / "in"


def test_predict_takes_the_pictures_of_a_folder_in_order(steps: Steps, folder: Path) -> None:
    answers = capsnet.predict(folder, steps)
    assert [Path(answer.source).name for answer in answers] == ["1.png", "2.PNG", "10.png"]
    assert [answer.label for answer in answers] == ["cat", "cat", "ant"]
    assert capsnet.predict([folder, folder / "1.png"], steps, batch_size=3)[3].source == str(folder / "1.png")
    assert steps.batches == [3, 3, 1]
    (folder.parent / "empty").mkdir()
    with pytest.raises(ValueError, match="expected images, found no files"):
        capsnet.predict(folder.parent / "empty", steps)


def test_labels_are_those_that_reach_the_threshold(steps: Steps, folder: Path) -> None:
    dark, grey, bright = capsnet.predict(folder, steps)
    assert (dark.labels, bright.labels) == (("cat",), ("ant", "bee"))
    assert grey.labels == ("cat",)
    assert capsnet.predict(folder / "2.PNG", steps, threshold=0.6)[0].labels == ()
    assert capsnet.predict(folder / "2.PNG", steps, threshold=0)[0].labels == ("cat", "ant", "bee")
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
            capsnet.predict(folder, steps, threshold=wrong)
    with pytest.raises(ValueError, match="batch_size"):
        capsnet.predict(folder, steps, batch_size=0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "expected files, folders, .* got int"),
        (None, "expected files, folders, .* got NoneType"),
        ({"train": 1, "test": 2}, "got a mapping of train, test: give one of them"),
    ],
)
def test_what_is_no_picture_is_refused_in_a_sentence(steps: Steps, given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        capsnet.predict(given, steps)


def test_predict_takes_bytes_and_skips_bad_pictures(steps: Steps, folder: Path) -> None:
    content = (folder / "1.png").read_bytes()
    assert capsnet.predict(content, steps)[0].lengths == capsnet.predict(folder / "1.png", steps)[0].lengths
    with pytest.raises(ValueError, match="these 4 bytes are not an image"):
        capsnet.predict(b"oops", steps)
    bad = folder / "0.png"
    bad.write_text("no picture")
    with pytest.raises(ValueError, match=r"0\.png"):
        capsnet.predict(folder, steps)
    answers = list(predictions([folder, folder / "none.png"], steps, skip=True, batch_size=2))
    assert [isinstance(answer, Skipped) for answer in answers] == [True, False, False, False, True]


@pytest.fixture
def model_file(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps) -> str:
    """The command line finds this model under a name."""
    monkeypatch.setattr(capsnet, "load", lambda name: steps)
    return "steps"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    cli.main(["predict", *arguments])
    return capsys.readouterr().out.splitlines()


def test_predict_prints_a_table(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "in", "--model", model_file, "--threshold", "0.6") == [
        "in/1.png:         cat   (length 0.90)   next: ant (0.10)",
        "in/2.PNG:         none of them   (longest: cat, length 0.55)",
        "in/deeper/10.png: ant   (length 0.80)   next: bee (0.60)",
    ]
    assert run(capsys, "in/deeper", "in/1.png", "--model", model_file, "--several", "--threshold", "0.599") == [
        "in/deeper/10.png: ant, bee   (lengths 0.80, 0.60)",
        "in/1.png:         cat   (length 0.90)   next: ant (0.10)",
    ]


def test_predict_prints_json_lines(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("in", "--model", model_file, "--json", "--threshold", "0.58", "--batch-size", "2")
    lines = [json.loads(line) for line in run(capsys, *flags)]
    assert [line["classes"] for line in lines] == [["cat"], [], ["ant"]]
    assert [line["class"] for line in lines] == ["cat", "cat", "ant"]
    assert set(lines[0]) == {"image", "class", "length", "classes", "lengths", "read"}
    lines = [json.loads(line) for line in run(capsys, *flags, "--several")]
    assert [line["classes"] for line in lines] == [["cat"], [], ["ant", "bee"]]


def test_predict_reads_standard_input(
    model_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO((folder / "1.png").read_bytes())))
    assert run(capsys, "-", "--model", model_file)[0].startswith("-: cat ")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"oops")))
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "-", "--model", model_file])
    assert stop.value.code == 2
    assert "capsnet: -: these 4 bytes are not an image" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO((folder / "1.png").read_bytes())))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    with pytest.raises(SystemExit):
        cli.main(["predict", "-", "--model", model_file])
    assert "capsnet: -: the image is too large to be decoded safely (" in capsys.readouterr().err


def test_predict_takes_names_that_begin_with_a_tilde(
    steps: Steps, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are names of files, not of home folders."""
    monkeypatch.chdir(folder)
    (folder / "1.png").rename(folder / "~x.png")
    (folder / "~root").mkdir()
    (folder / "2.PNG").rename(folder / "~root" / "2.png")
    assert [answer.source for answer in capsnet.predict("~x.png", steps)] == ["~x.png"]
    sources = [Path(answer.source) for answer in capsnet.predict(".", steps)]
    assert sources == [Path("deeper/10.png"), folder / "~root/2.png", folder / "~x.png"]
    plain = capsnet.data.Preprocess(style="plain")
    torch.testing.assert_close(plain("~x.png"), plain(folder / "~x.png"))
    with pytest.raises(FileNotFoundError, match=r"~nobody-here\.png: expected an image file, found nothing"):
        capsnet.predict("~nobody-here.png", steps)


def test_album_cuts_long_names_by_bytes(steps: Steps, tmp_path: Path) -> None:
    answer = capsnet.predict(np.zeros((10, 10), np.uint8), steps)[0]
    album = Album(tmp_path / "drawn")
    for character in "a字𠀀":
        name = album.add(answer._replace(source=character * 240 + ".png")).name
        assert name.startswith(character * 30)
        assert 150 < len(name.encode()) < 180


def test_predict_reports_bad_pictures_and_answers_the_rest(
    model_file: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "5.png").write_text("no picture")
    (folder / "empty").mkdir()
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "in", "nowhere.png", "in/empty", "--model", model_file])
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert len(output.out.splitlines()) == 3
    assert [word in output.err for word in ("5.png", "nowhere.png", "in/empty")] == [True] * 3
    assert len(output.err.strip().splitlines()) == 3


def test_album_gives_each_picture_a_file(model_file: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    Image.fromarray(np.full((12, 12), 99, np.uint8)).save(folder / "deeper" / "1.png")
    Image.fromarray(np.full((12, 12), 99, np.uint8)).save(folder / "so: ugly (é)!.png")
    run(capsys, "in", "--model", model_file, "--save-reconstructions", "out/here")
    names = {path.name for path in Path("out/here").iterdir()}
    assert names == {
        "1-reconstruction.png", "1-2-reconstruction.png", "2-reconstruction.png", "10-reconstruction.png",
        "so_ugly_é-reconstruction.png",
    }  # fmt: skip
    picture = np.asarray(Image.open("out/here/10-reconstruction.png"))
    assert picture.shape == (10, 10)
    assert (picture == 204).all()
    run(capsys, "in/1.png", "--model", model_file, "--save-reconstructions", "in")  # into the same folder
    assert (np.asarray(Image.open("in/1.png")) == 25).all()


def test_prepared_pictures_are_saved_with_how_they_were_read(
    model_file: str, capsys: pytest.CaptureFixture[str], folder: Path, steps: Steps
) -> None:
    lines = run(capsys, "in/1.png", "--model", model_file, "--save-prepared", "seen")
    assert lines[1:] == ["  read resized to 10 x 10, in grey", f"  {Path('seen') / '1-prepared.png'}"]
    picture = np.asarray(Image.open("seen/1-prepared.png"))
    assert picture.shape == (10, 10)
    assert (picture == 25).all()
    (line,) = run(capsys, "in/1.png", "--model", model_file, "--save-prepared", "seen", "--json")
    record = json.loads(line)
    assert (record["read"], record["prepared"]) == ("resized to 10 x 10, in grey", str(Path("seen") / "1-prepared.png"))
    assert capsnet.predict(folder / "1.png", steps)[0].how == "resized to 10 x 10, in grey"
    assert capsnet.predict(torch.zeros(1, 10, 10), steps)[0].how == ""


def test_model_without_decoder_saves_no_reconstructions(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cnn = capsnet.create_model("cnn-small", image_size=(12, 12), channels=(4, 4, 4), widths=(8, 8))
    capsnet.save(cnn, tmp_path / "cnn.safetensors")
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "in", "--model", "cnn.safetensors", "--save-reconstructions", "out"])
    assert stop.value.code == 2
    assert "draws no reconstructions" in capsys.readouterr().err


def test_predict_takes_texts_line_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = capsnet.create_model("text-cnn", vocabulary=6, embedding=4, channels=4, num_classes=2)
    model.preprocessing = {"vocabulary": ("<padding>", "<unknown>", "a", "b", "c", "d")}
    path = str(capsnet.save(model, tmp_path / "texts.safetensors"))
    monkeypatch.setattr("sys.stdin", io.StringIO("a b\n\nc d a\n"))
    lines = [json.loads(line) for line in run(capsys, "b", "-", "--model", path, "--json")]
    assert [line["image"] for line in lines] == ["b", "a b", "c d a"]


def test_predict_takes_onnx_files(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    cnn = capsnet.create_model("cnn-small", image_size=(12, 12), channels=(4, 4, 4), widths=(8, 8))
    capsnet.save(cnn, "cnn.safetensors")
    cli.main(["export", "cnn.safetensors", "--output", "cnn.onnx"])
    output = capsys.readouterr().out
    assert "largest difference from torch" in output
    assert "images (batch x 1 x 12 x 12) -> lengths" in output
    ours = [json.loads(line) for line in run(capsys, "in", "--model", "cnn.safetensors", "--json")]
    theirs = [json.loads(line) for line in run(capsys, "in", "--model", "cnn.onnx", "--json")]
    for one, other in zip(ours, theirs, strict=True):
        assert one["lengths"] == pytest.approx(other["lengths"], abs=1e-5)
        assert (one["image"], one["class"]) == (other["image"], other["class"])
    Path("half.onnx").write_bytes(Path("cnn.onnx").read_bytes()[:3000])
    for verb in (["predict", "in"], ["evaluate"]):
        with pytest.raises(SystemExit) as stop:
            cli.main([verb[0], *verb[1:], *(["--model"] if verb[0] == "predict" else []), "half.onnx"])
        assert stop.value.code == 2
        assert "half.onnx is not a complete ONNX file" in capsys.readouterr().err


def test_ensemble_verb_writes_one_file(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        torch.manual_seed(seed)
        cnn = capsnet.create_model("cnn-small", image_size=(12, 12), channels=(4, 4, 4), widths=(8, 8))
        capsnet.save(cnn, f"{seed}.safetensors")
    cli.main(["ensemble", "0.safetensors", "1.safetensors", "--output", "both.safetensors"])
    assert "the mean of 2 networks" in capsys.readouterr().out
    assert len(run(capsys, "in", "--model", "both.safetensors")) == 3
    for bad, words in ((["0.safetensors"], "at least two members"), (["0.safetensors", "nobody"], "no model 'nobody'")):
        with pytest.raises(SystemExit) as stop:
            cli.main(["ensemble", *bad, "--output", "x.safetensors"])
        assert stop.value.code == 2
        assert words in capsys.readouterr().err
