"""Who may talk to the explorer, and how much at a time: pure ASGI middleware around everything.

A server on 127.0.0.1 is within reach of every web page that its owner's browser shows. Three things keep these out:

- the Host header has to be a name of this machine (a page elsewhere may point its own name to 127.0.0.1, but the
  browser still sends that name: "DNS rebinding"), or one that the owner has given it: that of a proxy in front;
- a request from another origin is refused, and no answer ever carries a CORS header;
- with a token, nobody without it gets anything. It is brought once in the address and then lives in a cookie that
  scripts cannot read and other sites cannot send.

Bodies are counted while they arrive, whatever their header says.
"""

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 10 * 2**20  # bytes of a body
DRAINED = 8 * LARGEST  # bytes that are read and dropped so that a sender who does not listen meanwhile gets the answer
COOKIE = "capsnet-explorer"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
ALWAYS = ("localhost", "127.0.0.1", "::1")
ANYWHERE = ("0.0.0.0", "::", "")


class Safety:
    """``host`` is where the server listens, ``token`` what visitors have to bring, if anything, ``names`` what else it
    is called, each with its port if that is not the usual one: a page of that name is the server's own."""

    def __init__(
        self, app: ASGIApp, *, host: str = "127.0.0.1", token: str | None = None, names: Iterable[str] = ()
    ) -> None:
        self.app, self.token = app, token
        self.anywhere = host in ANYWHERE
        self.origins = check_names(names)
        given = [name for name in map(host_name, self.origins) if name]
        self.names = {*ALWAYS, *own_names(host), *given}
        self.told = [*ALWAYS, *(own_names(host) if not self.anywhere else ["its addresses"]), *given]
        self.cookie = hashlib.sha256(token.encode()).hexdigest() if token else ""
        self.cookie_name = f"{COOKIE}-{self.cookie[:8]}"  # cookies know no ports: two servers must not share one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return  # there are none here: the server then refuses by itself
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        headers = Headers(scope=scope)
        refusal = self.stranger(headers, scope) or self.uninvited(headers, scope)
        if refusal is None and too_large(headers):
            await drain(receive)
            refusal = say(413, f"the body is too large: at most {LARGEST:,} bytes are taken")
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            await self.app(scope, counted(receive), guarded)

    def stranger(self, headers: Headers, scope: Scope) -> Response | None:
        """Refuse a name that is not ours, and what another origin sends."""
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self.names or (self.anywhere and is_address(name))):
            known = ", ".join(dict.fromkeys(self.told))
            return say(403, f"this server answers to names of its own machine only ({known}): others need --name")
        origin = headers.get("origin")
        if origin is not None and origin_host(origin) not in (hosts[0].lower(), *self.origins):
            return say(403, "requests from other pages are not answered")
        if scope["path"].startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return say(403, "requests from other pages are not answered")
        return None

    def uninvited(self, headers: Headers, scope: Scope) -> Response | None:
        """Without a token set, all are welcome. Else it comes in the address, in the cookie or as a bearer's."""
        if self.token is None:
            return None
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if scope["path"] == "/" and (given := [value for key, value in query if key == "token"]):
            if not same(given[0], self.token):
                return say(401, "the token in the address is not the one of this server")
            return self.welcome(headers)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(bearer.strip().encode("latin-1"), self.token):
            return None
        if any(same(value, self.cookie) for value in cookies(headers, self.cookie_name)):
            return None
        return say(401, "a token is needed: open the full address that the server printed, with ?token=...")

    def welcome(self, headers: Headers) -> Response:
        """Give the cookie and go on to the page without the token in its address.

        After a click on another site's page the browser would not send the new cookie along a redirect: there the
        answer is a page of ours that goes on by itself. The redirect is the better one, it keeps the part after #.
        """
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            response: Response = HTMLResponse('<!doctype html><meta http-equiv="refresh" content="0;url=/">')
        else:
            response = RedirectResponse("/", status_code=303)
        response.set_cookie(self.cookie_name, self.cookie, httponly=True, samesite="strict", path="/")
        return response


def own_names(host: str) -> Iterable[str]:
    """What a server that listens on ``host`` may be called, beside the names of the loopback."""
    if host not in ANYWHERE:
        return [host.strip("[]").lower()]
    name = socket.gethostname().lower()
    return [name, f"{name}.local"]


def check_names(names: Iterable[str]) -> list[str]:
    """The names in lower case, without the ports that browsers leave out; a ValueError about one that is none."""
    checked = []
    for name in names:
        host = host_name(name)
        if not host or not (re.fullmatch(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", host) or is_address(host)):
            raise ValueError(
                f"a name is like caps.example.org or caps.example.org:8443, without https://, got {name!r}"
            )
        checked.append(re.sub(r":(80|443)?$", "", name.strip().lower()))
    return checked


def host_name(host: str) -> str | None:
    """The name in a Host header without its port, lower case; None if it is not well-formed."""
    try:
        parts = urlsplit(f"//{host.strip()}")
        _ = parts.port  # refuses what is no number
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname


def origin_host(origin: str) -> str | None:
    """The host and port of an Origin, lower case; None for ``null`` and other oddities."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def is_address(name: str) -> bool:
    """A literal address cannot be rebound, so on all interfaces each of them is fine."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookies(headers: Headers, wanted: str) -> list[str]:
    pairs = (pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value for name, _, value in pairs if name == wanted]


def same(given: str | bytes, expected: str) -> bool:
    """Equal, found out in a time that does not tell how far."""
    raw = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
    return hmac.compare_digest(raw, expected.encode())


def too_large(headers: Headers) -> bool:
    length = headers.get("content-length", "0")
    return length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > LARGEST)


async def drain(receive: Receive) -> None:
    """Read what is still coming and drop it, within reason: an answer before that would be lost on the sender."""
    read, more = 0, True
    while more and read < DRAINED:
        message = await receive()
        read += len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


def counted(receive: Receive) -> Receive:
    """``receive`` that stops a body which grows beyond the limit, also one that never said how long it would be."""
    total = 0

    async def limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > LARGEST:
            if message.get("more_body", False):
                await drain(receive)
            raise HTTPException(413, f"the body is too large: at most {LARGEST:,} bytes are taken")
        return message

    return limited


def say(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)
