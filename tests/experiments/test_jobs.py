"""``--jobs``: several processes train the networks of an experiment, with the results of one."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from capsnet.experiments import _jobs, reproduce
from capsnet.experiments import lab as module
from capsnet.experiments.lab import Lab
from capsnet.training import Run, TrainConfig


def test_two_processes_train_what_one_would(
    tmp_path: Path, quick: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = [dataclasses.replace(quick, seed=seed) for seed in (0, 1)]
    alone = Lab("toy", "smoke", 2, tmp_path / "alone").open()
    lab = Lab("toy", "smoke", 2, tmp_path / "both", fresh=True).open()
    _jobs.train_all(lab, [*plan, plan[0]], 2)  # experiments may name a run twice
    monkeypatch.setattr(_jobs, "ProcessPoolExecutor", None)  # calling it would fail
    _jobs.train_all(Lab("toy", "smoke", 2, tmp_path / "both"), plan, 2)
    expected = [alone.train(config).test for config in plan]
    monkeypatch.setattr(module, "train", None)  # as would training again, also with `fresh`
    assert [lab.train(config).test["accuracy"] for config in plan] == [one["accuracy"] for one in expected]


def test_error_of_a_run_is_that_of_the_experiment(tmp_path: Path, quick: TrainConfig) -> None:
    wrong = dataclasses.replace(quick, data="folder:/no/such/folder")
    with pytest.raises((ValueError, OSError), match="/no/such/folder"):
        _jobs.train_all(Lab("toy", "smoke", 1, tmp_path).open(), [wrong], 2)


@pytest.mark.parametrize("jobs", [0, -1, 65])
def test_wrong_number_of_jobs(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(ValueError, match=f"jobs must lie between 1 and 64, got {jobs}"):
        reproduce("table1", budget="smoke", jobs=jobs, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_stopped_runs_are_resumed(tmp_path: Path, quick: TrainConfig) -> None:
    """SIGTERM reaches only the first process, which tells the others; no process is left."""
    script = tmp_path / "long.py"
    (tmp_path / "config.json").write_text(dataclasses.replace(quick, epochs=10_000).to_json(), encoding="utf-8")
    script.write_text(LONG.format(folder=str(tmp_path)), encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folders = [tmp_path / "out/smoke/runs" / name for name in process.stdout.readline().split()]
        deadline = time.monotonic() + 120
        while not all((folder / "checkpoint.pt").is_file() for folder in folders):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "Interrupted\n"
    for folder in folders:
        assert not Run(folder).busy
        assert not Run(folder).finished


LONG = """
import dataclasses

from capsnet.experiments import _jobs
from capsnet.experiments.lab import Lab
from capsnet.training import Interrupted, read_config

if __name__ == "__main__":
    lab = Lab("toy", "smoke", 2, {folder!r} + "/out").open()
    plan = [dataclasses.replace(read_config({folder!r} + "/config.json"), seed=seed) for seed in (0, 1)]
    print(*(lab.where(one).name for one in plan), flush=True)
    try:
        _jobs.train_all(lab, plan, 2)
    except Interrupted:
        print("Interrupted")
"""
