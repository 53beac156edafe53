"""`capsnet reproduce`: lists, runs, asks before long runs."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from capsnet import cli, experiments
from capsnet.cli._experiments import Experiment, confirm
from capsnet.experiments import lab
from tests.cli.commands import output, refused


@pytest.mark.parametrize("arguments", [["reproduce", "--list"], ["reproduce"]])
def test_reproduce_lists_the_experiments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *arguments)
    assert all(f"  {name} " in text for name in experiments.list_experiments())


def test_reproduce_runs_and_says_where_the_page_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "reproduce", "routing-toy", "--budget", "smoke", "--out", str(tmp_path))
    assert "routing-toy.html" in text
    assert (tmp_path / "smoke" / "routing-toy" / "routing-toy.json").is_file()
    assert "Did you mean 'routing-toy'?" in refused(capsys, "reproduce", "routing-tony", "--budget", "smoke")
    assert "unknown option of table1 'data'" in refused(capsys, "reproduce", "table1", "--data", "lungs")
    assert "unknown data set 'lungs'" in refused(capsys, "reproduce", "small-data", "--data", "lungs")
    assert "unknown set of pictures 'lungs'" in refused(capsys, "reproduce", "binding", "--data", "lungs")


def test_reproduce_asks_for_matplotlib_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    monkeypatch.setattr(lab, "train", None)  # calling it would fail
    told = refused(capsys, "reproduce", "table1", "--budget", "smoke", "--out", str(tmp_path))
    assert "the figures of table1 need matplotlib: pip install 'capsnet[train]'" in told
    assert list(tmp_path.iterdir()) == []


def test_long_run_does_not_start_if_nobody_can_confirm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as stop:
        cli.main(["reproduce", "routing-toy", "--budget", "paper", "--out", str(tmp_path)])
    assert stop.value.code == 1
    told = capsys.readouterr()
    assert "start it with --yes" in told.out
    assert "was not started" in told.err
    assert list(tmp_path.rglob("*.json")) == []


def test_end_of_input_does_not_confirm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D at the question."""
    keyboard = io.StringIO()
    keyboard.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", keyboard)
    assert not confirm("ten hours")


def test_all_runs_what_the_budget_has(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Experiment, "experiment", lambda self, name: begun.append(name))
    cli.main(["reproduce", "all", "--budget", "shipped"])
    assert begun == experiments.list_experiments("shipped")
    assert set(begun) < set(experiments.list_experiments())
    begun.clear()
    cli.main(["reproduce", "all", "--budget", "smoke"])
    assert begun == experiments.list_experiments()
    assert "unknown budget 'qick'. Did you mean 'quick'?" in refused(capsys, "reproduce", "all", "--budget", "qick")


def test_flags_reach_the_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, dict[str, Any]]] = []

    def reproduce(name: str, **options: Any) -> Path:
        begun.append((name, options))
        page = {"title": name, "findings": ["found"], "tables": []}
        (tmp_path / f"{name}.json").write_text(json.dumps(page), encoding="utf-8")
        return tmp_path

    monkeypatch.setattr(experiments, "reproduce", reproduce)
    flags = [
        "--budget",
        "smoke",
        "--seeds",
        "4",
        "--out",
        "there",
        "--device",
        "cpu",
        "--fresh",
        "--jobs",
        "2",
        "--yes",
    ]
    expected = {"budget": "smoke", "seeds": 4, "out": "there", "device": "cpu", "fresh": True, "jobs": 2}
    output(capsys, "reproduce", "small-data", *flags, "--data", "lungs")
    output(capsys, "compare", *flags, "--routings", "dynamic", "uniform", "--recipe", "demo")
    for (name, options), own in zip(
        begun,
        [("small-data", {"data": ["lungs"]}), ("compare", {"routings": ("dynamic", "uniform"), "recipe": "demo"})],
        strict=True,
    ):
        assert options.pop("ask")("long") is True
        assert (name, options) == (own[0], expected | own[1])
    output(capsys, "reproduce", "table1")
    assert begun[-1][1]["ask"] is confirm
    assert (begun[-1][1]["jobs"], begun[-1][1]["fresh"], begun[-1][1]["seeds"]) == (1, False, None)
