"""Access control and body limits: pure ASGI middleware around everything.

A server on 127.0.0.1 can be reached by every web page that its owner's browser shows. Three checks keep these out:

- the Host header must be a name of this machine, or one that the owner configured (a proxy's). A page elsewhere may
  point its own name to 127.0.0.1, but the browser still sends that name: "DNS rebinding";
- a request from another origin is refused, and no answer carries a CORS header;
- with a token, every request needs it. It is sent once in the address and then kept in a cookie that scripts cannot
  read and other sites cannot send.

Bodies are counted while they arrive, whatever their header says, each of them and all that are held together.
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
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from capsnet.serving.problems import Busy, problem

LARGEST = 10 * 2**20  # bytes of a body
HELD = 128 * 2**20  # bytes of all bodies that are held at a time; beyond, 503
DRAINED = 8 * LARGEST  # bytes that are read and dropped, so that a client that sends before it reads gets the answer
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
OTHER_SITES = ("cross-site", "same-site")


class AccessControl:
    """``host`` is where the server listens, ``token`` what clients must send, if anything, ``names`` what else it is
    called, each with its port if that is not the default: pages of these names are the server's own."""

    def __init__(
        self, app: ASGIApp, *, host: str = "127.0.0.1", token: str | None = None, names: Iterable[str] = ()
    ) -> None:
        self.app, self.token, self.anywhere, self.origins = app, token, host in ANYWHERE, check_names(names)
        name = socket.gethostname().lower()
        own = [name, f"{name}.local"] if self.anywhere else [host.strip("[]").lower()]
        configured = [name for name in map(host_name, self.origins) if name]
        self.names = {*ALWAYS, *own, *configured}
        listed = [*ALWAYS, *(["its addresses"] if self.anywhere else own), *configured]
        self.listed = ", ".join(dict.fromkeys(listed))
        self.cookie = hashlib.sha256(token.encode()).hexdigest() if token else ""
        self.held = 0  # bytes of the bodies of requests that are not answered yet
        self.cookie_name = f"{COOKIE}-{self.cookie[:8]}"  # cookies know no ports: two servers must not share one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return  # none are offered: the server then refuses by itself
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        refusal = self.refuse_foreign(headers, scope) or self.refuse_without_token(headers, scope)
        if refusal is None and too_large(headers):
            await drain(receive)
            refusal = problem(413, f"the body is too large: at most {LARGEST:,} bytes are taken")
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            body = Counted(self, receive)
            try:
                await self.app(scope, body, guarded)
            finally:
                self.held -= body.total

    def refuse_foreign(self, headers: Headers, scope: Scope) -> Response | None:
        """Refuse another name in the Host header, and requests from other origins."""
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self.names or (self.anywhere and is_address(name))):
            return problem(
                403, f"this server answers to names of its own machine only ({self.listed}): others need --name"
            )
        origin = headers.get("origin")
        foreign = origin is not None and origin_host(origin) not in (hosts[0].lower(), *self.origins)
        if foreign or (scope["path"].startswith("/api") and headers.get("sec-fetch-site") in OTHER_SITES):
            return problem(403, "requests from other pages are not answered")
        return None

    def refuse_without_token(self, headers: Headers, scope: Scope) -> Response | None:
        """Check the token, if one is set: in the address, in the cookie or as a bearer token."""
        if self.token is None:
            return None
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if scope["path"] == "/" and (tokens := [value for key, value in query if key == "token"]):
            if not same(tokens[0], self.token):
                return problem(401, "the token in the address is not the one of this server")
            return self.set_cookie(headers)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(bearer.strip().encode("latin-1"), self.token):
            return None
        if any(same(value, self.cookie) for value in cookies(headers, self.cookie_name)):
            return None
        return problem(401, "a token is needed: open the full address that the server printed, with ?token=...")

    def set_cookie(self, headers: Headers) -> Response:
        """Set the cookie and go on to the page without the token in its address.

        After a click on another site's page the browser would not send the new cookie along a redirect: then the
        answer is a page that refreshes itself. A redirect is better otherwise, it keeps the part after #.
        """
        if headers.get("sec-fetch-site") in OTHER_SITES:
            response: Response = HTMLResponse('<!doctype html><meta http-equiv="refresh" content="0;url=/">')
        else:
            response = RedirectResponse("/", status_code=303)
        response.set_cookie(self.cookie_name, self.cookie, httponly=True, samesite="strict", path="/")
        return response


def check_names(names: Iterable[str]) -> list[str]:
    """The names in lower case, without the ports that browsers leave out; a ValueError for an invalid one."""
    checked = []
    for name in names:
        host = host_name(name.strip())
        if not host or not (re.fullmatch(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?", host) or is_address(host)):
            raise ValueError(
                f"a name is like caps.example.org or caps.example.org:8443, without https://, got {name!r}"
            )
        checked.append(re.sub(r":(80|443)?$", "", name.strip().lower()))
    return checked


def host_name(host: str) -> str | None:
    """The name in a Host header without its port, lower case; None if it is not well-formed.

    Strict: a name, an IPv4 address or an IPv6 address in brackets, and a port. What parsers of URLs make of anything
    else differs between them.
    """
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::(\d{0,5}))?", host.lower(), re.ASCII)
    if match is None or int(match[3] or 0) > 65535 or (match[1] and not is_address(match[1])):
        return None
    return match[1] or match[2]


def origin_host(origin: str) -> str | None:
    """The host and port of an Origin, lower case; None for ``null`` and other schemes."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def is_address(name: str) -> bool:
    """A literal address cannot be rebound, so a server on all interfaces accepts each of them."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookies(headers: Headers, wanted: str) -> list[str]:
    pairs = (pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
    return [value for name, _, value in pairs if name == wanted]


def same(value: str | bytes, expected: str) -> bool:
    """Compare in constant time."""
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return hmac.compare_digest(raw, expected.encode())


def too_large(headers: Headers) -> bool:
    length = headers.get("content-length", "0")
    return length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > LARGEST)


async def drain(receive: Receive) -> None:
    """Read and drop the rest of the body, up to a limit: the client would miss an answer sent before that."""
    read, more = 0, True
    while more and read < DRAINED:
        message = await receive()
        read += len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


class Counted:
    """``receive`` that stops a body beyond the limit, also without a Content-Length, and any if too much is held."""

    def __init__(self, access: AccessControl, receive: Receive) -> None:
        self.access, self.receive, self.total = access, receive, 0

    async def __call__(self) -> Message:
        message = await self.receive()
        size = len(message.get("body", b""))
        self.total += size
        self.access.held += size
        if self.total > LARGEST:
            await self.drop(message)
            raise HTTPException(413, f"the body is too large: at most {LARGEST:,} bytes are taken")
        if self.access.held > HELD and size:
            await self.drop(message)
            raise Busy("requests")
        return message

    async def drop(self, message: Message) -> None:
        """Let go of what was counted, and read the rest without keeping it."""
        self.access.held -= self.total
        self.total = 0
        if message.get("more_body", False):
            await drain(self.receive)
