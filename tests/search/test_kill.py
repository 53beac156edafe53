"""Real worker processes that are killed or stopped: no finished trial is lost, and the same command continues."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState

from capsnet import data
from capsnet.search import search
from capsnet.search._storage import default_storage
from capsnet.search._worker import Job, retry_of
from capsnet.training import TrainConfig

# a worker as `capsnet search --workers` starts it, but with a short heartbeat
WORKER = """
import sys
from capsnet.search import _storage, _worker
_storage.HEARTBEAT, _storage.GRACE = 1, 2
"""
KILLED = """
import os, signal
train = _worker.try_out
def train_and_die(config, folder, on_epoch, **more):
    def die(line):
        on_epoch(line)
        os.kill(os.getpid(), signal.SIGKILL)
    return train(config, folder, on_epoch=die, **more)
_worker.try_out = train_and_die
"""  # after the first epoch


@pytest.fixture
def longer(small: TrainConfig) -> TrainConfig:
    """Trials of a second or so, which can be hit in the middle."""
    return dataclasses.replace(small, data=data.canonical(small.data), epochs=4, batch_size=6)


def start(config: TrainConfig, wanted: int, out: Path, storage: str, code: str = "") -> subprocess.Popen:
    job = Job(
        config=config,
        space="rate",
        trials=wanted,
        out=out,
        storage=storage,
        study="quick-rate",
        device="cpu",
        threads=1,
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{WORKER}{code}sys.exit(_worker.main())"],
        stdin=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CAPSNET_DEBUG": "1"},
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pickle.dump(job, pipe)
    return process


def sqlite_trials(out: Path) -> list[FrozenTrial]:
    if not (out / "trials-quick-rate").exists():  # the tables are complete once a trial has a folder
        return []
    return optuna.load_study(study_name="quick-rate", storage=f"sqlite:///{out / 'study.db'}").trials


def finished(trials: list[FrozenTrial]) -> dict[int, float | None]:
    return {t.number: t.value for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)}


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def reported(trials: list[FrozenTrial], process: subprocess.Popen) -> bool:
    """Whether this process is in a trial that has ended an epoch."""
    mine = [t for t in trials if t.user_attrs.get("worker", "").endswith(f":{process.pid}")]
    return any(t.state == TrialState.RUNNING and t.intermediate_values for t in mine)


def test_killed_worker_trial_is_repeated(small: TrainConfig, out: Path) -> None:
    out.mkdir()
    config = dataclasses.replace(small, data=data.canonical(small.data))
    assert start(config, 2, out, default_storage(out), KILLED).wait(120) == -signal.SIGKILL
    time.sleep(4)  # longer than the grace period
    assert start(config, 2, out, default_storage(out)).wait(120) == 0
    cut, repeated, other = sqlite_trials(out)
    assert [cut.state, retry_of(repeated), retry_of(other)] == [TrialState.FAIL, 0, None]
    assert cut.params == repeated.params
    assert list(finished([cut, repeated, other])) == [1, 2]


@pytest.mark.slow
def test_killed_workers_lose_no_finished_trial(longer: TrainConfig, out: Path) -> None:
    """Two workers; one of them in turn is killed in the middle of a trial and started again."""
    out.mkdir()
    wanted, storage, before = 30, default_storage(out), {}
    workers = [start(longer, wanted, out, storage), start(longer, wanted, out, storage)]
    try:
        for kill in range(10):
            victim = workers[kill % 2]
            wait_until(lambda victim=victim: reported(sqlite_trials(out), victim))
            before = finished(sqlite_trials(out))
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
            assert finished(sqlite_trials(out)).items() >= before.items()
            workers[kill % 2] = start(longer, wanted, out, storage)
        assert [process.wait(600) for process in workers] == [0, 0]
    finally:
        for process in workers:
            process.kill()
            process.wait()
    trials = sqlite_trials(out)
    counted = finished(trials)
    assert wanted <= len(counted) <= wanted + 1  # one more if both workers are at their last trial
    assert counted.items() >= before.items()
    repeated = [t for t in trials if retry_of(t) is not None]
    assert repeated
    for trial in repeated:
        original = trials[retry_of(trial) or 0]
        assert (original.state, original.params) == (TrialState.FAIL, trial.params)
    for trial in trials:
        if trial.number in counted:
            lines = (out / "trials-quick-rate" / f"{trial.number:04d}" / "metrics.jsonl").read_text().splitlines()
            epochs = [line for line in map(json.loads, lines) if line["kind"] == "epoch"]
            assert len(epochs) == len(trial.intermediate_values)
    assert search(longer, "rate", wanted, out=out, seeds=0, device="cpu").finished == len(counted)
    best = json.loads((out / "search.json").read_text())["best"]["validation_accuracy"]
    assert best == max(t.value or 0 for t in trials if t.state == TrialState.COMPLETE)


def test_killed_worker_in_a_journal_does_not_stop_the_study(small: TrainConfig, out: Path) -> None:
    """A journal has no heartbeat: the trial stays running and does not count."""
    out.mkdir()
    path = out / "study.log"
    config = dataclasses.replace(small, data=data.canonical(small.data))
    assert start(config, 2, out, f"journal:{path}", KILLED).wait(120) == -signal.SIGKILL
    assert search(config, "rate", 2, out=out, storage=f"journal:{path}", seeds=0, device="cpu").finished == 2
    trials = optuna.load_study(study_name="quick-rate", storage=JournalStorage(JournalFileBackend(str(path)))).trials
    assert [t.state == TrialState.RUNNING for t in trials] == [True, False, False]


def test_ctrl_c_stops_all_workers(longer: TrainConfig, out: Path) -> None:
    """The workers end, their trials are queued again, and the message says how to continue."""
    path = out.parent / "wanted.json"
    path.write_text(longer.to_json())
    command = ["search", str(path), "--space", "rate", "--trials", "200", "--workers", "2", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "capsnet", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    wait_until(lambda: process.poll() is not None or bool(finished(sqlite_trials(out))))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1].endswith(f"--trials 200 --workers 2 --out {out}")
    trials = sqlite_trials(out)
    assert finished(trials)
    states = [t.state for t in trials]
    assert TrialState.RUNNING not in states
    assert states.count(TrialState.WAITING) == states.count(TrialState.FAIL)  # one may have been between two trials
    for trial in trials:
        pid = trial.user_attrs.get("worker", ":0").rpartition(":")[2]
        assert pid == "0" or not Path(f"/proc/{pid}").exists()
