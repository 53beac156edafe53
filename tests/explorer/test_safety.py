"""What must not happen: strangers' pages, huge and broken files, paths from outside, bytes left on the disk."""

import copy
import hashlib
import io
import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from capsnet.data import Preprocess
from capsnet.data._pixels import read_pixels
from capsnet.explorer import create_app
from capsnet.explorer._safety import COOKIE, HEADERS, LARGEST, POLICY
from capsnet.explorer._studio import WAITING, Studio
from capsnet.models import Model

from .conftest import HOME, SHIPPED, wire

Refuse = Callable[..., str]
STROKE = np.pad(np.full((40, 6), 255, np.uint8), ((12, 12), (29, 29)))
BLANK = wire(np.zeros((28, 28), np.uint8))


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has hardly any data."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8028", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.2",
             "", "localhost:x", "a@localhost", "localhost/x", "[::1", "10.0.0.1", "localhost, evil.example"],
)  # fmt: skip
def test_other_names_are_refused(client: TestClient, host: str) -> None:
    """A page elsewhere may point its name to 127.0.0.1; the name still gives it away."""
    for path in ("/", "/api/models", "/static/js/app.js"):
        response = client.get(path, headers={"host": host})
        assert response.status_code == 403
        assert "own machine only (localhost, 127.0.0.1, ::1)" in response.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8028", "[::1]:8028", "[::1]"])
def test_own_names_are_fine(client: TestClient, host: str) -> None:
    assert client.get("/api/models", headers={"host": host}).status_code == 200


def test_bound_to_an_address_of_its_own(shipped: Model) -> None:
    client = TestClient(create_app({SHIPPED: shipped}, host="192.168.7.7"), base_url="http://192.168.7.7")
    assert client.get("/api/models").status_code == 200
    assert client.get("/api/models", headers={"host": "192.168.7.8"}).status_code == 403
    client = TestClient(create_app({SHIPPED: shipped}, host="0.0.0.0"), base_url="http://192.168.7.9")
    assert client.get("/api/models").status_code == 200  # a literal address cannot be rebound
    assert client.get("/api/models", headers={"host": "evil.example"}).status_code == 403


def test_a_name_that_the_owner_gives(client: TestClient, shipped: Model) -> None:
    """That of a proxy in front: its pages are the server's own, and no others. Without the flag nobody's are."""
    app = create_app({SHIPPED: shipped}, names=["Caps.example.org", "box.lan:8443", "two.lan:443"])
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
        assert named.get("/api/models", headers=headers).status_code == (200 if welcome else 403), headers
        if "127.0.0.1" not in headers["host"]:
            assert client.get("/api/models", headers=headers).status_code == 403
    assert client.get("/api/models", headers=local | {"origin": "https://caps.example.org"}).status_code == 403
    assert "caps.example.org, box.lan, two.lan" in named.get("/", headers={"host": "evil.example"}).json()["error"]


@pytest.mark.parametrize("name", ["", "*", "*.example.org", "https://a.b", "a.b/c", "a b", "a@b", "a.b:x", "::1"])
def test_names_that_are_none(shipped: Model, name: str) -> None:
    with pytest.raises(ValueError, match="a name is like"):
        create_app({SHIPPED: shipped}, names=[name])


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8028",
                                    "file://", "chrome-extension://x", "http://[", "127.0.0.1:8028"])  # fmt: skip
def test_other_origins_are_refused(client: TestClient, origin: str) -> None:
    for send in (client.get, client.post, client.options):
        response = send("/api/models", headers={"origin": origin})
        assert response.status_code == 403
        assert not [name for name in response.headers if name.startswith("access-control")]
    assert client.get("/", headers={"origin": origin}).status_code == 403


def test_own_origin_and_fetch_metadata(client: TestClient) -> None:
    assert client.get("/api/models", headers={"origin": HOME}).status_code == 200
    assert client.get("/api/models", headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert client.get("/api/models", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/api/models", headers={"sec-fetch-site": "same-site"}).status_code == 403


def test_json_only(client: TestClient) -> None:
    """What a form can send without asking is not JSON."""
    body = json.dumps({"model": SHIPPED, "seen": BLANK})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        response = client.post("/api/classify", content=body, headers={"content-type": kind})
        assert response.status_code == 415, response.text
    fine = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/api/classify", content=body, headers=fine).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/api/models", "/api/nothing", "/static/nothing.js", f"/api/digit/1?model={SHIPPED}"]
)
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert response.headers["cross-origin-resource-policy"] == "same-origin"
    assert response.headers["cache-control"] in ("no-cache", "no-store")
    assert "script-src 'self'" in POLICY
    assert "unsafe" not in POLICY


