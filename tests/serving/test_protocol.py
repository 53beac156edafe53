"""Clients that do not finish their requests, over real sockets."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import uvicorn

import capsnet
from capsnet.serving import access, protocol
from capsnet.serving.app import create_app
from capsnet.serving.server import Server, listen
from tests.serving.helpers import png

HEAD = "POST /api/v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
HEADER, BODY = 0.4, 0.8  # seconds


@pytest.fixture
def served() -> Iterator[tuple[int, Any]]:
    """A server with short deadlines: its port and application. Each test has its own: they read what it logs."""
    patch = pytest.MonkeyPatch()
    patch.setattr(protocol, "HEADER_SECONDS", HEADER)
    patch.setattr(protocol, "BODY_SECONDS", BODY)
    small = {"conv_channels": 4, "primary_types": 2, "decoder": False}
    app = create_app({"small": capsnet.create_model("capsnet", image_size=(20, 20), **small)})
    ready = threading.Event()
    config = uvicorn.Config(app, http=protocol.PatientProtocol, log_level="warning", access_log=False, ws="none")
    server = Server(config, ready.set)
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert ready.wait(30)
        yield port, app
        server.should_exit = True
        thread.join(20)
    patch.undo()


def exchange(port: int, *parts: str | bytes, pause: float = 0.0) -> tuple[str, float]:
    """Send the parts, then wait for the server to end the connection: what it said, and after how many seconds."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        try:
            for part in parts:
                client.sendall(part.encode() if isinstance(part, str) else part)
                time.sleep(pause)
        except OSError:
            pass  # the server has ended it
        said = b""
        try:
            while got := client.recv(65536):
                said += got
        except ConnectionResetError:
            pass
    return said.decode(), time.perf_counter() - began


def test_incomplete_requests_end_in_time(served: tuple[int, Any], caplog: pytest.LogCaptureFixture) -> None:
    port, _ = served
    trickle = [character.encode() for character in HEAD]
    with caplog.at_level(logging.INFO):
        for parts, says, limit in (
            ([], "", HEADER),
            ([HEAD], "HTTP/1.1 408 ", HEADER),
            (trickle, "HTTP/1.1 408 ", HEADER),
            ([HEAD + "Content-Length: 100\r\n\r\nabc"], "HTTP/1.1 408 ", BODY),
            ([HEAD + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"], "HTTP/1.1 408 ", BODY),
            ([HEAD + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\nabc"], "HTTP/1.1 413 ", 0),
            ([HEAD + "Transfer-Encoding: chunked\r\n\r\n" + "F" * 200 + "\r\nabc"], "HTTP/1.1 400 ", 0),
            ([HEAD + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc"], "HTTP/1.1 400 ", 0),
        ):
            said, seconds = exchange(port, *parts, pause=0.02 if parts is trickle else 0)
            assert said.startswith(says), (parts, said)
            assert (said == "") == (says == "")
            assert limit * 0.9 <= seconds < limit + 10
    assert not [record for record in caplog.records if record.exc_info]


def test_cut_upload_is_one_line(served: tuple[int, Any], caplog: pytest.LogCaptureFixture) -> None:
    port, _ = served
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                client.sendall(f"{HEAD}Content-Length: 5000\r\n\r\nabc".encode())
                time.sleep(0.05)
        deadline = time.monotonic() + 10
        while len(caplog.records) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert [record.getMessage() for record in caplog.records] == [
        "a client left before its request was complete: POST /api/v1/predict"
    ] * 3
    assert not any(record.exc_info for record in caplog.records)


def test_bytes_of_unfinished_bodies_are_bounded(served: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    port, app = served
    monkeypatch.setattr(access, "HELD", 1_000_000)
    begun = f"{HEAD}Content-Length: 900000\r\n\r\n".encode() + bytes(400_000)
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(exchange(port, begun)[0])) for _ in range(5)]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, app.middleware_stack.held)
        time.sleep(0.005)
    assert most <= 1_000_000 + 5 * 65536  # what is on its way when the limit is reached
    assert len(answers) == 5
    assert all(said.startswith("HTTP/1.1 408") for said in answers)  # also what was refused with 503 must be sent first
    deadline = time.monotonic() + 10
    while app.middleware_stack.held and time.monotonic() < deadline:
        time.sleep(0.02)
    assert app.middleware_stack.held == 0
    whole = png(np.full((20, 20), 9, np.uint8))
    said, _ = exchange(port, f"{HEAD}Connection: close\r\nContent-Length: {len(whole)}\r\n\r\n".encode() + whole)
    assert said.startswith("HTTP/1.1 200") or said.startswith("HTTP/1.1 422"), said


def test_body_beyond_the_bound_is_refused(served: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    port, _ = served
    monkeypatch.setattr(access, "HELD", 1000)
    said, _ = exchange(port, f"{HEAD}Connection: close\r\nContent-Length: 5000\r\n\r\n".encode() + bytes(5000))
    assert said.startswith("HTTP/1.1 503")
    assert "retry-after: 1" in said.lower()


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1\t", 200), ("127.0.0.1\tevil", 403), ("evil\t", 403), ("127.0.0.1#", 403), ("[::1]evil", 403)],
)
def test_host_on_the_wire(host: str, status: int, served: tuple[int, Any]) -> None:
    """White space after a value is not part of it (RFC 9110, 5.5); everything else has to be a name of this machine."""
    port, _ = served
    said, _ = exchange(port, f"GET /api/openapi.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert said.startswith(f"HTTP/1.1 {status} "), said
