"""Where studies live: kept, joined, told apart; and no password is written down."""

import dataclasses
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from capsnet.search import _storage, search
from capsnet.search._storage import ABOUT, default_storage, open_storage, open_study
from capsnet.training import TrainConfig, read_config


def test_journal_and_two_workers(small: TrainConfig, out: Path) -> None:
    storage = f"journal:{out.parent / 'journal.log'}"
    found = search(small, "rate", 3, out=out, storage=storage, seeds=0, workers=2, device="cpu")
    assert found.finished == 3
    assert not (out / "study.db").exists()
    assert len({t["worker"] for t in json.loads((out / "search.json").read_text())["trials"]}) <= 2
    study = open_study(storage, "quick-rate", read_config(out / "best.json"), "rate") if found.own else None
    assert study is None or len(study.trials) == 3


def test_two_studies_in_one_folder(small: TrainConfig, out: Path) -> None:
    """Neither finds the other's trials in its way, and neither removes them."""

    def told(*folders: Path) -> list[str]:
        return [(folder / "0000" / "metrics.jsonl").read_text() for folder in folders]

    search(small, "rate", 1, out=out, seeds=0, device="cpu")
    before = told(out / "trials")
    search(small, "rate", 1, out=out, seeds=0, device="cpu", study="../mine")
    assert "`trials-..%2Fmine/` a folder" in (out / "README.md").read_text()
    search(small, "loss", 1, out=out, seeds=0, device="cpu")
    assert told(out / "trials") == before
    assert len(told(out / "trials-..%2Fmine", out / "trials-quick-loss")) == 2
    assert search(small, "rate", 2, out=out, seeds=0, device="cpu").finished == 2
    assert sorted(path.name for path in (out / "trials").iterdir()) == [".study", "0000", "0001"]
    assert "`trials/` a folder" in (out / "README.md").read_text()


def test_a_deleted_study_is_begun_anew(small: TrainConfig, out: Path) -> None:
    from capsnet.training.run import Run

    search(small, "rate", 2, out=out, seeds=0, device="cpu")
    (out / "trials" / "0000" / "mine.txt").write_text("left over")
    for path in out.glob("study.db*"):
        path.unlink()
    found = search(small, "rate", 1, out=out, seeds=0, device="cpu")
    assert found.finished == 1
    assert not (out / "trials" / "0000" / "mine.txt").exists()
    assert (out / "trials" / "0000" / "results.json").is_file()
    for path in out.glob("study.db*"):
        path.unlink()
    with Run(out / "trials" / "0000").lock(), pytest.raises(ValueError, match=r"another process is training in .*0000"):
        search(small, "rate", 1, out=out, seeds=0, device="cpu")
    assert (out / "trials" / "0000" / "results.json").is_file()


def test_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not there, and a driver that is not there: one sentence each, at once, no password."""
    with socket.socket() as taken:  # bound, but nobody listens: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"postgresql://me:secret@127.0.0.1:{taken.getsockname()[1]}/studies"
        began = time.monotonic()
        with pytest.raises(ValueError, match=r"cannot be used: connection failed: .*refused") as failure:
            open_storage(address)
    assert time.monotonic() - began < 10
    assert "\n" not in str(failure.value)
    assert "secret" not in str(failure.value)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never answers
        monkeypatch.setattr(_storage, "ANSWER", 2)
        began = time.monotonic()
        with pytest.raises(ValueError, match=r"cannot be used: connection .*timeout"):
            open_storage(f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/studies")
        assert time.monotonic() - began < 10
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        ValueError, match=r"the driver for postgresql is not installed: pip install 'capsnet\[search\]'"
    ):
        open_storage(address)


def test_another_study_is_not_joined(small: TrainConfig, out: Path) -> None:
    search(small, "rate", 1, out=out, seeds=0, device="cpu")
    with pytest.raises(ValueError, match="is another search: its recipe differs: limit is 60, not 50"):
        search(small, "rate", 2, out=out, limit=50, seeds=0)
    with pytest.raises(ValueError, match="its space is rate, not loss"):
        search(small, "loss", 2, out=out, study="quick-rate", seeds=0)


def test_a_study_from_before_a_setting_was_there_goes_on(small: TrainConfig, tmp_path: Path) -> None:
    storage = default_storage(tmp_path)
    study = open_study(storage, "one", small, "rate")
    about = study.user_attrs[ABOUT]
    del about["config"]["clip"], about["config"]["augment"]["elastic"]
    study.set_user_attr(ABOUT, about)
    open_study(storage, "one", small, "rate")
    with pytest.raises(ValueError, match="its recipe differs: clip is None, not 2"):
        open_study(storage, "one", dataclasses.replace(small, clip=2.0), "rate")


def test_two_processes_may_create_one_storage(tmp_path: Path) -> None:
    """Forked at the same moment, as two terminals would: neither finds the other's half-made tables in its way."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    for attempt in range(3):
        address = f"sqlite:///{tmp_path / str(attempt)}.db"
        barrier = context.Barrier(4)

        def create(address: str = address, barrier: Any = barrier) -> None:
            barrier.wait(30)
            open_study(address, "s", TrainConfig(), "rate")

        crew = [context.Process(target=create) for _ in range(4)]
        for process in crew:
            process.start()
        for process in crew:
            process.join(60)
        assert [process.exitcode for process in crew] == [0] * 4


def test_a_password_is_in_no_file(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that a run records is told without it."""
    monkeypatch.setattr(sys, "argv", ["capsnet", "search", "--storage", "postgresql://me:secret@host/db"])
    search(small, "rate", 1, out=out, seeds=0, device="cpu")
    told = [path.read_text() for path in out.rglob("*") if path.suffix in (".json", ".md")]
    assert any("postgresql://me:***@host/db" in text for text in told)
    assert not any("secret" in text for text in told)
