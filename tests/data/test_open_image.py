"""``open_image`` is the only way to a picture: what it refuses is refused everywhere."""

import io
import os
import re
import warnings
from pathlib import Path

import pytest
from PIL import EpsImagePlugin, Image

import capsnet
from capsnet.data import NotAnImage, Preprocess, images_in, open_image
from capsnet.data._pixels import FORMATS, MOST_PIXELS, UNSIGNED, is_deep

POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 100 100
%%EndComments
(x) print
showpage
%%EOF
"""
PLAIN = Preprocess(style="plain")


def written(kind: str, suffix: str, folder: Path) -> Path:
    path = folder / f"picture{suffix}"
    Image.new("L" if kind == "TGA" else "RGB", (40, 30), 128 if kind == "TGA" else (200, 40, 40)).save(path, kind)
    return path


def test_postscript_never_starts_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho started >> '{started}'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # not looked for yet
    path = tmp_path / "digit.png"
    path.write_bytes(POSTSCRIPT)
    for source in (path, POSTSCRIPT):
        with pytest.raises(NotAnImage, match=r"not an image: the formats are PNG, JPEG"):
            PLAIN(source)
    with pytest.raises(NotAnImage):
        capsnet.predict(path, "capsnet-small-mnist")
    assert not is_deep(path)
    assert not started.exists()


@pytest.mark.parametrize("kind", ["EPS", "PSD", "ICO", "PCX", "SGI", "XBM", "DDS", "QOI"])
def test_other_formats_are_refused_whatever_their_names(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "picture.png"
    if kind == "PSD":  # Pillow only reads these
        path.write_bytes(
            b"8BPS\x00\x01" + bytes(6) + b"\x00\x03\x00\x00\x00\x08\x00\x00\x00\x08\x00\x08\x00\x03" + bytes(64)
        )
    elif kind == "QOI":  # Pillow writes them from 11.3 on
        path.write_bytes(b"qoif\x00\x00\x00\x10\x00\x00\x00\x10\x03\x00" + b"\xc0" * 256 + bytes(7) + b"\x01")
    else:
        Image.new("1" if kind == "XBM" else "RGB", (16, 16)).save(path, kind)
    with pytest.raises(NotAnImage):
        open_image(path)
    with pytest.raises(NotAnImage):
        open_image(path.read_bytes())


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("PNG", ".png"), ("JPEG", ".jpe"), ("WEBP", ".webp"), ("GIF", ".gif"), ("BMP", ".bmp"), ("DIB", ".dib"),
     ("TIFF", ".tif"), ("PPM", ".ppm"), ("JPEG2000", ".jp2"), ("AVIF", ".avif"), ("TGA", ".tga")],
)  # fmt: skip
def test_every_listed_ending_can_be_read(tmp_path: Path, kind: str, suffix: str) -> None:
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow has no {kind}")
    path = written(kind, suffix, tmp_path)
    assert images_in(tmp_path) == [path]
    assert kind in (*FORMATS, *UNSIGNED.values())
    assert PLAIN(path).mean() > 0.2


def test_format_without_signature_needs_its_name(tmp_path: Path) -> None:
    path = written("TGA", ".tga", tmp_path)
    path.rename(tmp_path / "picture.png")
    with pytest.raises(NotAnImage):
        open_image(tmp_path / "picture.png")


def test_size_limits_hold_without_a_warning(tmp_path: Path) -> None:
    side = int(MOST_PIXELS**0.5) + 1
    header = io.BytesIO()
    Image.new("1", (side, side)).save(header, "PNG")
    path = tmp_path / "large.png"
    path.write_bytes(header.getvalue())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            ValueError, match=rf"large\.png: the image is too large: {side} x {side}, at most 64,000,000"
        ):
            PLAIN(path)
    with open(path, "r+b") as file:
        file.truncate(2**29 + 1)  # sparse
    with pytest.raises(ValueError, match="the file is too large: 536,870,913 bytes, at most 536,870,912 are read"):
        open_image(path)


def test_no_other_code_opens_pictures() -> None:
    source = Path(capsnet.__file__).parent
    calls = {str(p.relative_to(source)): re.findall(r"Image\.open\(.*\)", p.read_text()) for p in source.rglob("*.py")}
    found = [(name, call) for name, lines in calls.items() for call in lines]
    assert all("formats=" in call for _, call in found), found


@pytest.mark.parametrize("kind", ["AVIF", "WEBP", "JPEG2000", "TIFF"])
def test_whatever_a_decoder_raises_is_one_sentence(kind: str) -> None:
    """That of AVIF raises RuntimeError."""
    Image.init()
    if kind not in Image.SAVE:
        pytest.skip(f"this Pillow does not write {kind}")
    buffer = io.BytesIO()
    Image.new("RGB", (24, 20), (200, 40, 40)).save(buffer, kind)
    content = buffer.getvalue()
    errors = []
    for place in range(0, len(content), max(1, len(content) // 150)):
        damaged = content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
        try:
            PLAIN(damaged)
        except ValueError as error:
            errors.append(str(error))
    assert errors
    assert not any("\n" in error for error in errors)