def test_a_bug_has_the_headers_too(shipped: Model) -> None:
    app = create_app({SHIPPED: shipped})

    @app.get("/api/broken")
    async def broken() -> None:
        raise RuntimeError("nobody should read this")

    client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
    response = client.get("/api/broken")
    assert response.status_code == 500
    assert response.json() == {"error": "the explorer failed, which is a bug in it (RuntimeError)"}
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["cache-control"] == "no-store"
    assert client.get("/api/broken", headers={"host": "evil.example"}).status_code == 403


def test_the_icon_is_kept(client: TestClient) -> None:
    """A browser asks for it anew with each change of the address, and the address changes with each stroke."""
    assert "max-age" in client.get("/static/icon.svg").headers["cache-control"]
    assert client.get("/static/js/app.js").headers["cache-control"] == "no-cache"


def test_static_files_and_nothing_beside_them(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/static/js/app.js").headers["content-type"] == "text/javascript; charset=utf-8"
    for path in (
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "js/../../app.py",
        "/etc/passwd",
        "js",
        "",
        "%00",
        "js%00",
    ):
        assert client.get(f"/static/{path}").status_code in (404, 405, 422), path
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


@pytest.mark.parametrize(
    "name",
    ["../secrets", "/etc/passwd", "C:\\x", f"{SHIPPED}.safetensors", "runs/mine", "", "a" * 201, "\x00", "\ud800"],
)
def test_no_paths_from_visitors(client: TestClient, name: str) -> None:
    body = json.dumps({"model": name, "seen": BLANK})
    response = client.post("/api/classify", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (404, 422)
    if response.status_code == 404:
        assert SHIPPED in response.json()["error"]  # the known ones are named


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "1001", "1" * 400, "null", '"0.1"', "true", "[]"]
)
def test_numbers_that_are_none(client: TestClient, number: str) -> None:
    body = f'{{"model": "{SHIPPED}", "poses": [[{number}{", 0" * 15}]], "classes": [1]}}'
    response = client.post("/api/decode", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert response.json()["error"].startswith("poses.0.0: ")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b"[" * 100_000, b'{"model": 1}', b"1" * 5000, b'{"a":' * 50_000],
)
def test_broken_json(client: TestClient, body: bytes) -> None:
    response = client.post("/api/classify", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert list(response.json()) == ["error"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": "!!!!"}, "base64"),
        ({"data": "AAAA"}, "has 3 bytes, 28 x 28 x 1 are 784"),
        ({"data": "ä"}, "base64"),
        ({"width": 27}, "28 x 28"),
        ({"width": 0}, "seen.width"),
        ({"width": 10**9}, "seen.width"),
        ({"width": "28"}, "seen.width"),
        ({"width": 28.0}, "seen.width"),
        ({"width": True}, "seen.width"),
        ({"channels": 2}, "seen.channels"),
        ({"channels": 3}, "3"),
        ({"path": "/etc/passwd"}, "seen.path"),
    ],
)
def test_pixels_that_are_none(refuse: Refuse, change: dict[str, Any], said: str) -> None:
    assert said in refuse(422, "classify", seen=BLANK | change)


