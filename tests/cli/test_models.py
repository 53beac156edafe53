"""`capsnet info`, and the one spelling for where output goes."""

import json
from pathlib import Path

import pytest

import capsnet
from capsnet import cli, weights
from tests.cli.commands import output, refused


def test_info_tells_all_of_a_bundled_model(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "info", "capsnet-small-mnist")
    assert "1,280,720" in text  # parameters
    assert "2.6 MB" in text
    assert "grey 28 x 28 pixels" in text
    assert "10: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in text
    assert "99.48%" in text
    assert "16 numbers per class" in text
    assert "  routing        dynamic: " in text
    assert "  draws " in text
    assert "capsnet train demo --epochs 8" in text  # where it came from
    record = json.loads(output(capsys, "info", "capsnet-small-mnist", "--json"))
    assert record["parameters"] == 1_280_720
    assert (record["pose_dim"], record["routing"], record["draws"]) == (16, "dynamic", True)
    assert record["classes"] == list("0123456789")
    assert record["card"] == weights.read_metadata(weights.resolve("capsnet-small-mnist"))["card"]


@pytest.mark.parametrize("name", weights.list_weights())
def test_info_describes_every_bundled_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "info", name)
    for row in ("network", "parameters", "file", "takes", "classes", "trained on", "test accuracy"):
        assert f"  {row}  " in text


def test_info_describes_files_that_say_little(
    tiny: capsnet.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = capsnet.save(tiny, tmp_path / "tiny.safetensors")
    text = output(capsys, "info", str(file))
    assert "3: 0, 1, 2" in text
    assert "None" not in text
    texts = capsnet.save(capsnet.create_model("text-cnn"), tmp_path / "text.safetensors")
    assert "takes       texts" in output(capsys, "info", str(texts))
    both = capsnet.save(capsnet.ensemble([file, file]), tmp_path / "both.safetensors")
    assert "the mean of 2 networks" in output(capsys, "info", str(both))


def test_info_names_a_routing_without_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(capsnet.routing.get("dynamic")), "sentence", "")
    assert "  routing        dynamic\n" in output(capsys, "info", "capsnet-small-mnist")


@pytest.mark.parametrize("name", capsnet.list_models())
def test_info_lists_the_options_of_a_network(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "num_classes" in output(capsys, "info", name)
    record = json.loads(output(capsys, "info", name, "--json"))
    assert record["options"].keys() == capsnet.models.model_options(name).keys()


def test_info_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model 'capsnet-mnits'" in refused(capsys, "info", "capsnet-mnits")


@pytest.mark.parametrize("old", [["--output", "both.safetensors"], ["--output=both.safetensors"]])
def test_old_spelling_of_out_works_with_a_hint(
    old: list[str], tiny: capsnet.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    capsnet.save(tiny, "a.safetensors")
    cli.main(["ensemble", "a.safetensors", "a.safetensors", "--out", "new.safetensors"])
    told = capsys.readouterr()
    assert told.err == ""
    assert "export new.safetensors --out new.onnx" in told.out
    cli.main(["ensemble", "a.safetensors", "a.safetensors", *old])
    assert "--output is now --out" in capsys.readouterr().err
    assert Path("both.safetensors").read_bytes() == Path("new.safetensors").read_bytes()
