"""Models of the Hugging Face hub, against a stand-in for it: fetched, checked, cached, pushed with a card."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save

import capsnet
from capsnet import weights
from capsnet.weights import _hub
from tests.cli.commands import exit_code, refused
from tests.weights.standin import TOKEN, Hub

needs_library = pytest.mark.skipif(not find_spec("huggingface_hub"), reason="the extra `hub` is not installed")
Enter = Callable[..., None]


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with Hub() as standin:
        yield standin


@pytest.fixture
def enter(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Enter]:
    """Set environment variables and import huggingface_hub anew, which reads most of them when it is imported."""

    def forget() -> dict[str, Any]:
        names = [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]
        return {name: sys.modules.pop(name) for name in names}

    def set_variables(**variables: str | None) -> None:
        for key, value in variables.items():
            monkeypatch.delenv(key, raising=False) if value is None else monkeypatch.setenv(key, value)
        forget()

    before = forget()
    plain = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    set_variables(HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path / "home"), HF_TOKEN=TOKEN, HF_HUB_OFFLINE=None, **plain)
    yield set_variables
    forget()
    sys.modules.update(before)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = capsnet.create_model("capsnet-small", conv_channels=4, primary_types=2, decoder=False)
    share = {"value": 0.75, "low": 0.66, "high": 0.83, "n": 100}
    data = f"folder:{Path.home() / 'photos'}"
    card = {"summary": "a small network", "data": data, "test_accuracy": share, "seed": 3}
    return capsnet.save(model, tmp_path_factory.mktemp("weights") / "small.safetensors", card=card)


@pytest.mark.parametrize(
    "name", ["hf:", "hf:digits", "hf:a/b/c", "hf:a/../b", "hf:/b", "hf:a/b@", "hf:a/b@../c", "hf:a b/c", "hf:a--b/c"]
)
def test_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="write hf:user/name, or hf:user/name@revision"):
        capsnet.load(name)


def test_name_has_a_revision() -> None:
    assert _hub.parse("hf:jane/digits-1.5@refs/pr/1") == ("jane/digits-1.5", "refs/pr/1")
    assert str(_hub.parse("jane/digits")) == "hf:jane/digits"


def test_missing_library_is_one_sentence(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'capsnet[hub]'" in refused(capsys, "evaluate", "hf:jane/digits")
    assert "pip install 'capsnet[hub]'" in refused(capsys, "push", str(small), "jane/digits")


@needs_library
def test_pushed_model_is_loaded_again(hub: Hub, enter: Enter, small: Path, tmp_path: Path) -> None:
    done = capsnet.push(small, "jane/digits", license="mit")
    assert done == ("hf:jane/digits", f"{hub.url}/jane/digits", hub.repositories["jane/digits"].branches["main"])
    stored = hub.repositories["jane/digits"].commits[done.commit]
    assert set(stored) == {"model.safetensors", "README.md"}
    assert stored["model.safetensors"] == small.read_bytes()
    again = capsnet.load(done.name)
    torch.testing.assert_close(again.state_dict(), capsnet.load(small).state_dict(), rtol=0, atol=0)
    assert Path(weights.resolve(done.name)).is_relative_to(tmp_path / "home")
    assert {file.name for file in (tmp_path / "home").rglob("snapshots/*/*")} == {"model.safetensors"}  # nothing else
    assert any("capsnet/" in agent for agent in hub.agents)
    model = capsnet.create_model("capsnet-small", conv_channels=4, primary_types=2, decoder=False)
    capsnet.push(model, "jane/digits@second", private=True)  # a model in memory, on another branch
    assert capsnet.load("hf:jane/digits@second").card == {}
    assert capsnet.load(f"hf:jane/digits@{done.commit}").card["seed"] == 3


@needs_library
def test_cache_answers_offline(
    hub: Hub, enter: Enter, small: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hub.add("jane/cached", {"model.safetensors": small.read_bytes()})
    assert exit_code("info", "hf:jane/cached") == 0
    enter(HF_HUB_OFFLINE="1")
    asked = len(hub.asked)
    assert exit_code("info", "hf:jane/cached") == 0
    assert "a small network" in capsys.readouterr().out
    assert "hf:jane/other is not in the cache" in refused(capsys, "info", "hf:jane/other")
    assert "HF_HUB_OFFLINE is set" in refused(capsys, "push", str(small), "jane/offline")
    assert len(hub.asked) == asked
    enter(HF_HUB_OFFLINE=None, HF_ENDPOINT="http://127.0.0.1:1")  # nobody listens: the cached file is used
    assert weights.resolve("hf:jane/cached").is_file()
    with pytest.raises(
        FileNotFoundError, match=r"hf:jane/other is not in the cache .*, and nothing is downloaded here"
    ):
        weights.resolve("hf:jane/other", download=False)
    with pytest.raises(OSError, match=r"hf:jane/other.* http://127.0.0.1:1 cannot be reached"):
        weights.resolve("hf:jane/other")


@needs_library
def test_what_is_no_model_is_refused_in_one_sentence(
    hub: Hub, enter: Enter, small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = save({"a": torch.zeros(2)})
    damaged = bytearray(small.read_bytes())
    damaged[-1] ^= 1
    for name, files in {
        "only-a-pickle": {"pytorch_model.bin": b"\x80\x04.", "model.pt": b"\x80\x04."},
        "foreign": {"model.safetensors": foreign},
        "damaged": {"model.safetensors": bytes(damaged)},
        "huge": {"model.safetensors": b"pretend 5368709120 bytes"},
    }.items():
        hub.add(f"jane/{name}", files)
    sentences = {
        "nothing": "there is no model hf:jane/nothing at http://127.0.0.1",
        "only-a-pickle": "hf:jane/only-a-pickle has no weights of capsnet: there is no model.safetensors",
        "foreign": "hf:jane/foreign has no weights of capsnet",
        "foreign@old": "hf:jane/foreign@old: the repository has no such branch, tag or commit",
        "damaged": "is damaged: its content does not have the digest",
        "huge": "has 5.0 GB, at most 4 are fetched",
    }
    for name, sentence in sentences.items():
        assert sentence in refused(capsys, "info", f"hf:jane/{name}")
    assert not any(ask.startswith("GET") and ("huge" in ask or "pickle" in ask) for ask in hub.asked)


@needs_library
def test_pushing_needs_a_token_and_loadable_weights(
    hub: Hub, enter: Enter, small: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = len(hub.asked)
    (tmp_path / "x.onnx").touch()
    assert "is an exported file" in refused(capsys, "push", str(tmp_path / "x.onnx"), "jane/x")
    (tmp_path / "x.safetensors").write_bytes(small.read_bytes()[:-1])
    assert "not a complete safetensors file" in refused(capsys, "push", str(tmp_path / "x.safetensors"), "jane/x")
    assert "names no repository" in refused(capsys, "push", str(small), "digits")
    assert "license must be an identifier" in refused(capsys, "push", str(small), "jane/x", "--license", "My own!")
    enter(HF_TOKEN=None)
    assert "no token for hf:jane/x" in refused(capsys, "push", str(small), "jane/x")
    assert len(hub.asked) == asked
    enter(HF_TOKEN="hf_wrong")
    assert "refuses (401)" in refused(capsys, "push", str(small), "jane/x")
    assert "jane/x" not in hub.repositories


@needs_library
def test_card_is_valid_and_has_our_numbers(
    enter: Enter, small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Read with the hub's own functions; nothing is uploaded with ``out``, and no token is needed."""
    enter(HF_TOKEN=None, HF_HUB_OFFLINE="1")
    hf, repocard = import_module("huggingface_hub"), import_module("huggingface_hub.repocard_data")
    with caplog.at_level(logging.WARNING, "capsnet"):
        capsnet.push(small, "jane/digits", out=tmp_path / "files")
    assert "which become public" in caplog.text
    page = tmp_path / "files" / "README.md"
    card = hf.ModelCard.load(page)
    assert yaml.safe_load(card.data.to_yaml()) == hf.metadata_load(page)
    assert (card.data.license, card.data.library_name) == ("unknown", "capsnet")
    assert card.data.pipeline_tag == "image-classification"
    assert {"capsnet", "dynamic-routing"} <= set(card.data.tags)
    (result,) = card.data.eval_results
    name, results = repocard.model_index_to_eval_results(hf.metadata_load(page)["model-index"])
    assert (name, results) == ("digits", [result])
    assert (result.dataset_type, result.metric_type, result.metric_value) == ("folder", "accuracy", 0.75)
    assert str(Path.home()) not in page.read_text()  # the path of the data
    assert 'capsnet.load("hf:jane/digits")' in card.text
    capsnet.push("efficient-mnist", "jane/digits", out=tmp_path / "bundled")
    bundled = hf.ModelCard.load(tmp_path / "bundled" / "README.md").data
    accuracy = capsnet.load("efficient-mnist").card["test_accuracy"]["value"]
    assert (bundled.license, bundled.eval_results[0].metric_value) == ("mit", pytest.approx(accuracy))
    capsnet.push(small, "jane/digits", card=False, out=tmp_path / "bare")
    assert [file.name for file in (tmp_path / "bare").iterdir()] == ["model.safetensors"]


@needs_library
def test_command_works_in_a_process_of_its_own(hub: Hub, enter: Enter, small: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", "capsnet", *words], capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"{hub.url}/jane/own  commit " in run("push", str(small), "jane/own", "--message", "first")
    assert "a small network" in run("info", "hf:jane/own")
