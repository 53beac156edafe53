"""A search from end to end on tiny trainings: what it leaves, how it goes on, and what it never looks at."""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import optuna
import pytest

import capsnet
from capsnet import cli, data, recipes
from capsnet.search import search
from capsnet.search._storage import default_storage, masked, open_study
from capsnet.search._worker import Orders
from capsnet.training import Diverged, Interrupted, TrainConfig, read_config


def trials_of(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "search.json").read_text())["trials"]


def test_what_a_search_leaves(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that the test split is never opened, neither by trials nor by the comparison."""
    opened: list[str] = []
    load = data.load

    def recording(spec: str, split: str = "train", **more: Any) -> data.Dataset:
        opened.append(split)
        return load(spec, split, **more)

    monkeypatch.setattr(data, "load", recording)
    found = search(small, "rate", 9, out=out, seeds=2, device="cpu")
    assert set(opened) == {"train", "validation"}
    monkeypatch.undo()

    assert (found.finished, found.wanted) == (9, 9)
    trials = trials_of(out)
    assert [t["number"] for t in trials] == list(range(9))
    assert trials[0]["origin"] == "default"
    assert trials[0]["params"] == {"lr": 0.01, "schedule": "one-cycle", "batch_size": 50}
    assert {t["state"] for t in trials} <= {"complete", "pruned"}
    assert found.score == max(t["validation_accuracy"] for t in trials if t["state"] == "complete")
    for trial in trials:
        here = out / "trials" / f"{trial['number']:04d}"
        assert read_config(here / "config.json").lr == trial["params"]["lr"]
        names = {path.name for path in here.iterdir()}
        assert {"config.json", "env.json", "metrics.jsonl"} <= names
        assert not names & {"figures", "model.safetensors", "checkpoint.pt", ".lock"}
    assert (out / "figures" / "history.png").is_file()
    assert (out / "figures" / "importance.png").is_file()
    page = (out / "README.md").read_text()
    assert "the test split was not touched" in page
    assert f"trial {found.trial}" in page
    assert (found.verdict is None) == found.own
    if found.verdict is not None:
        assert str(found.verdict) in page
        assert "chosen on the same validation images" in page
        assert found.verdict.seeds == [1, 2]

    best = read_config(out / "best.json")
    assert best == found.best
    again = capsnet.train(best, out=out.parent / "again", device="cpu", figures=False)
    lines = [json.loads(line) for line in (again.folder / "metrics.jsonl").read_text().splitlines()]
    assert max(line.get("val_accuracy", 0) for line in lines) == found.score  # the winner is what it was


def test_going_on_equals_going_through(small: TrainConfig, tmp_path: Path) -> None:
    """A study of six trials in two sittings is the study of six, because the sampler is keyed by the trial's place."""
    search(small, "capsules", 2, out=tmp_path / "parts", seeds=0, device="cpu")
    found = search(small, "capsules", 6, out=tmp_path / "parts", seeds=0, device="cpu")
    search(small, "capsules", 6, out=tmp_path / "whole", seeds=0, device="cpu")
    told = [
        [(t["params"], t["validation_accuracy"]) for t in trials_of(tmp_path / name)] for name in ("parts", "whole")
    ]
    assert told[0] == told[1]
    assert found.verdict is None
    more = search(small, "capsules", 3, out=tmp_path / "parts", seeds=0, device="cpu")  # has them already
    assert more.finished == 6


def test_time_over(small: TrainConfig, out: Path) -> None:
    found = search(small, "rate", 500, out=out, timeout=1.5, seeds=0, device="cpu")
    assert 1 <= found.finished < 500


def test_a_trial_that_diverges_counts_and_is_not_repeated(
    small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capsnet.search import _worker

    calls = []

    def bad(config: TrainConfig, folder: Path, **more: Any) -> Any:
        calls.append(config)
        if len(calls) > 1:
            raise Diverged("training diverged at step 3")
        return try_out(config, folder, **more)

    try_out = _worker.try_out
    monkeypatch.setattr(_worker, "try_out", bad)
    found = search(small, "rate", 3, out=out, seeds=1, device="cpu")
    assert (found.finished, found.own, found.verdict, len(calls)) == (3, True, None, 3)
    states = [(t["state"], t["reason"]) for t in trials_of(out)]
    assert states == [("complete", None)] + 2 * [("pruned", "training diverged at step 3")]


def test_the_recipe_itself_may_diverge(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once, not at every turn instead of anything new."""
    from capsnet.search import _worker

    def bad(config: TrainConfig, folder: Path, **more: Any) -> Any:
        if folder.name == "0000":
            raise Diverged("training diverged at step 3")
        return try_out(config, folder, **more)

    try_out = _worker.try_out
    monkeypatch.setattr(_worker, "try_out", bad)
    found = search(small, "rate", 3, out=out, seeds=0, device="cpu")
    trials = trials_of(out)
    assert (found.finished, found.own) == (3, False)
    assert [(t["state"], t["origin"]) for t in trials] == [("pruned", "default")] + 2 * [("complete", None)]
    assert len({t["params"]["lr"] for t in trials}) == 3


def test_cut_in_the_middle_equals_going_through(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers shift, the trials that count do not: neither in the random beginning nor where the sampler has learnt."""
    from capsnet.search import _worker

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


def test_workers_never_draw_the_same(small: TrainConfig, out: Path) -> None:
    """Also if one before them fails between their draws, so that the count stands still."""
    from capsnet.search._worker import suggest

    out.mkdir()
    storage = default_storage(out)
    orders = Orders(config=small, space="rate", trials=9, out=out, storage=storage, study="s")
    study = open_study(storage, "s", small, "rate")
    first, second = study.ask(), study.ask()
    suggest(orders, study, second)
    study.tell(first, state=optuna.trial.TrialState.FAIL)
    third = study.ask()
    suggest(orders, study, third)
    assert second.params != third.params


@pytest.mark.parametrize("others", [True, False])
def test_a_worker_that_was_stopped_is_not_missed_if_all_is_done(
    small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    import subprocess

    from capsnet.search import _search

    real, started = _search._start, []

    def start(orders: Orders) -> Any:
        started.append(orders)
        if others and len(started) == 1:
            return real(orders)
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(130)"]), tempfile.TemporaryFile()

    monkeypatch.setattr(_search, "_start", start)
    if others:
        assert search(small, "rate", 2, out=out, seeds=0, workers=2, device="cpu").finished == 2
    else:
        with pytest.raises(Interrupted):
            search(small, "rate", 2, out=out, seeds=0, workers=2, device="cpu")
    assert len(started) == 2


def test_stopped_by_hand(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut short is tried once more, with the same values, and counted once."""
    from capsnet.search import _worker

    try_out = _worker.try_out

    def stop_the_second(config: TrainConfig, folder: Path, **more: Any) -> Any:
        if folder.name == "0001":
            raise Interrupted(folder)
        return try_out(config, folder, **more)

    monkeypatch.setattr(_worker, "try_out", stop_the_second)
    with pytest.raises(Interrupted):
        search(small, "rate", 3, out=out, seeds=0, device="cpu")
    found = search(small, "rate", 3, out=out, seeds=0, device="cpu")
    trials = trials_of(out)
    assert found.finished == 3
    assert [t["state"] for t in trials] == ["complete", "fail", "complete", "complete"]
    assert trials[2]["origin"] == "again 1"
    assert trials[2]["params"] == trials[1]["params"]


def test_an_error_is_not_hidden(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capsnet.search import _worker

    def broken(*arguments: Any, **more: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(_worker, "try_out", broken)
    with pytest.raises(OSError, match="No space left"):
        search(small, "rate", 2, out=out, device="cpu")


def test_bad_input(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_orders_travel(small: TrainConfig, tmp_path: Path) -> None:
    orders = Orders(config=small, space="rate", trials=3, out=tmp_path, storage="s", study="x", until=4.5, threads=1)
    assert Orders.from_json(orders.to_json()) == orders
    assert masked("postgresql://me:pass:w@rd@host/db") == "postgresql://me:***@host/db"
    assert masked("sqlite:////tmp/a@b.db") == "sqlite:////tmp/a@b.db"


def test_command_line(
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
