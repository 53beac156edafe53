"""A search from end to end on tiny trainings: its files, how it continues, and that it never opens the test split."""

import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

import capsnet
from capsnet import cli, data, recipes
from capsnet.search import _search, _worker, search
from capsnet.search._storage import default_storage, masked, open_study
from capsnet.search._worker import Job
from capsnet.training import Diverged, Interrupted, TrainConfig, read_config


def trials_of(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "search.json").read_text())["trials"]


def test_search_writes_its_files_without_the_test_split(
    small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    load = data.load

    def recording(spec: str, split: str = "train", **more: Any) -> data.Dataset:
        opened.append(split)
        return load(spec, split, **more)

    monkeypatch.setattr(data, "load", recording)
    result = search(small, "rate", 9, out=out, seeds=2, device="cpu")
    assert set(opened) == {"train", "validation"}
    monkeypatch.undo()

    assert (result.finished, result.wanted) == (9, 9)
    trials = trials_of(out)
    assert [t["number"] for t in trials] == list(range(9))
    assert [t["default"] for t in trials] == [True] + 8 * [False]
    assert trials[0]["params"] == {"lr": 0.01, "schedule": "one-cycle", "batch_size": 50}
    assert {t["state"] for t in trials} <= {"complete", "pruned"}
    assert result.score == max(t["validation_accuracy"] for t in trials if t["state"] == "complete")
    for trial in trials:
        folder = out / "trials-quick-rate" / f"{trial['number']:04d}"
        assert read_config(folder / "config.json").lr == trial["params"]["lr"]
        names = {path.name for path in folder.iterdir()}
        assert {"config.json", "env.json", "metrics.jsonl"} <= names
        assert not names & {"figures", "model.safetensors", "checkpoint.pt", ".lock"}
    assert (out / "figures" / "history.png").is_file()
    assert (out / "figures" / "importance.png").is_file()
    page = (out / "README.md").read_text()
    assert "the test split was not touched" in page
    assert f"trial {result.trial}" in page
    assert (result.verdict is None) == result.own
    if result.verdict is not None:
        assert str(result.verdict) in page
        assert "chosen on the same validation images" in page
        assert result.verdict.seeds == [1, 2]

    best = read_config(out / "best.json")
    assert best == result.best
    again = capsnet.train(best, out=out.parent / "again", device="cpu", figures=False)
    lines = [json.loads(line) for line in (again.folder / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("val_accuracy", 0) for line in lines) == result.score  # the winner is what it was


def test_continued_study_equals_one_in_one_go(small: TrainConfig, tmp_path: Path) -> None:
    """The sampler is keyed by the number of earlier trials."""
    search(small, "capsules", 2, out=tmp_path / "parts", seeds=0, device="cpu")
    result = search(small, "capsules", 6, out=tmp_path / "parts", seeds=0, device="cpu")
    search(small, "capsules", 6, out=tmp_path / "whole", seeds=0, device="cpu")
    told = [
        [(t["params"], t["validation_accuracy"]) for t in trials_of(tmp_path / name)] for name in ("parts", "whole")
    ]
    assert told[0] == told[1]
    assert result.verdict is None
    more = search(small, "capsules", 3, out=tmp_path / "parts", seeds=0, device="cpu")  # has them already
    assert more.finished == 6


def test_timeout_ends_the_search(small: TrainConfig, out: Path) -> None:
    result = search(small, "rate", 500, out=out, timeout=3, seeds=0, device="cpu")
    assert 1 <= result.finished < 500


def test_diverged_trial_counts_and_is_not_repeated(
    small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def bad(config: TrainConfig, folder: Path, **more: Any) -> Any:
        calls.append(config)
        if len(calls) > 1:
            raise Diverged("training diverged at step 3")
        return try_out(config, folder, **more)

    try_out = _worker.try_out
    monkeypatch.setattr(_worker, "try_out", bad)
    result = search(small, "rate", 3, out=out, seeds=1, device="cpu")
    assert (result.finished, result.own, result.verdict, len(calls)) == (3, True, None, 3)
    states = [(t["state"], t["reason"]) for t in trials_of(out)]
    assert states == [("complete", None)] + 2 * [("pruned", "training diverged at step 3")]


def test_diverged_recipe_is_tried_once(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(config: TrainConfig, folder: Path, **more: Any) -> Any:
        if folder.name == "0000":
            raise Diverged("training diverged at step 3")
        return try_out(config, folder, **more)

    try_out = _worker.try_out
    monkeypatch.setattr(_worker, "try_out", bad)
    result = search(small, "rate", 3, out=out, seeds=0, device="cpu")
    trials = trials_of(out)
    assert (result.finished, result.own) == (3, False)
    assert [(t["state"], t["default"]) for t in trials] == [("pruned", True)] + 2 * [("complete", False)]
    assert len({t["params"]["lr"] for t in trials}) == 3


def test_interrupted_study_equals_an_uninterrupted_one(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers shift, the finished trials do not: neither among the random first ones nor later."""

    def cut(config: TrainConfig, folder: Path, **more: Any) -> Any:
        if folder.parent.parent.name == "parts" and folder.name in ("0000", "0003", "0004", "0013"):
            raise Interrupted(folder)
        return try_out(config, folder, **more)

    try_out = _worker.try_out
    monkeypatch.setattr(_worker, "try_out", cut)
    for _ in range(4):
        with pytest.raises(Interrupted):
            search(small, "rate", 12, out=tmp_path / "parts", seeds=0, device="cpu")
    for name in ("parts", "whole"):
        assert search(small, "rate", 12, out=tmp_path / name, seeds=0, device="cpu").finished == 12
    parts, whole = (
        [(t["params"], t["epochs"], t["state"]) for t in trials_of(tmp_path / name) if t["state"] != "fail"]
        for name in ("parts", "whole")
    )
    assert parts == whole
    assert len(trials_of(tmp_path / "parts")) == 16


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_workers_draw_different_values(small: TrainConfig, out: Path) -> None:
    """Even if an earlier trial fails between their draws, so that the count stands still."""
    out.mkdir()
    storage = default_storage(out)
    job = Job(config=small, space="rate", trials=9, out=out, storage=storage, study="s")
    study = open_study(storage, "s", small, "rate")
    first, second = study.ask(), study.ask()
    _worker.suggest(job, study, second)
    study.tell(first, state=optuna.trial.TrialState.FAIL)
    third = study.ask()
    _worker.suggest(job, study, third)
    assert second.params != third.params


def test_worker_process_loads_plugins(small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model from outside the package trains in another process, too."""
    plugin = tmp_path / "plugin_of_the_search.py"
    plugin.write_text(
        "from capsnet import models\nmodels.register('outside', models.CapsNet, 'from a plugin', conv_channels=4)\n"
    )
    monkeypatch.setenv("CAPSNET_PLUGINS", str(plugin))
    job = Job(
        config=dataclasses.replace(small, model="outside", data=data.canonical(small.data)),
        space="rate",
        trials=1,
        out=tmp_path,
        storage=default_storage(tmp_path),
        study="s",
        device="cpu",
    )
    run = subprocess.run([sys.executable, "-m", "capsnet.search"], input=pickle.dumps(job), capture_output=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "trials-s" / "0000" / "results.json").is_file()


def test_search_goes_on_without_a_failed_worker(
    small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_search.pickle, "dump", lambda job, pipe: pipe.write(pickle.dumps(broken(job))))

    def broken(job: Job) -> Job:
        return dataclasses.replace(job, storage="sqlite:////no/such/folder/study.db")

    assert search(small, "rate", 2, out=out, seeds=0, workers=2, device="cpu").finished == 2
    assert "a worker of the search failed: the storage sqlite:////no/such" in capfd.readouterr().err


def test_interrupted_trial_is_repeated_once(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same values; it counts once."""
    try_out = _worker.try_out

    def stop_the_second(config: TrainConfig, folder: Path, **more: Any) -> Any:
        if folder.name == "0001":
            raise Interrupted(folder)
        return try_out(config, folder, **more)

    monkeypatch.setattr(_worker, "try_out", stop_the_second)
    with pytest.raises(Interrupted):
        search(small, "rate", 3, out=out, seeds=0, device="cpu")
    result = search(small, "rate", 3, out=out, seeds=0, device="cpu")
    trials = trials_of(out)
    assert result.finished == 3
    assert [t["state"] for t in trials] == ["complete", "fail", "complete", "complete"]
    assert [t["retry_of"] for t in trials] == [None, None, 1, None]
    assert trials[2]["params"] == trials[1]["params"]


def test_trial_given_to_another_worker_does_not_count(
    small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a suspended computer: the heartbeat was missed, and the trial failed from outside."""

    def lose_the_first(config: TrainConfig, folder: Path, **more: Any) -> Any:
        if folder.name == "0000":
            study = optuna.load_study(study_name="quick-rate", storage=default_storage(out))
            study.tell(0, state=optuna.trial.TrialState.FAIL)
        return try_out(config, folder, **more)

    try_out = _worker.try_out
    monkeypatch.setattr(_worker, "try_out", lose_the_first)
    assert search(small, "rate", 2, out=out, seeds=0, device="cpu").finished == 2
    assert [t["state"] for t in trials_of(out)] == ["fail", "complete", "complete"]


def test_error_of_a_trial_ends_the_search(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that an operating-system error ended is repeated by the same command."""

    def broken(*arguments: Any, **more: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(_worker, "try_out", broken)
    with pytest.raises(OSError, match="No space left"):
        search(small, "rate", 1, out=out, device="cpu")
    monkeypatch.undo()
    assert search(small, "rate", 1, out=out, device="cpu").own
    assert [(t["state"], t["default"]) for t in trials_of(out)] == [("fail", True), ("complete", True)]


def test_bad_input_is_one_sentence(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(match: str, recipe: Any = small, space: str = "rate", trials: int = 2, **more: Any) -> None:
        with pytest.raises((ValueError, OSError), match=match):
            search(recipe, space, trials, out=out, **more)

    refuse("Did you mean 'rate'", space="rat")
    refuse("unknown recipe", recipe="nobody")
    refuse("trials must be at least 1, got 0", trials=0)
    refuse("workers must be", workers=0)
    refuse("seeds must be", seeds=-1)
    refuse("timeout must be", timeout=0.0)
    refuse("epochs must be at least 1", epochs=0)
    refuse("no validation split", recipe=dataclasses.replace(small, train_on="train+validation"))
    refuse("no such", recipe=dataclasses.replace(small, data="mnist:nowhere"))
    refuse("a storage is sqlite", storage="study.db")
    refuse("cannot be used: there is no folder", storage=f"journal:{out}/x/j.log")
    refuse("cannot be used: unable to open", storage=f"sqlite:///{out}/x/s.db")
    refuse("in memory is lost", storage="sqlite:///:memory:")
    refuse(r"u:\*\*\*@", storage="postgresql://u:secret@localhost:1/x")
    broken = out.parent / "broken.db"
    broken.write_text("this is no database, but long enough to be taken for one")
    refuse("not a database", storage=f"sqlite:///{broken}")
    assert not out.exists()
    monkeypatch.setitem(sys.modules, "optuna", None)
    refuse(r"pip install 'capsnet\[search\]'")


def test_masked_hides_the_password() -> None:
    assert masked("postgresql://me:pass:w@rd@host/db") == "postgresql://me:***@host/db"
    assert masked("sqlite:////tmp/a@b.db") == "sqlite:////tmp/a@b.db"


def test_command_line_reports_and_continues(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(recipes._RECIPES, "small", lambda: small)
    monkeypatch.chdir(tmp_path)
    cli.main(["search", "--spaces"])
    assert "learning rate" in capsys.readouterr().out
    cli.main(["search", "small", "--space", "rate", "--trials", "2", "--epochs", "1", "--seeds", "0"])
    said = capsys.readouterr().out
    assert "best: trial" in said
    assert "train runs/small/search-rate/best.json" in said
    assert read_config("runs/small/search-rate/best.json").epochs == 1
    for space, trials, words in (("rat", "2", "Did you mean 'rate'"), ("rate", "0", "at least 1")):
        with pytest.raises(SystemExit) as stop:
            cli.main(["search", "small", "--space", space, "--trials", trials])
        assert stop.value.code == 2
        assert words in capsys.readouterr().err

    def stopped(*arguments: Any, **more: Any) -> None:
        raise Interrupted(tmp_path)

    monkeypatch.setattr("capsnet.search.search", stopped)
    with pytest.raises(SystemExit) as stop:
        cli.main(["search", "small", "--space", "rate", "--trials", "9"])
    assert stop.value.code == 130
    assert "search small --space rate --trials 9" in capsys.readouterr().err
