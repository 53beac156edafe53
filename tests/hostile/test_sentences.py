"""What once was a traceback is one sentence."""

import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import capsnet
from capsnet import cli
from capsnet._files import write_atomically
from capsnet._limits import is_out_of_memory
from capsnet.data import Preprocess
from capsnet.training import TrainConfig
from capsnet.training.run import Run
from capsnet.weights._format import FORMAT, read_metadata
from tests.cli.commands import refused

pytestmark = pytest.mark.filterwarnings("error::UserWarning")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("name=x", "must not set name"),
        ("pose_dim=" + "9" * 5000, "pose_dim"),
        ("pose_dim=" + "[" * 100_000, "nested too deeply"),
        ("routing_options=" + "[" * 900 + "]" * 900, "nested too deeply"),
        (".".join("a" * 1000) + "=1", "at most 20 deep"),
        ("num_classes=7", "must not set num_classes"),
        ("conv_channels=1000000000", "at most 1000000"),
    ],
)
def test_wrong_options_of_the_command_line(capsys: pytest.CaptureFixture[str], option: str, says: str) -> None:
    sentence = refused(capsys, "train", "smoke", "--set", option)
    assert says in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"model_options": ' + '{"a": ' * 900 + "1" + "}" * 901, "nested too deeply"),
        ('{"epochs": 1e30}', "epochs must be a valid integer, got 1e+30"),
        ('{"epochs": 1' + "0" * 30 + "}", "epochs must be at most 1000000"),
        ('{"epochs": 1' + "0" * 5000 + "}", "config.json is not JSON"),
        ('{"iterations": 1000000000}', "iterations must be at most 1000"),
        ('{"batch_size": 10000000000}', "batch_size must be at most 1000000"),
        ("\ud800".encode("utf-16", "surrogatepass"), "config.json is not JSON"),
        ('{"augment": {"shift": "' + "x" * 10_000 + '"}}', "augment"),
    ],
)
def test_wrong_configurations(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | bytes, says: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    sentence = refused(capsys, "train", str(path))
    assert says in sentence
    assert "pydantic" not in sentence
    assert len(sentence) < 500


def test_cards_and_preprocessing_of_the_wrong_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = {"conv_channels": 4, "primary_types": 2, "decoder": False}
    path = capsnet.save(capsnet.create_model("capsnet-small", **small), tmp_path / "m.safetensors")
    for change, says in (
        ({"card": {"summary": 5}}, "card.summary must be a valid string, got 5"),
        ({"card": {"origin": "here"}}, "card.origin must be a valid dictionary"),
        ({"card": {"test_accuracy": {"value": 1}}}, "card.test_accuracy"),
        ({"preprocessing": {"height": -1}}, "preprocessing.height must be at least 8, got -1"),
        ({"preprocessing": {"colour": 1}}, "preprocessing.colour"),
    ):
        about = {key: value for key, value in read_metadata(path).items() if key != "digest"} | change
        other = tmp_path / "other.safetensors"
        save_file(load_file(path), other, metadata={FORMAT: json.dumps(about)})
        sentence = refused(capsys, "info", str(other))
        assert says in sentence
        assert "pydantic" not in sentence


def test_damaged_records_do_not_lose_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    for step in (1, 2, 3):
        run.record({"kind": "step", "step": step})
    metrics = tmp_path / "metrics.jsonl"
    whole = metrics.read_bytes()
    for damage in (
        b'{"kind": }\n',
        b'{"step": "x", "kind": "step"}\n',
        b"\xff\xfe}\n",
        b"[1]\n[2]\n",
        b"[" * 9999 + b"}\n",
    ):
        metrics.write_bytes(damage + whole[:-1])
        caplog.clear()
        run.forget_after(2, 0)
        assert [line["step"] for line in run.records()] == [1, 2]
        assert "damaged" in caplog.text or damage.count(b"\n") == 1
    for damage in ("", "{", "[]", "[" * 99_999, '{"resumed": 5}'):
        (tmp_path / "env.json").write_text(damage)
        caplog.clear()
        run.record_environment(5, {"torch": "x"})
        assert json.loads((tmp_path / "env.json").read_text()) == {"torch": "x"}
        assert "env.json is damaged" in caplog.text
        (tmp_path / "env.json").write_text(damage)
        assert run.first_precision() is None


def test_lack_of_memory_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_lack_of_memory_is_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run", lambda words: torch.empty(2**55))
    assert "there is not enough memory for this: choose a smaller network" in refused(capsys, "list", "models")


def test_empty_name_is_not_the_current_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("L", (28, 28)).save("a.png")
    with pytest.raises(ValueError, match="the name of a picture is empty"):
        capsnet.predict("", "capsnet-small-mnist")
    assert "name of a picture is empty" in refused(capsys, "predict", "", "--model", "capsnet-small-mnist")


def test_full_disk_names_the_file(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # as a full disk: the write fails half way

    code = (
        "import signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from capsnet._files import write_atomically\n"
        "try: write_atomically(sys.argv[1], bytes(5000))\nexcept OSError as error: print(error)"
    )
    target = tmp_path / "m.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], capture_output=True, text=True, preexec_fn=small_files, timeout=60
    )
    assert str(target) in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []
    assert write_atomically(target, b"x").read_bytes() == b"x"


def test_pillow_warns_through_our_errors_only(tmp_path: Path) -> None:
    path = tmp_path / "odd.tif"
    Image.new("RGB", (16, 16)).save(path, "TIFF")
    content = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cut in range(20, len(content), 41):
            with contextlib.suppress(ValueError):
                Preprocess(style="plain")(content[:cut])


def test_search_prunes_trials_that_do_not_fit_the_memory(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    from capsnet.search import _worker, search

    real, count = _worker.try_out, iter(range(9))

    def hungry(config: TrainConfig, *arguments: object, **options: object) -> object:
        if next(count) == 1:
            torch.empty(2**55, dtype=torch.uint8)
        return real(config, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(_worker, "try_out", hungry)
    small = dataclasses.replace(quick, limit=60, eval_limit=40, epochs=1, ema=None)
    found = search(small, space="rate", trials=3, seeds=0, out=tmp_path / "out")
    assert found.finished == 3
