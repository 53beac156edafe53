"""`capsnet evaluate`, `capsnet predict` and `capsnet explain`."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import capsnet
from capsnet import cli, kernels, weights
from capsnet.cli._using import DEFAULT_MODEL, measure_parts, parts_lines
from capsnet.training import TrainConfig
from tests.cli.commands import output, refused


@pytest.fixture
def digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A picture of a one, pen on paper, in the working directory."""
    monkeypatch.chdir(tmp_path)
    strokes = np.full((60, 50), 255, np.uint8)
    strokes[10:50, 22:28] = 20
    Image.fromarray(strokes).save("one.png")
    return "one.png"


def test_evaluate_gives_the_run_s_own_numbers(
    quick_recipe: None, capsys: pytest.CaptureFixture[str], quick: TrainConfig
) -> None:
    output(capsys, "train", "quick", "--epochs", "1", "--out", "run")
    metrics = json.loads(output(capsys, "evaluate", "run", "--json"))  # on the data it was trained on
    assert metrics["accuracy"] == json.loads(Path("run/results.json").read_text())["accuracy"]
    assert (metrics["data"], metrics["split"]) == (quick.data, "test")
    text = output(capsys, "evaluate", "run", "--data", quick.data)
    assert "precision" in text
    assert text.startswith(f"run on the test split of {quick.data}\n")
    assert "\naccuracy  " in text


def test_evaluate_prints_half_credit(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "evaluate", "capsnet-multimnist", "--data", "multimnist:pairs=40")
    assert re.search(r"\nhalf credit  [\d.]+% \(.*, n = [\d,]+\)\n", text)


def test_evaluate_measures_where_parts_go(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "kuramoto-multimnist", "--data", "multimnist:pairs=40", "--parts", "40"]
    shares = json.loads(output(capsys, *arguments, "--json"))["couplings"]
    assert shares["pictures"] == 40
    assert shares["own"][-1] > 0.6 > shares["own"][0] == pytest.approx(shares["chance"])
    text = output(capsys, *arguments)
    assert (
        f"\nparts  {shares['own'][-1]:.2%} of the coupling of children on an object goes to its capsule (95 %" in text
    )


def test_parts_of_a_network_with_phases_are_pixels() -> None:
    stored = Path(__file__).parents[2] / "docs" / "networks" / "rotating-two-outlines.safetensors"
    parts = measure_parts(capsnet.load(stored), "outlines:size=24", "test", 20)
    assert parts["binding"]["pictures"] == 20
    assert (score := parts["binding"]["fg_ari"]["value"]) > 0.8
    assert parts_lines(parts)[0].startswith(f"parts  FG-ARI of pixels by phase: {score:.3f} (95 %: ")


