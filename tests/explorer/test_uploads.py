"""Uploaded files: broken ones, huge ones, and no trace on the disk."""

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capsnet.data import Preprocess
from capsnet.data._pixels import read_pixels
from tests.explorer.conftest import BUNDLED, TestClient, png, service_of, wire

BLANK = wire(np.zeros((28, 28), np.uint8))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has hardly any data."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 415),
        (b"hello", 415),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415),  # would start another program
        (b"8BPS\x00\x01" + bytes(60), 415),
        (png(Image.new("L", (64, 64), 7))[:60], 422),
        (png_header(100, 100), 422),
        (png_header(8001, 8001), 422),  # beyond our limit
        (png_header(60_000, 60_000), 422),  # beyond Pillow's
        (png(Image.new("L", (1, 1))), 422),
        (png(Image.new("L", (100, 100), 255)), 422),  # blank: no digit
    ],
)
def test_invalid_files_are_refused(client: TestClient, content: bytes, status: int) -> None:
    response = client.post(f"/api/upload?model={BUNDLED}", content=content)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    assert client.post("/api/upload?model=nobody", content=content).status_code == 404


def test_no_endpoint_writes_a_file(client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file is opened for writing by any endpoint, and nothing appears where temporary files go."""
    client.get(f"/api/gallery?model={BUNDLED}")  # the data are read once, and may be unpacked into the cache
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
    seen = {"model": BUNDLED, "seen": BLANK}
    assert client.post(f"/api/upload?model={BUNDLED}", content=png(Image.new("L", (64, 64), 9))).status_code == 422
    assert client.post(f"/api/upload?model={BUNDLED}&centre=false", content=bytes(2 * 2**20)).status_code == 415
    for path, body in (("see", {"model": BUNDLED, "image": BLANK}), ("classify", seen), ("trace", seen)):
        assert client.post(f"/api/{path}", json=body).status_code == 200
    assert written == []
    assert list(tmp_path.iterdir()) == []


def test_long_and_narrow_images_are_reduced(client: TestClient) -> None:
    """Scaling by the shorter side would take gigabytes."""
    for size in ((20_000, 20), (20, 20_000), (60_000, 2)):
        content = png(Image.new("RGBA", size, (200, 100, 50, 255)))
        response = client.post("/api/upload?model=colour&centre=false", content=content)
        assert response.status_code == 200, response.text
    prepare = Preprocess(style="plain", fit="pad", channels=3)
    assert prepare._enough(Image.new("RGBA", (200_000, 20))) == 4096
    assert prepare._enough(Image.new("RGB", (4000, 3000))) == 150
    assert max(read_pixels(Image.new("RGBA", (20_000, 20)), enough=4096).shape) < 2 * 4096


def test_sixteen_bit_images_are_reduced() -> None:
    levels = np.full((600, 900), 200, np.uint16)
    levels[:, 450:] = 65535
    for image in (Image.fromarray(levels), Image.fromarray(levels.astype(np.int32)), Image.fromarray(levels / 65535)):
        small = read_pixels(image, enough=100)
        assert small.shape == (67, 100, 3)
        np.testing.assert_allclose(small[30, [10, 90], 0], [200 / 65535, 1], atol=1e-6)


def test_uploads_are_decoded_one_at_a_time(client: TestClient) -> None:
    assert client.post(f"/api/upload?model={BUNDLED}&centre=false", content=png(Image.new("L", (30, 30), 9))).is_success
    assert service_of(client)._workers["upload"]._max_workers == 1
