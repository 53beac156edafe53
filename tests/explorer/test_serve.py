"""The real thing: a process that listens, says where, and stops; and the command line's one sentence when it cannot."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import capsnet
from capsnet import cli, explorer
from capsnet.explorer import _serve
from capsnet.explorer._safety import LARGEST

from .conftest import SHIPPED


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A server on a free port: the process, its address, its port."""
    command = [sys.executable, "-m", "capsnet", "explore", "--no-browser", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    killer = threading.Timer(120, process.kill)  # whatever happens, it does not stay
    killer.start()
    try:
        assert process.stdout is not None
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            assert line, f"the server ended: {said}"
            said += line
        found = re.search(r"(http://\S+?:(\d+)/\S*)", said)
        assert found, said
        yield process, found[1], int(found[2])
    finally:
        killer.cancel()
        process.kill()
        process.wait()


def get(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def test_it_starts_answers_and_stops() -> None:
    start = time.perf_counter()
    with running() as (process, address, port):
        assert time.perf_counter() - start < 20  # under 5 on a machine with nothing else to do
        assert address == f"http://127.0.0.1:{port}/"
        assert get(port, "/")[0] == 200
        status, body = get(port, "/api/models")
        assert status == 200
        assert json.loads(body)["models"][0]["name"] == "capsnet-mnist"
        assert get(port, "/api/models", Host="evil.example")[0] == 403
        too_much(port)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert process.stdout is not None
        assert "Traceback" not in process.stdout.read()


def too_much(port: int) -> None:
    """A body beyond the limit gets its sentence also from a real socket, with a length and in chunks."""
    for chunked in (False, True):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        path, pieces = f"/api/upload?model={SHIPPED}", (bytes(2**20) for _ in range(LARGEST // 2**20 + 3))
        if chunked:
            connection.request("POST", path, body=pieces, encode_chunked=True, headers={"transfer-encoding": "chunked"})
        else:
            connection.request("POST", path, body=b"".join(pieces))
        response = connection.getresponse()
        assert response.status == 413
        assert "too large" in json.loads(response.read())["error"]


def test_beyond_this_machine_a_token_is_made() -> None:
    with running("--host", "0.0.0.0") as (process, address, port):
        assert re.search(r"\?token=[\w-]{20,}$", address)
        assert get(port, "/api/models")[0] == 401
        assert get(port, "/api/models", Authorization=f"Bearer {address.rpartition('=')[2]}")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)


def test_with_a_name_a_token_is_made() -> None:
    with running("--name", "caps.example.org", SHIPPED) as (process, address, port):
        assert re.search(r"127.0.0.1:\d+/\?token=[\w-]{20,}$", address)
        token = {"Authorization": f"Bearer {address.rpartition('=')[2]}"}
        assert get(port, "/api/models", Host="caps.example.org")[0] == 401
        assert get(port, "/api/models", Host="caps.example.org", **token)[0] == 200
        assert get(port, "/api/models", Host="evil.example", **token)[0] == 403
        assert process.stdout is not None
        assert f"https://caps.example.org/?token={address.rpartition('=')[2]}\n" in process.stdout.readline()


def refused(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", "--no-browser", *arguments])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1
    return said


def test_bad_flags(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in refused(capsys, "--port", port)
    assert "0 to 65535" in refused(capsys, "--port", "65536")
    assert "no model 'nobody'" in refused(capsys, "nobody")
    assert "no host" in refused(capsys, "--host", "a..b")  # no name at all, so nobody is asked for it
    assert "token is empty" in refused(capsys, "--token", "")
    assert "without https://, got 'https://a.b'" in refused(capsys, "--name", "https://a.b")
    capsnet.save(capsnet.create_model("text-cnn"), tmp_path / "text.safetensors")
    assert "takes texts" in refused(capsys, str(tmp_path / "text.safetensors"))


def test_help(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for flag in ("--port", "--host", "--no-browser", "--token", "--name"):
        assert flag in said


def test_flags_reach_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(explorer, "explore", lambda models, **options: told.update(models=models, **options))
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
            "--name",
            "a.b",
            "--name",
            "c",
        ]
    )
    told.pop("say")
    assert told.pop("names") == ("a.b", "c")
    assert told == {"models": ("a", "b"), "port": 9, "host": "::1", "browser": False, "token": "t"}
    cli.main(["explore"])
    told.pop("say")
    assert told.pop("names") == ()
    assert told == {"models": (), "port": None, "host": "127.0.0.1", "browser": True, "token": None}


def test_a_taken_default_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with _serve.listen("127.0.0.1", 0) as first:
        monkeypatch.setattr(_serve, "PORT", first.getsockname()[1])
        with _serve.listen("127.0.0.1", None) as second:
            assert 0 < second.getsockname()[1] - first.getsockname()[1] < _serve.TRIES
        monkeypatch.setattr(_serve, "TRIES", 1)
        with pytest.raises(ValueError, match="all in use"):
            _serve.listen("127.0.0.1", None)


def test_addresses() -> None:
    assert _serve.page_address("::1", 9, None) == "http://[::1]:9/"
    assert _serve.page_address("127.0.0.1", 9, "a b") == "http://127.0.0.1:9/?token=a%20b"
    assert [_serve.is_loopback(h) for h in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "box.lan")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ValueError, match=r"pip install 'capsnet\[explorer\]'"):
        explorer.explore()


def test_importing_the_library_does_not_import_the_web() -> None:
    script = (
        "import sys, capsnet, capsnet.cli; print([m for m in ('fastapi', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
