"""Access control: names, origins, tokens and headers."""

import hashlib

import pytest

from capsnet.models import Model
from capsnet.serving.access import COOKIE, HEADERS, POLICY
from capsnet.serving.app import create_app
from tests.serving.helpers import BUNDLED, HOME, TestClient

ANY = "/api/openapi.json"  # an address that is answered with 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8028", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2",
             "", "localhost:x", "a@localhost", "localhost/x", "[::1", "10.0.0.1", "localhost, evil.example",
             "[::1]evil", "[::1]evil:80", "127.0.0.1#", "127.0.0.1?", "localhost\\", "localhost:70000", "[localhost]",
             "::1", "localhost:8028:1", "[127.0.0.1]x"],
)  # fmt: skip
def test_other_host_names_are_refused(client: TestClient, host: str) -> None:
    """A page elsewhere may point its own name to 127.0.0.1: the Host header shows it."""
    for path in ("/", ANY, "/static/js/app.js"):
        response = client.get(path, headers={"host": host})
        assert response.status_code == 403
        assert "own machine only (localhost, 127.0.0.1, ::1)" in response.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8028", "[::1]:8028", "[::1]"])
def test_own_host_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get(ANY, headers={"host": host}).status_code == 200


def test_server_on_an_address_answers_to_it(bundled: Model) -> None:
    client = TestClient(create_app({BUNDLED: bundled}, host="192.168.7.7"), base_url="http://192.168.7.7")
    assert client.get(ANY).status_code == 200
    assert client.get(ANY, headers={"host": "192.168.7.8"}).status_code == 403
    client = TestClient(create_app({BUNDLED: bundled}, host="0.0.0.0"), base_url="http://192.168.7.9")
    assert client.get(ANY).status_code == 200  # a literal address cannot be rebound
    assert client.get(ANY, headers={"host": "evil.example"}).status_code == 403


def test_configured_names_are_answered(client: TestClient, bundled: Model) -> None:
    """A proxy's name: its pages are the server's own, and no others. Without the option no page of it is."""
    app = create_app({BUNDLED: bundled}, names=["Caps.example.org", "box.lan:8443", "two.lan:443"])
    named = TestClient(app, base_url=HOME)
    local, proxied = {"host": "127.0.0.1:8028"}, {"host": "caps.example.org"}
    for headers, welcome in (
        (proxied, True),
        (proxied | {"origin": "https://caps.example.org"}, True),
        (proxied | {"origin": "http://caps.example.org"}, True),
        (local | {"origin": "https://caps.example.org"}, True),  # a proxy that does not pass on the name
        ({"host": "box.lan", "origin": "https://box.lan:8443"}, True),  # nginx's $host has no port
        ({"host": "two.lan", "origin": "https://two.lan"}, True),
        (local, True),
        (local | {"origin": HOME}, True),
        (proxied | {"origin": "https://evil.example"}, False),
        (proxied | {"origin": "https://caps.example.org:9"}, False),
        (proxied | {"origin": "https://caps.example.org.evil.example"}, False),
        (proxied | {"origin": "https://evil.example/caps.example.org"}, False),
        (proxied | {"origin": "null"}, False),
        (proxied | {"sec-fetch-site": "cross-site"}, False),
        ({"host": "x.caps.example.org"}, False),
        ({"host": "evil.example"}, False),
        ({"host": "evil.example", "origin": "https://caps.example.org"}, False),
    ):
        assert named.get(ANY, headers=headers).status_code == (200 if welcome else 403), headers
        if "127.0.0.1" not in headers["host"]:
            assert client.get(ANY, headers=headers).status_code == 403
    assert client.get(ANY, headers=local | {"origin": "https://caps.example.org"}).status_code == 403
    assert "caps.example.org, box.lan, two.lan" in named.get("/", headers={"host": "evil.example"}).json()["error"]


@pytest.mark.parametrize("name", ["", "*", "*.example.org", "https://a.b", "a.b/c", "a b", "a@b", "a.b:x", "::1"])
def test_invalid_names_are_refused(bundled: Model, name: str) -> None:
    with pytest.raises(ValueError, match="a name is like"):
        create_app({BUNDLED: bundled}, names=[name])


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8028",
                                    "file://", "chrome-extension://x", "http://[", "127.0.0.1:8028"])  # fmt: skip