def test_limits_of_bodies(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(LARGEST // 2**16 + 2):
            yield bytes(2**16)

    for path, kind in ((f"/api/upload?model={SHIPPED}", "image/png"), ("/api/see", "application/json")):
        for content in (bytes(LARGEST + 1), endless()):  # with a length, and without one
            response = client.post(path, content=content, headers={"content-type": kind})
            assert response.status_code == 413, response.text
            assert "too large" in response.json()["error"]
    response = client.post(f"/api/upload?model={SHIPPED}", content=b"", headers={"content-length": "9" * 30})
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 415),
        (b"hello", 415),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415),  # would start another program
        (b"P5 2 2 255 aaaa", 415),
        (png(Image.new("L", (64, 64), 7))[:60], 422),
        (png_header(100, 100), 422),
        (png_header(7000, 7000), 422),  # beyond our limit
        (png_header(60_000, 60_000), 422),  # beyond Pillow's
        (png(Image.new("L", (1, 1))), 422),
        (png(Image.new("L", (100, 100), 255)), 422),  # blank: no digit
    ],
)
def test_files_that_are_none(client: TestClient, content: bytes, status: int) -> None:
    response = client.post(f"/api/upload?model={SHIPPED}", content=content)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    assert client.post("/api/upload?model=nobody", content=content).status_code == 404


def test_a_token(shipped: Model) -> None:
    app = create_app({SHIPPED: shipped}, token="a b&c=ü")
    client = TestClient(app, base_url=HOME, follow_redirects=False)
    for path in (
        "/",
        "/api/models",
        "/static/js/app.js",
        "/?token=",
        "/?token=wrong",
        "/api/models?token=a%20b%26c%3D%C3%BC",
    ):
        assert client.get(path).status_code == 401
    name = f"{COOKIE}-{hashlib.sha256('a b&c=ü'.encode()).hexdigest()[:8]}"
    assert client.get("/api/models", headers={"cookie": f"{name}=x"}).status_code == 401
    assert client.get("/api/models", headers={"authorization": "Bearer wrong"}).status_code == 401
    bearer = {"authorization": "Bearer a b&c=ü".encode()}
    assert client.get("/api/models", headers=bearer).status_code == 200  # type: ignore[arg-type]
    welcome = client.get("/?token=a%20b%26c%3D%C3%BC")
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
    cookie = welcome.headers["set-cookie"].lower()
    assert cookie.startswith(f"{name}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/models").status_code == 200  # by the cookie
    assert client.get("/").status_code == 200
    assert client.get("/api/models", headers={"host": "evil.example"}).status_code == 403
    clicked = {"sec-fetch-site": "cross-site"}
    page = TestClient(app, base_url=HOME).get("/?token=a%20b%26c%3D%C3%BC", headers=clicked)
    assert (page.status_code, "refresh" in page.text) == (200, True)


def test_two_servers_of_one_machine_do_not_log_each_other_out(shipped: Model) -> None:
    first, second = (
        TestClient(create_app({SHIPPED: shipped}, token=token), base_url=HOME, follow_redirects=False)
        for token in ("one", "two")
    )
    second.cookies = first.cookies  # a browser's, which know no ports
    for client, token in ((first, "one"), (second, "two")):
        assert client.get(f"/?token={token}").status_code == 303
    assert [client.get("/api/models").status_code for client in (first, second)] == [200, 200]


