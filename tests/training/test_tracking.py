"""Trackers are told what happens, and a run without TensorBoard or matplotlib says what it leaves out."""

import dataclasses
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import capsnet
from capsnet.drawing import style


class Notebook:
    """A tracker that writes everything down."""

    def __init__(self) -> None:
        self.pages: list[tuple[Any, ...]] = []

    def begin(self, config: dict[str, Any], folder: Path) -> None:
        self.pages.append(("begin", config["model"], folder.name))

    def log(self, kind: str, values: dict[str, float], step: int) -> None:
        self.pages.append((kind, step, values))

    def end(self, results: dict[str, Any] | None) -> None:
        self.pages.append(("end", results))


class Torn(Notebook):
    def log(self, kind: str, values: dict[str, float], step: int) -> None:
        raise RuntimeError("no more pages")


def test_a_tracker_gets_every_line_and_the_results(quick: capsnet.TrainConfig, tmp_path: Path) -> None:
    notebook = Notebook()
    done = capsnet.train(quick, out=tmp_path / "run", figures=False, trackers=[notebook])
    assert notebook.pages[0] == ("begin", "capsnet", "run")
    assert notebook.pages[-1] == ("end", done.test.metrics)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = [{"kind": kind, "step": step} | values for kind, step, values in notebook.pages[1:-1]]
    assert told == [{key: value for key, value in line.items() if key != "epoch"} for line in lines]
    assert {page["kind"] for page in told} == {"epoch"}  # the run is shorter than 50 steps


def test_what_is_no_tracker_is_refused_before_the_run(quick: capsnet.TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"a tracker has the methods begin, log and end .*; object has no begin, log, end"
    ):
        capsnet.train(quick, out=tmp_path / "run", trackers=[object()])  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()


def test_a_failed_run_is_ended_without_results(quick: capsnet.TrainConfig, tmp_path: Path) -> None:
    torn = Torn()
    with pytest.raises(RuntimeError, match="no more pages"):
        capsnet.train(quick, out=tmp_path / "run", figures=False, trackers=[torn])
    assert torn.pages[-1] == ("end", None)


def test_without_the_packages_a_run_says_once_what_it_leaves_out(
    quick: capsnet.TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("matplotlib", "tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if they were not installed
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with caplog.at_level(logging.INFO, "capsnet"):
        capsnet.train(dataclasses.replace(quick, tensorboard=True, epochs=1), out=tmp_path / "run")
    said = [record.getMessage() for record in caplog.records if "not installed" in record.getMessage()]
    assert said == [
        "matplotlib and tensorboard are not installed: the run leaves out figures and event files for TensorBoard; "
        "pip install 'capsnet[train]'"
    ]
    assert not (tmp_path / "run" / "tensorboard").exists()
    page = (tmp_path / "run" / "README.md").read_text()
    assert "tensorboard --logdir" not in page
    assert capsnet.load(tmp_path / "run").card["recipe"] == "quick"
    with pytest.raises(ValueError, match=r"figures need matplotlib: pip install 'capsnet\[train\]'"):
        style.figure(1, 1)


def documented(package: str) -> dict[str, Any]:
    """What the example of a package in docs/trackers.md defines."""
    page = (Path(__file__).parents[2] / "docs" / "trackers.md").read_text()
    names: dict[str, Any] = {}
    exec(next(block for block in page.split("```python\n") if f"import {package}" in block).split("```")[0], names)
    return names


def test_the_documented_tracker_of_wandb_works(
    quick: capsnet.TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not in the extra `dev`: see docs/trackers.md")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    tracker = documented("wandb")["WandB"]("digits")
    done = capsnet.train(quick, out=tmp_path / "run", figures=False, trackers=[tracker])
    assert tracker.run.id == "run"
    assert tracker.run.config["model"] == "capsnet"
    (written,) = (path.read_bytes() for path in tmp_path.glob("wandb/offline-run-*/*.wandb"))  # names and JSON numbers
    assert {b"epoch/train_loss", b"test_accuracy", str(done.test.accuracy.value).encode()} <= set(
        re.findall(rb"[\w/]+_\w+|\d\.\d+", written)
    )


def test_the_documented_tracker_of_mlflow_works(
    quick: capsnet.TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip(
        "mlflow", reason="MLflow is not in the extra `dev`, it asks for too many packages: see docs/trackers.md"
    )
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    done = capsnet.train(quick, out=tmp_path / "run", figures=False, trackers=[documented("mlflow")["MLflow"]()])
    (run,) = mlflow.search_runs(output_format="list")
    assert run.info.status == "FINISHED"
    assert run.data.params["model"] == "capsnet"
    assert run.data.metrics["test_accuracy"] == done.test.accuracy.value
