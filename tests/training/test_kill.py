"""SIGKILL at random moments: resuming always works and gives the same result.

Each kill costs a start of Python. tests/hostile kills forked processes, which is quick.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import capsnet
from capsnet.training import TrainConfig
from capsnet.training.run import Run

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "CAPSNET_DEBUG": "1"}


def start(config: TrainConfig, folder: Path) -> subprocess.Popen:
    """A training process of the command line, in one thread."""
    script = (
        "import capsnet, json, sys; from capsnet.training import read_config;"
        "capsnet.train(read_config(sys.argv[1]), out=sys.argv[2], resume='auto', device='cpu', threads=1)"
    )
    path = folder.parent / "wanted.json"
    path.write_text(config.to_json())
    return subprocess.Popen([sys.executable, "-c", script, str(path), str(folder)], env=ENVIRONMENT)


def kill_until_done(config: TrainConfig, folder: Path, kills: int, seed: int, deadline: float) -> int:
    """Kill the run ``kills`` times at random moments after it began to train, then let it finish."""
    chance, done = random.Random(seed), 0
    while time.monotonic() < deadline:
        process = start(config, folder)
        before = lines(folder)
        while done < kills and process.poll() is None and lines(folder) <= before and time.monotonic() < deadline:
            time.sleep(0.01)  # wait until it has written something, or every kill would hit the imports
        if done >= kills:
            assert process.wait(timeout=max(1.0, deadline - time.monotonic())) == 0
            return done
        time.sleep(chance.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            return done  # it has finished already
        done += 1
    raise AssertionError(f"not finished in time after {done} kills")


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.is_file() else 0


def check(config: TrainConfig, tmp_path: Path, kills: int, seed: int, seconds: float) -> None:
    uninterrupted = capsnet.train(config, out=tmp_path / "whole", device="cpu")
    killed = tmp_path / "killed"
    done = kill_until_done(config, killed, kills, seed, time.monotonic() + seconds)
    assert done > 0
    assert (killed / "model.safetensors").read_bytes() == (uninterrupted.folder / "model.safetensors").read_bytes()
    results = [json.loads((folder / "results.json").read_text()) for folder in (uninterrupted.folder, killed)]
    assert results[0] == results[1]
    assert not [path for path in killed.rglob("*") if path.name.endswith((".tmp", ".pt"))]
    steps = [line["step"] for line in Run(killed).records("epoch")]
    assert steps == sorted(set(steps))  # no epoch is recorded twice


def long_enough(quick: TrainConfig, epochs: int) -> TrainConfig:
    from dataclasses import replace

    return replace(quick, epochs=epochs, batch_size=5, checkpoint_every=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_run_survives_a_dozen_kills(quick: TrainConfig, tmp_path: Path, seed: int) -> None:
    check(long_enough(quick, 60), tmp_path, kills=12, seed=seed, seconds=400)