@pytest.mark.parametrize(
    ("model", "count", "words"),
    [
        ("capsnet-multimnist-cnn", "5", "--parts needs a network whose children or pixels lie in the picture"),
        ("kuramoto-multimnist", "-5", "--parts is a number of pictures, at least 1, got -5"),
    ],
)
def test_parts_that_cannot_be_measured_are_refused(
    model: str, count: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(capsys, "evaluate", model, "--data", "multimnist:pairs=4", "--parts", count)


def test_predict_uses_the_bundled_model_by_default(digit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert DEFAULT_MODEL in weights.list_weights()
    cli.main(["predict", digit])
    told = capsys.readouterr()
    assert told.out.startswith("one.png: 1 ")
    assert DEFAULT_MODEL in told.err
    cli.main(["predict", digit, "--model", "capsnet-small-mnist"])
    told = capsys.readouterr()
    assert told.out.startswith("one.png: 1 ")
    assert told.err == ""
    help_text = output(capsys, "predict", "--help")
    assert f"default: {DEFAULT_MODEL}" in " ".join(help_text.replace("│", " ").split())


def test_predict_names_the_k_longest(digit: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["--model", "capsnet-small-mnist", "--device", "cpu"]
    line = output(capsys, "predict", digit, *model, "--top", "3")
    assert line.startswith("one.png: 1 (")
    assert line.count("(") == 3
    record = json.loads(output(capsys, "predict", digit, *model, "--top", "3", "--json"))
    assert record["top"][0]["class"] == record["class"] == "1"
    lengths = [entry["length"] for entry in record["top"]]
    assert lengths == sorted(record["lengths"].values(), reverse=True)[:3]
    assert "top" not in json.loads(output(capsys, "predict", digit, *model, "--json"))
    assert "--top must be at least 1" in refused(capsys, "predict", digit, "--top", "0")
    assert "device 'tpu' is not available" in refused(
        capsys, "predict", digit, "--model", "capsnet-small-mnist", "--device", "tpu"
    )


def test_predict_answers_each_picture(digit: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "predict", digit, digit, "--model", "capsnet-small-mnist", "--json").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 2
    assert records[0]["class"] == "1"
    assert len(records[0]["lengths"]) == 10


def test_bad_picture_does_not_lose_the_others(
    quick_recipe: None, capsys: pytest.CaptureFixture[str], tiny: capsnet.Model
) -> None:
    capsnet.save(tiny, "good.safetensors")
    Image.fromarray(np.full((40, 44), 99, np.uint8)).save("x.png")
    Path("bad.png").write_text("no picture")
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "bad.png", "x.png", "--model", "good.safetensors"])
    assert stop.value.code == 2
    told = capsys.readouterr()
    assert told.out.startswith("x.png: ")
    assert "bad.png" in told.err
    assert "at least one image" in refused(capsys, "predict", "--model", "good.safetensors")


def test_bad_files_are_one_sentence(
    quick_recipe: None, capsys: pytest.CaptureFixture[str], tiny: capsnet.Model
) -> None:
    capsnet.save(tiny, "good.safetensors")
    Path("half.safetensors").write_bytes(Path("good.safetensors").read_bytes()[:2000])
    Path("text.png").write_text("not a picture")
    Image.fromarray(np.zeros((40, 40), np.uint8)).save("x.png")
    assert "not a complete safetensors file" in refused(capsys, "predict", "x.png", "--model", "half.safetensors")
    assert "text.png" in refused(capsys, "predict", "text.png", "--model", "good.safetensors")
    assert "nowhere.png" in refused(capsys, "predict", "nowhere.png", "--model", "good.safetensors")
    assert "the model takes" in refused(capsys, "evaluate", "good.safetensors")
    assert "no model 'nobody'" in refused(capsys, "evaluate", "nobody")


@pytest.mark.skipif(not kernels.int8_available(), reason="no VNNI, or no oneDNN")
def test_int8_gives_the_same_digit(digit: str, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = []
    for flags in ([], ["--int8"]):
        answer = output(capsys, "predict", digit, "--model", "capsnet-small-mnist", "--json", *flags)
        lengths.append(json.loads(answer)["lengths"])
    assert lengths[0] != lengths[1]
    assert lengths[0] == pytest.approx(lengths[1], abs=0.02)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "cuda"], "--int8 is for the CPU, got --device cuda"),
        (["--model", "narrow.safetensors"], "matrix-capsnet-small cannot be quantised"),
    ],
)
def test_int8_is_refused_in_one_sentence(
    digit: str, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsnet.save(capsnet.create_model("matrix-capsnet-small"), "narrow.safetensors")  # in a folder of the test
    flags = flags if "--model" in flags else [*flags, "--model", "capsnet-small-mnist"]
    assert message in refused(capsys, "predict", digit, "--int8", *flags)


def test_explain_writes_a_picture(digit: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "explain", digit, "--out", "map.png", "--model", "capsnet-small-mnist")
    assert text.startswith("one.png: 1 (length 0.")
    with Image.open("map.png") as drawn:
        assert drawn.size == (448, 448)
    asked = ("--out", "map.png", "--model", "capsnet-small-mnist", "--class", "7")
    values = json.loads(output(capsys, "explain", digit, *asked, "--json"))
    assert (values["class"], values["beside"]) == ("7", {})
    assert np.shape(values["map"]) == (28, 28)
    assert np.sum(values["map"]) == pytest.approx(np.sum(values["contributions"]), abs=1e-4)
    assert "integrated gradients, Grad-CAM; each map" in output(capsys, "explain", digit, *asked, "--beside")
    with Image.open("map.png") as drawn:
        assert drawn.width > 3 * 448
    beside = json.loads(output(capsys, "explain", digit, *asked, "--beside", "--json"))["beside"]
    assert {name: np.shape(one) for name, one in beside.items()} == {
        "integrated gradients": (28, 28),
        "Grad-CAM": (28, 28),
    }
    assert "--out names a .png file" in refused(capsys, "explain", digit, "--out", "map.jpg")
    assert "sees the whole picture" in refused(
        capsys, "explain", digit, "--out", "map.png", "--model", "efficient-mnist"
    )


def test_explain_chooses_a_free_name(
    digit: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ("--model", "capsnet-small-mnist")
    assert "\none-explained.png  orange" in output(capsys, "explain", digit, *model)
    before = Path("one-explained.png").read_bytes()
    assert "\none-2-explained.png  orange" in output(capsys, "explain", digit, *model, "--class", "7")
    assert Path("one-explained.png").read_bytes() == before
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(digit).read_bytes())))
    assert "\npicture-explained.png  orange" in output(capsys, "explain", "-", *model)
