"""Storages and studies: created, joined, refused; and no password is written to a file."""

import dataclasses
import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capsnet.search import _storage, search
from capsnet.search._storage import STUDY_ATTR, default_storage, open_storage, open_study
from capsnet.search._worker import ranked
from capsnet.training import TrainConfig
from capsnet.training.run import Run


def test_journal_serves_two_workers(small: TrainConfig, out: Path) -> None:
    storage = f"journal:{out.parent / 'journal.log'}"
    result = search(small, "rate", 3, out=out, storage=storage, seeds=0, workers=2, device="cpu")
    assert 3 <= result.finished <= 4  # one more if both workers are at their last trial
    assert not (out / "study.db").exists()
    assert len({t["worker"] for t in json.loads((out / "search.json").read_text())["trials"]}) <= 2
    assert search(small, "rate", 2, out=out, storage=storage, seeds=0, device="cpu").finished == result.finished


def test_two_studies_share_a_folder(small: TrainConfig, out: Path) -> None:
    """Each has its own folder of trials."""
    for space, study in (("rate", None), ("rate", "../mine"), ("loss", None)):
        search(small, space, 1, out=out, seeds=0, device="cpu", study=study)
    assert "`trials-quick-loss/` a folder" in (out / "README.md").read_text()
    assert search(small, "rate", 2, out=out, seeds=0, device="cpu").finished == 2
    folders = sorted(str(path.parent.relative_to(out)) for path in out.rglob("results.json"))
    assert folders == [
        "trials-..%2Fmine/0000",
        "trials-quick-loss/0000",
        "trials-quick-rate/0000",
        "trials-quick-rate/0001",
    ]


def test_deleted_study_starts_again(small: TrainConfig, out: Path) -> None:
    search(small, "rate", 2, out=out, seeds=0, device="cpu")
    (out / "trials-quick-rate" / "0000" / "mine.txt").write_text("left over")
    for path in out.glob("study.db*"):
        path.unlink()
    assert search(small, "rate", 1, out=out, seeds=0, device="cpu").finished == 1
    assert not (out / "trials-quick-rate" / "0000" / "mine.txt").exists()
    assert (out / "trials-quick-rate" / "0000" / "results.json").is_file()
    for path in out.glob("study.db*"):
        path.unlink()
    with (
        Run(out / "trials-quick-rate" / "0000").lock(),
        pytest.raises(ValueError, match=r"another process is training in .*0000"),
    ):
        search(small, "rate", 1, out=out, seeds=0, device="cpu")
    assert (out / "trials-quick-rate" / "0000" / "results.json").is_file()


def test_postgresql_failures_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is absent or silent, a missing driver: no password in the message."""
    pytest.importorskip("psycopg")  # LGPL: not among the development tools
    with socket.socket() as taken:  # bound, but nobody listens: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"postgresql://me:secret@127.0.0.1:{taken.getsockname()[1]}/studies"
        with pytest.raises(ValueError, match=r"cannot be used: connection failed: .*refused") as failure:
            open_storage(address)
    assert "\n" not in str(failure.value)
    assert "secret" not in str(failure.value)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never answers
        monkeypatch.setattr(_storage, "CONNECT_TIMEOUT", 2)
        with pytest.raises(ValueError, match=r"cannot be used: connection .*timeout"):
            open_storage(f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/studies")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ValueError, match=r"not installed: pip install 'capsnet\[search-postgres\]'"):
        open_storage(address)


def test_another_search_is_refused(small: TrainConfig, out: Path) -> None:
    search(small, "rate", 1, out=out, seeds=0, device="cpu")
    with pytest.raises(ValueError, match="is another search: its limit is 60, not 50"):
        search(small, "rate", 2, out=out, limit=50, seeds=0)
    with pytest.raises(ValueError, match="its space is 'rate', not 'loss'"):
        search(small, "loss", 2, out=out, study="quick-rate", seeds=0)


def test_study_without_later_settings_continues(small: TrainConfig, tmp_path: Path) -> None:
    storage = default_storage(tmp_path)
    study = open_study(storage, "one", small, "rate")
    about = study.user_attrs[STUDY_ATTR]
    del about["config"]["clip"], about["config"]["augment"]["elastic"]
    study.set_user_attr(STUDY_ATTR, about)
    open_study(storage, "one", small, "rate")
    with pytest.raises(ValueError, match="its clip is None, not 2"):
        open_study(storage, "one", dataclasses.replace(small, clip=2.0), "rate")


def test_processes_create_one_storage_together(tmp_path: Path) -> None:
    """Started at the same moment, as in two terminals."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    for attempt in range(3):
        address = f"sqlite:///{tmp_path / str(attempt)}.db"
        barrier = context.Barrier(4)

        def create(address: str = address, barrier: Any = barrier) -> None:
            barrier.wait(30)
            open_study(address, "s", TrainConfig(), "rate")

        processes = [context.Process(target=create) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * 4


def test_password_is_in_no_file(small: TrainConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that a run records has it masked."""
    monkeypatch.setattr(sys, "argv", ["capsnet", "search", "--storage", "postgresql://me:secret@host/db"])
    search(small, "rate", 1, out=out, seeds=0, device="cpu")
    texts = [path.read_text() for path in out.rglob("*") if path.suffix in (".json", ".md")]
    assert any("postgresql://me:***@host/db" in text for text in texts)
    assert not any("secret" in text for text in texts)


def test_pruned_trial_does_not_win() -> None:
    """It was judged by fewer epochs, so a higher value says less; of equal ones the first wins."""
    values = [(0.5, "COMPLETE"), (0.9, "PRUNED"), (0.7, "COMPLETE"), (None, "PRUNED"), (0.7, "COMPLETE")]
    trials: Any = [
        SimpleNamespace(number=n, value=value, state=SimpleNamespace(name=state))
        for n, (value, state) in enumerate(values)
    ]
    assert [trial.number for trial in ranked(trials)] == [2, 4, 0, 1]
