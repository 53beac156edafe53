"""The verb ``explore``: its flags, its errors, its imports."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import capsnet
from capsnet import cli, explorer


def refused(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", "--no-browser", *arguments])
    assert stop.value.code == 2
    sentence = capsys.readouterr().err
    assert "Traceback" not in sentence
    assert len(sentence.splitlines()) == 1
    return sentence


def test_bad_flags_give_one_sentence(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in refused(capsys, "--port", port)
    assert "0 to 65535" in refused(capsys, "--port", "65536")
    assert "no model 'nobody'" in refused(capsys, "nobody")
    assert "no host" in refused(capsys, "--host", "a..b")  # not a valid name: no look-up
    assert "token is empty" in refused(capsys, "--token", "")
    assert "without https://, got 'https://a.b'" in refused(capsys, "--name", "https://a.b")
    capsnet.save(capsnet.create_model("text-cnn"), tmp_path / "text.safetensors")
    assert "takes texts" in refused(capsys, str(tmp_path / "text.safetensors"))


def test_help_lists_the_flags(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--port", "--host", "--no-browser", "--token", "--name", "--data"):
        assert flag in text


def test_flags_reach_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    received: dict[str, Any] = {}
    monkeypatch.setattr(explorer, "explore", lambda models, **options: received.update(models=models, **options))
    cli.main(
        [
            "explore",
            "a",
            "b",
            "--port",
            "9",
            "--host",
            "::1",
            "--no-browser",
            "--token",
            "t",
            "--data",
            "folder:d",
            "--name",
            "a.b",
            "--name",
            "c",
        ]
    )
    received.pop("say")
    assert received.pop("names") == ("a.b", "c")
    assert received.pop("data") == "folder:d"
    assert received == {"models": ("a", "b"), "port": 9, "host": "::1", "browser": False, "token": "t"}
    cli.main(["explore"])
    received.pop("say")
    assert received.pop("names") == ()
    assert received.pop("data") is None
    assert received == {"models": (), "port": None, "host": "127.0.0.1", "browser": True, "token": None}


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ValueError, match=r"pip install 'capsnet\[explorer\]'"):
        explorer.explore()


def test_importing_the_library_does_not_import_fastapi() -> None:
    script = (
        "import sys, capsnet, capsnet.cli; print([m for m in ('fastapi', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
