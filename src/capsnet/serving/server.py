"""Run an application: choose a port, print the address, open the browser, serve until Ctrl-C."""

import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from urllib.parse import quote

import torch
import uvicorn
from fastapi import FastAPI

from capsnet.serving.access import ANYWHERE, check_names, is_address
from capsnet.serving.protocol import PatientProtocol

PORT = 8028  # the first to be tried
TRIES = 20


class Server(uvicorn.Server):
    """uvicorn that calls ``ready`` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()


def serve(
    make_app: Callable[..., FastAPI],
    *,
    title: str,
    host: str,
    port: int | None,
    browser: bool,
    token: str | None,
    names: Sequence[str],
    say: Callable[[str], object],
) -> None:
    """Serve ``make_app(host=, token=, names=)`` until Ctrl-C; the arguments are those of ``explore``."""
    if token is not None and not token:
        raise ValueError("the token is empty: give one of at least one character, or none")
    names = check_names(names)
    if not is_loopback(host) or names:
        token = token or secrets.token_urlsafe(24)
        reached = ", ".join([*names, *([] if is_loopback(host) else [host])])
        say(f"warning: {reached} can be reached from other machines; only clients with the token are admitted")
    with listen(host, port) as listener:
        app = make_app(token=token, host=host, names=names)
        address = page_address(host, listener.getsockname()[1], token)
        through = "".join(f"\nand through your proxy at  https://{name}/{query(token)}" for name in names)

        def ready() -> None:
            say(f"{title} is at  {address}{through}\nCtrl-C stops it")
            if browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        config = uvicorn.Config(
            app, http=PatientProtocol, ws="none", log_level="warning", access_log=False, proxy_headers=False,
            server_header=False, timeout_graceful_shutdown=2,
        )  # fmt: skip
        threads = torch.get_num_threads()
        try:
            Server(config, ready).run(sockets=[listener])
        except KeyboardInterrupt:  # raised again by uvicorn after an orderly stop
            say("stopped")
        finally:
            torch.set_num_threads(threads)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket bound to that port, or to the first free one from ``PORT`` on."""
    wanted = range(PORT, PORT + TRIES) if port is None else [port]
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"a port is a number from 0 to 65535, got {port}")
    try:
        family, kind, protocol, _, _ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise ValueError(f"there is no host {host!r} to listen on") from None
    for number in wanted:
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if isinstance(error, PermissionError):
                raise ValueError(f"port {number} is not allowed for you: choose one above 1023") from None
            if error.errno not in (98, 48, 10048):  # in use: Linux, macOS, Windows
                raise ValueError(f"cannot listen on {host}: {error.strerror or error}") from None
            continue
        return listener
    if port is None:
        raise ValueError(f"the ports {PORT} to {PORT + TRIES - 1} are all in use: name a free one with --port")
    raise ValueError(f"port {port} is in use: choose another with --port, or leave it out")


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def page_address(host: str, port: int, token: str | None) -> str:
    """The page's address; for a server on all interfaces, with this machine's name."""
    shown = socket.gethostname() if host in ANYWHERE else host
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/{query(token)}"


def query(token: str | None) -> str:
    return f"?token={quote(token, safe='')}" if token else ""