def test_other_origins_are_refused(client: TestClient, origin: str) -> None:
    for send in (client.get, client.post, client.options):
        response = send(ANY, headers={"origin": origin})
        assert response.status_code == 403
        assert not [name for name in response.headers if name.startswith("access-control")]
    assert client.get("/", headers={"origin": origin}).status_code == 403


def test_own_origin_is_answered_and_cross_site_fetches_are_not(client: TestClient) -> None:
    assert client.get(ANY, headers={"origin": HOME}).status_code == 200
    assert client.get(ANY, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert client.get(ANY, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get(ANY, headers={"sec-fetch-site": "same-site"}).status_code == 403


@pytest.mark.parametrize("path", ["/", ANY, "/api/nothing", "/static/nothing.js"])
def test_every_answer_has_the_security_headers(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert response.headers["cross-origin-resource-policy"] == "same-origin"
    assert response.headers["cache-control"] in ("no-cache", "no-store")
    assert "script-src 'self'" in POLICY
    assert "unsafe" not in POLICY


def test_bug_is_answered_with_the_security_headers(bundled: Model) -> None:
    app = create_app({BUNDLED: bundled})

    @app.get("/api/broken")
    async def broken() -> None:
        raise RuntimeError("must not be sent to clients")

    client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
    response = client.get("/api/broken")
    assert response.status_code == 500
    assert response.json() == {"error": "the server failed, which is a bug in it (RuntimeError)"}
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["cache-control"] == "no-store"
    assert client.get("/api/broken", headers={"host": "evil.example"}).status_code == 403


def test_token_is_required_and_kept_in_a_cookie(bundled: Model) -> None:
    app = create_app({BUNDLED: bundled}, token="a b&c=ü")
    client = TestClient(app, base_url=HOME, follow_redirects=False)
    for path in ("/", ANY, "/nothing", "/?token=", "/?token=wrong", ANY + "?token=a%20b%26c%3D%C3%BC"):
        assert client.get(path).status_code == 401
    name = f"{COOKIE}-{hashlib.sha256('a b&c=ü'.encode()).hexdigest()[:8]}"
    assert client.get(ANY, headers={"cookie": f"{name}=x"}).status_code == 401
    assert client.get(ANY, headers={"authorization": "Bearer wrong"}).status_code == 401
    bearer = {"authorization": "Bearer a b&c=ü".encode()}
    assert client.get(ANY, headers=bearer).status_code == 200  # type: ignore[arg-type]
    welcome = client.get("/?token=a%20b%26c%3D%C3%BC")
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
    cookie = welcome.headers["set-cookie"].lower()
    assert cookie.startswith(f"{name}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get(ANY).status_code == 200  # by the cookie
    assert client.get(ANY, headers={"host": "evil.example"}).status_code == 403
    clicked = {"sec-fetch-site": "cross-site"}
    page = TestClient(app, base_url=HOME).get("/?token=a%20b%26c%3D%C3%BC", headers=clicked)
    assert (page.status_code, "refresh" in page.text) == (200, True)


def test_two_servers_keep_separate_cookies(bundled: Model) -> None:
    first, second = (
        TestClient(create_app({BUNDLED: bundled}, token=token), base_url=HOME, follow_redirects=False)
        for token in ("one", "two")
    )
    second.cookies = first.cookies  # a browser's cookies do not depend on the port
    for client, token in ((first, "one"), (second, "two")):
        assert client.get(f"/?token={token}").status_code == 303
    assert [client.get(ANY).status_code for client in (first, second)] == [200, 200]


def test_policy_allows_nothing_from_elsewhere(client: TestClient) -> None:
    parts = [part.partition(" ") for part in POLICY.split("; ")]
    policy = {what: sources for what, _, sources in parts}
    assert policy["default-src"] == "'none'"
    assert {"base-uri", "form-action", "frame-ancestors"} <= set(policy)  # the default does not hold for these
    for what, sources in policy.items():
        assert set(sources.split()) <= {"'none'", "'self'"} | ({"blob:", "data:"} if what == "img-src" else set()), what
    headers = client.get("/").headers
    assert headers["x-frame-options"] == "DENY"
    assert {"camera=()", "microphone=()", "geolocation=()"} <= set(headers["permissions-policy"].split(", "))
