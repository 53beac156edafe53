"""A process that listens, prints its address and stops; ports and addresses."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from capsnet.serving import server
from capsnet.serving.access import LARGEST
from tests.serving.helpers import BUNDLED


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A server on a free port: the process, its address, its port."""
    command = [sys.executable, "-m", "capsnet", "explore", "--no-browser", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    killer = threading.Timer(120, process.kill)  # in any case the process ends
    killer.start()
    try:
        assert process.stdout is not None
        output = ""
        while "http://" not in output:
            line = process.stdout.readline()
            assert line, f"the server ended: {output}"
            output += line
        found = re.search(r"(http://\S+?:(\d+)/\S*)", output)
        assert found, output
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


def test_server_starts_answers_and_stops() -> None:
    with running() as (process, address, port):
        assert address == f"http://127.0.0.1:{port}/"
        assert get(port, "/")[0] == 200
        status, body = get(port, "/api/models")
        assert status == 200
        assert json.loads(body)["models"][0]["name"] == "capsnet-mnist"
        assert get(port, "/api/models", Host="evil.example")[0] == 403
        check_large_bodies(port)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert process.stdout is not None
        assert "Traceback" not in process.stdout.read()


def check_large_bodies(port: int) -> None:
    """A body beyond the limit gets its sentence over a real socket too, with a length and in chunks."""
    for chunked in (False, True):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        path, pieces = f"/api/upload?model={BUNDLED}", (bytes(2**20) for _ in range(LARGEST // 2**20 + 3))
        if chunked:
            connection.request("POST", path, body=pieces, encode_chunked=True, headers={"transfer-encoding": "chunked"})
        else:
            connection.request("POST", path, body=b"".join(pieces))
        response = connection.getresponse()
        assert response.status == 413
        assert "too large" in json.loads(response.read())["error"]


def test_token_is_made_for_other_hosts() -> None:
    with running("--host", "0.0.0.0") as (process, address, port):
        assert re.search(r"\?token=[\w-]{20,}$", address)
        assert get(port, "/api/models")[0] == 401
        assert get(port, "/api/models", Authorization=f"Bearer {address.rpartition('=')[2]}")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)


def test_token_is_made_for_a_configured_name() -> None:
    with running("--name", "caps.example.org", BUNDLED) as (process, address, port):
        assert re.search(r"127.0.0.1:\d+/\?token=[\w-]{20,}$", address)
        token = {"Authorization": f"Bearer {address.rpartition('=')[2]}"}
        assert get(port, "/api/models", Host="caps.example.org")[0] == 401
        assert get(port, "/api/models", Host="caps.example.org", **token)[0] == 200
        assert get(port, "/api/models", Host="evil.example", **token)[0] == 403
        assert process.stdout is not None
        assert f"https://caps.example.org/?token={address.rpartition('=')[2]}\n" in process.stdout.readline()


def test_default_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with server.listen("127.0.0.1", 0) as first:
        monkeypatch.setattr(server, "PORT", first.getsockname()[1])
        with server.listen("127.0.0.1", None) as second:
            assert 0 < second.getsockname()[1] - first.getsockname()[1] < server.TRIES
        monkeypatch.setattr(server, "TRIES", 1)
        with pytest.raises(ValueError, match="all in use"):
            server.listen("127.0.0.1", None)


def test_page_address_and_loopback() -> None:
    assert server.page_address("::1", 9, None) == "http://[::1]:9/"
    assert server.page_address("127.0.0.1", 9, "a b") == "http://127.0.0.1:9/?token=a%20b"
    assert [server.is_loopback(h) for h in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "box.lan")] == [
        True, True, True, False, False,
    ]  # fmt: skip
