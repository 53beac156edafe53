"""Forming a process group, and signals, in one process."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet import cli
from capsnet.training import TrainConfig, loop

MET = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def test_second_sigterm_does_not_lose_the_step() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with loop.stop_politely() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped()
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # the second Ctrl-C kills
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR and MASTER_PORT not set: start with torchrun"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a valid integer, unable to parse string as an integer, got 'two'"),
        (
            {"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
            "RANK must be less than 2, got '2'",
        ),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}, "did not all connect to"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}, "did not all connect to"),
        (MET | {"MASTER_PORT": "99999"}, "MASTER_PORT must be at most 65535, got '99999'"),
        (
            MET | {"MASTER_PORT": "http"},
            "MASTER_PORT must be a valid integer, unable to parse string as an integer, got 'http'",
        ),
        (MET | {"CAPSNET_TIMEOUT": "inf"}, "CAPSNET_TIMEOUT must be at most 1000000, got 'inf'"),
        (MET | {"CAPSNET_TIMEOUT": "nan"}, "CAPSNET_TIMEOUT must be"),
        (MET | {"CAPSNET_TIMEOUT": "abc"}, "got 'abc'"),
        (MET | {"CAPSNET_TIMEOUT": "0"}, "got '0'"),
    ],
)
def test_wrong_environment_is_refused_in_one_sentence(
    environment: dict[str, str],
    message: str,
    quick: TrainConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in ({"CAPSNET_TIMEOUT": "1"} | environment).items():
        monkeypatch.setenv(name, value)
    config = str(tmp_path / "plain.json")
    Path(config).write_text(quick.to_json())
    with pytest.raises(SystemExit) as left:
        cli.main(["train", config, "--out", str(tmp_path / "run"), "--device", "cpu"])
    assert left.value.code == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_world_of_one_forms_no_group(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    capsnet.train(dataclasses.replace(quick, limit=7, epochs=1), out=tmp_path / "run", device="cpu", figures=False)
    assert not torch.distributed.is_initialized()
