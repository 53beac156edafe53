"""Jobs of several processes: which run a job resumes, and what is recorded."""

import dataclasses
import os
import shlex
import sys
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet.training import TrainConfig
from capsnet.training.run import JOB, environment, open_on_all_ranks
from tests.training.test_resume import interrupt


def as_job(patch: pytest.MonkeyPatch, name: str, restarts: int = 0) -> None:
    patch.setenv("TORCHELASTIC_RUN_ID", name)
    patch.setenv("TORCHELASTIC_RESTART_COUNT", str(restarts))


def test_job_resumes_its_own_run_only(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its id: an agent that joined later has counted no restarts."""
    out = tmp_path / "run"
    assert open_on_all_ranks(quick, tmp_path / "alone", "no").folder
    assert not (tmp_path / "alone" / JOB).exists()
    as_job(monkeypatch, "one")
    assert open_on_all_ranks(quick, out, "no").folder == out
    assert open_on_all_ranks(quick, out, "no").folder == out
    for name, restarts in (("two", 0), ("two", 1), ("none", 1)):  # refused, also when restarted
        as_job(monkeypatch, name, restarts)
        with pytest.raises(ValueError, match="not empty"):
            open_on_all_ranks(quick, out, "no")
    assert open_on_all_ranks(quick, out, "auto").folder == out  # now the run belongs to this job
    assert open_on_all_ranks(quick, out, "no").folder == out
    (out / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="not empty"):
        open_on_all_ranks(quick, out, "no")


def test_job_without_a_name_is_known_by_its_agent(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known by its agent, once that has counted a restart; with no --out it finds its folder among others."""
    monkeypatch.chdir(tmp_path)
    other = open_on_all_ranks(quick, None, "no").folder
    as_job(monkeypatch, "none")
    folder = open_on_all_ranks(quick, None, "no").folder
    assert folder != other
    later = open_on_all_ranks(quick, None, "no").folder  # another start from the same shell
    (later / JOB).write_text("elsewhere:1\n")
    as_job(monkeypatch, "none", 1)
    assert open_on_all_ranks(quick, None, "no").folder == folder
    monkeypatch.setattr(os, "getppid", lambda: 2**30)  # no process has that number
    assert open_on_all_ranks(quick, None, "no").folder not in (folder, other, later)


def test_finished_job_leaves_no_file(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_job(monkeypatch, "one")
    interrupt(quick, 1, out=tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / JOB).read_text() == "one\n"
    capsnet.train(quick, out=tmp_path / "run", device="cpu", figures=False)
    assert not (tmp_path / "run" / JOB).exists()


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("postgresql://me:secret@h/db", "postgresql://me:***@h/db"),
        ("postgresql://:secret@h/db", "postgresql://:***@h/db"),
        ("--storage=postgresql://me:p@ss:w@h/db", "--storage=postgresql://me:***@h/db"),
        ("postgresql://me@corp:secret@h/db", "postgresql://me@corp:***@h/db"),
        ("sqlite:////tmp/a@b.db", "sqlite:////tmp/a@b.db"),
        ("postgresql://me@h:5432/db", "postgresql://me@h:5432/db"),
    ],
)
def test_passwords_are_not_recorded(word: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["capsnet", word])
    assert environment(torch.device("cpu"))["command"] == shlex.join(["capsnet", told])


def test_more_micro_batches_than_examples_are_refused(quick: TrainConfig) -> None:
    with pytest.raises(ValueError, match="a batch of 50 cannot be computed in 51 parts"):
        dataclasses.replace(quick, accumulate=51)
