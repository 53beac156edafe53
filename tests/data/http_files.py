"""A local web server for tests of the download: it serves given files and counts requests."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class WebServer:
    url: str  # ends in a slash
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextlib.contextmanager
def web_server() -> Iterator[WebServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            server.asked.append(name)
            answer = server.answers.get(name, Answer(b"nothing here", 404))
            self.send_response(answer.status)
            for key, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as machine:
        server = WebServer(f"http://127.0.0.1:{machine.server_address[1]}/")
        thread = threading.Thread(target=machine.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            machine.shutdown()
            thread.join()


def dead_url() -> str:
    """An address without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/"
