"""Two real workers, killed with SIGKILL and started again at random: no trial is lost, none is counted twice."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from capsnet import data
from capsnet.search import search
from capsnet.search._storage import default_storage
from capsnet.search._worker import Orders
from capsnet.training import TrainConfig


def start(config: TrainConfig, wanted: int, out: Path) -> subprocess.Popen:
    """A worker as `capsnet search --workers` starts it."""
    orders = Orders(
        config=config,
        space="rate",
        trials=wanted,
        out=out,
        storage=default_storage(out),
        study="quick-rate",
        device="cpu",
        threads=1,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "capsnet.search"],
        stdin=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CAPSNET_DEBUG": "1"},
    )
    assert process.stdin is not None
    process.stdin.write(orders.to_json().encode())
    process.stdin.close()
    return process


def trials(out: Path) -> list[FrozenTrial]:
    if not (out / "trials").exists() or not any((out / "trials").iterdir()):
        return []
    return optuna.load_study(study_name="quick-rate", storage=f"sqlite:///{out / 'study.db'}").trials


def finished(out: Path) -> dict[int, float | None]:
    return {t.number: t.value for t in trials(out) if t.state in (TrialState.COMPLETE, TrialState.PRUNED)}


def busy(out: Path, process: subprocess.Popen) -> bool:
    """Whether this process is in the middle of a trial."""
    running = [t for t in trials(out) if t.state == TrialState.RUNNING]
    return any(t.user_attrs.get("owner", {}).get("pid") == process.pid for t in running)


def check(config: TrainConfig, wanted: int, out: Path, kills: int, seed: int, seconds: float) -> None:
    chance, until = random.Random(seed), time.monotonic() + seconds
    config = dataclasses.replace(config, data=data.canonical(config.data))
    out.mkdir()
    crew, done, seen = [start(config, wanted, out), start(config, wanted, out)], 0, {}
    try:
        while any(process.poll() is None for process in crew) and time.monotonic() < until:
            victim = chance.choice(crew)
            if done < kills and victim.poll() is None and busy(out, victim):
                time.sleep(chance.uniform(0, 0.4))
                seen = finished(out)
                victim.send_signal(signal.SIGKILL)
                if victim.wait() == -signal.SIGKILL:
                    done += 1
                assert finished(out).items() >= seen.items()
                crew[crew.index(victim)] = start(config, wanted, out)
            time.sleep(0.02)
        assert [process.poll() for process in crew] == [0, 0], "not finished in time"
    finally:
        for process in crew:
            process.kill()
            process.wait()
    assert done == kills
    everything = trials(out)
    counted = finished(out)
    assert len(counted) == wanted
    assert counted.items() >= seen.items()  # as they were when last looked at
    cut_short = [t for t in everything if t.state == TrialState.FAIL and "reason" not in t.user_attrs]
    assert 1 <= len(cut_short) <= kills  # a kill may also hit between two trials
    repeats = [t.user_attrs["origin"] for t in everything if t.number in counted and "origin" in t.user_attrs]
    assert len(repeats) == len(set(repeats))
    for trial in everything:
        if trial.number in counted:
            here = out / "trials" / f"{trial.number:04d}"
            lines = [json.loads(line) for line in (here / "metrics.jsonl").read_text().splitlines()]
            assert len([line for line in lines if line["kind"] == "epoch"]) == len(trial.intermediate_values)
    assert search(config, "rate", wanted, out=out, seeds=0, device="cpu").finished == wanted  # finds them done
    told = json.loads((out / "search.json").read_text())
    assert told["finished"] == wanted
    complete = [t.value or 0 for t in everything if t.state == TrialState.COMPLETE]
    assert told["best"]["validation_accuracy"] == max(complete)


def longer(small: TrainConfig) -> TrainConfig:
    return dataclasses.replace(small, epochs=8, batch_size=6)


def test_two_workers_killed_and_restarted(small: TrainConfig, out: Path) -> None:
    check(longer(small), 5, out, kills=2, seed=3, seconds=90)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_a_dozen_times(small: TrainConfig, out: Path, seed: int) -> None:
    check(longer(small), 40, out, kills=12, seed=seed, seconds=400)


def test_ctrl_c_stops_all_workers(small: TrainConfig, out: Path) -> None:
    """One Ctrl-C to the command: its workers end after their step, and the same command is told to go on."""
    path = out.parent / "wanted.json"
    path.write_text(longer(small).to_json())
    command = ["search", str(path), "--space", "rate", "--trials", "200", "--workers", "2", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "capsnet", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None and not finished(out):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.strip().splitlines()[-1].endswith(f"--trials 200 --workers 2 --out {out}")
    assert finished(out)
    for trial in trials(out):
        owner = trial.user_attrs.get("owner", {"pid": 0})
        assert not Path(f"/proc/{owner['pid']}").exists() or owner["pid"] == 0