def test_nothing_is_written(
    client: TestClient, refuse: Refuse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No file is opened for writing by any endpoint, and nothing appears where temporary files go."""
    client.get(f"/api/gallery?model={SHIPPED}")  # the data are read once, and may be unpacked into the cache
    monkeypatch.chdir(tmp_path)
    written: list[str] = []
    os_open, builtin = os.open, open

    def watched(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(str(path))
        return os_open(path, flags, *rest, **more)

    def watched_open(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if set(mode) & set("wax+"):
            written.append(str(file))
        return builtin(file, mode, *rest, **more)

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr("builtins.open", watched_open)
    seen = {"model": SHIPPED, "seen": BLANK}
    assert client.post(f"/api/upload?model={SHIPPED}", content=png(Image.new("L", (64, 64), 9))).status_code == 422
    assert client.post(f"/api/upload?model={SHIPPED}&centre=false", content=bytes(2 * 2**20)).status_code == 415
    for path, body in (("see", {"model": SHIPPED, "image": BLANK}), ("classify", seen), ("trace", seen)):
        assert client.post(f"/api/{path}", json=body).status_code == 200
    assert written == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/api/classify", "/api/see", "/api/v1/predict"])
def test_many_unknown_fields_are_one_error(client: TestClient, path: str) -> None:
    body = {"model": SHIPPED, "seen": BLANK, **{f"x{n}": 0 for n in range(100_000)}}
    content = json.dumps(body)
    start = time.process_time()
    response = client.post(path, content=content, headers={"content-type": "application/json"})
    took = time.process_time() - start
    assert response.status_code == 422
    assert "at most 20 fields" in response.json()["error"]
    assert took < 0.2 + parsing(content)


def parsing(content: str) -> float:
    start = time.process_time()
    json.loads(content)
    return time.process_time() - start


def test_long_and_narrow_pictures_are_reduced(client: TestClient) -> None:
    """As many times the frame as the shape asks for would be gigabytes."""
    for size in ((20_000, 20), (20, 20_000), (60_000, 2)):
        content = png(Image.new("RGBA", size, (200, 100, 50, 255)))
        response = client.post("/api/upload?model=colour&centre=false", content=content)
        assert response.status_code == 200, response.text
    prepare = Preprocess(style="plain", fit="pad", channels=3)
    assert prepare._enough(Image.new("RGBA", (200_000, 20))) == 4096
    assert prepare._enough(Image.new("RGB", (4000, 3000))) == 150
    assert max(read_pixels(Image.new("RGBA", (20_000, 20)), enough=4096).shape) < 2 * 4096


def test_sixteen_bits_are_reduced_too() -> None:
    levels = np.full((600, 900), 200, np.uint16)
    levels[:, 450:] = 65535
    for image in (Image.fromarray(levels), Image.fromarray(levels.astype(np.int32)), Image.fromarray(levels / 65535)):
        small = read_pixels(image, enough=100)
        assert small.shape == (67, 100, 3)
        np.testing.assert_allclose(small[30, [10, 90], 0], [200 / 65535, 1], atol=1e-6)


def studio_of(client: TestClient) -> Studio:
    app: Any = client.app
    return app.state.studio


def test_uploads_are_decoded_one_at_a_time(client: TestClient) -> None:
    assert client.post(f"/api/upload?model={SHIPPED}&centre=false", content=png(Image.new("L", (30, 30), 9))).is_success
    assert studio_of(client)._workers["upload"]._max_workers == 1


@pytest.mark.parametrize("lane", ["slow", "quick", "upload"])
def test_beyond_a_number_of_waiting_questions_it_says_so(client: TestClient, lane: str) -> None:
    inside, full = studio_of(client)._inside, WAITING[lane]
    before, inside[lane] = inside[lane], full
    try:
        response = {
            "slow": lambda: client.get("/api/models"),
            "quick": lambda: client.post("/api/decode", json={"model": SHIPPED, "poses": [[0.0] * 16], "classes": [1]}),
            "upload": lambda: client.post(f"/api/upload?model={SHIPPED}", content=b""),
        }[lane]()
    finally:
        inside[lane] = before
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert "waiting" in response.json()["error"]
    assert set(inside.values()) == {0}


def test_a_network_that_answers_nan_is_explained(shipped: Model) -> None:
    broken = copy.deepcopy(shipped)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    broken.card = {"data": "svhn"}
    with TestClient(create_app({"broken": broken}), base_url=HOME, raise_server_exceptions=False) as client:
        ask = {"model": "broken", "seen": BLANK}
        for response in (
            client.post("/api/classify", json=ask),
            client.post("/api/trace", json=ask),
            client.post("/api/votes", json=ask | {"class": 3}),
            client.post("/api/v1/predict", json=wire(STROKE)),
        ):
            assert response.status_code == 422, response.text
            assert response.json()["error"] == "the network's answer is not a number"


def test_a_network_that_answers_nan_leaves_the_others_alone(shipped: Model) -> None:
    """Its profile cannot be measured, and the list of all networks has to stay a list."""
    broken = copy.deepcopy(shipped)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    broken.card = {"data": "mnist"}
    with TestClient(create_app({SHIPPED: shipped, "broken": broken}), base_url=HOME) as client:
        exhibit = studio_of(client).find("broken")
        end = time.monotonic() + 60
        while not exhibit.prepared and time.monotonic() < end:
            time.sleep(0.05)
        assert exhibit.prepared
        response = client.get("/api/models")
        assert response.status_code == 200
        assert [model["ranges"] is None for model in response.json()["models"]] == [False, True]
