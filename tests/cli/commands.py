"""Running commands: in this process, or in one of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capsnet import cli


def exit_code(*arguments: str) -> int:
    """Run a command in this process."""
    try:
        cli.main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that has to work; what it wrote to standard output."""
    capsys.readouterr()
    code = exit_code(*arguments)
    text, error = capsys.readouterr()
    assert code == 0, error
    return text


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that has to fail: exit code 2, one line, no traceback. Returns the sentence."""
    capsys.readouterr()
    code = exit_code(*arguments)
    error = capsys.readouterr().err
    assert code == 2, error
    assert error.startswith("capsnet: ")
    assert len(error.splitlines()) == 1, error
    return error


def command(*arguments: str, prepare: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "capsnet", *arguments],
        capture_output=True,
        text=True,
        preexec_fn=prepare,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
        timeout=120,
    )


def small_run(idx_folder: Path, out: Path, *more: str) -> list[str]:
    return [
        "train", "smoke", "--data", f"mnist:{idx_folder}", "--batch-size", "50", "--set", "conv_channels=4",
        "--set", "primary_types=2", "--out", str(out), *more,
    ]  # fmt: skip
