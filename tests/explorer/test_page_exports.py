"""What can be taken from the page: snippet, link, JSON, PNG."""

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import BUNDLED, unwire
from tests.explorer.reading import DIGITS, apart, drawn, says


def run(code: str) -> list[str]:
    """What the snippet prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    return output.getvalue().splitlines()


def test_python_snippet_prints_the_numbers_of_the_page(visit: Visit, bundled: Model) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=visit.home)
    visit.stroke((0.3, 0.2), (0.7, 0.2), (0.4, 0.85))
    visit.press("knob-3", *["ArrowRight"] * 7)
    visit.by("copy-python").click()
    expect(visit.by("status")).to_contain_text("clipboard")
    code = visit.page.evaluate("() => navigator.clipboard.readText()")
    *lines, last = run(code)
    shown = [f"{k}: {length:.3f}" for k, length in enumerate(visit.lengths())]
    assert [line for line in lines if line] == shown
    length = visit.page.locator("#knobs .length b").inner_text()
    klass = int(np.argmax(visit.lengths()))
    ink = drawn(bundled, klass, visit.knobs()).astype(float).sum() / 255
    found = re.fullmatch(r"length now (\S+), ink (\S+)", last)
    assert found
    assert float(found[1]) == pytest.approx(float(length), abs=2 * DIGITS)
    assert float(found[2]) == pytest.approx(ink, abs=0.5)  # of 784 rounded bytes
    visit.link()
    visit.by("snippet").locator("summary").click()
    assert visit.by("snippet").locator("code").inner_text().strip() == code.strip()

    visit.by("copy-link").click()
    expect(visit.by("status")).to_contain_text("link is in the clipboard")
    assert visit.page.evaluate("() => navigator.clipboard.readText()") == visit.page.url
    assert "x=" in visit.page.url


def test_exported_files_hold_the_view(visit: Visit, bundled: Model, tmp_path: Path) -> None:
    visit.press("knob-3", *["ArrowRight"] * 7)
    link = visit.link()
    seen = visit.grey("seen")
    for ending in ("json", "png"):
        with visit.page.expect_download() as download:
            visit.by(f"export-{ending}").click()
        assert download.value.suggested_filename == f"{BUNDLED}-view.{ending}"
        download.value.save_as(tmp_path / f"view.{ending}")
    numbers = json.loads((tmp_path / "view.json").read_text())
    lengths, poses = says(bundled, seen)
    assert list(numbers["lengths"].values()) == pytest.approx(lengths, abs=1e-6)
    np.testing.assert_allclose(numbers["poses"], poses.numpy(), atol=1e-6)
    assert apart(unwire(numbers["seen"])[:, :, 0], seen) == 0
    assert numbers["capsule"]["pose"] == pytest.approx(visit.knobs(), abs=1e-9)
    assert numbers["capsule"]["turned"] == pytest.approx({"3": visit.knobs()[3]}, abs=1e-9)
    assert apart(unwire(numbers["reconstruction"])[:, :, 0], visit.grey("reconstruction")) == 0
    assert numbers["link"].endswith(link)
    picture = np.asarray(Image.open(tmp_path / "view.png").convert("RGB"))
    assert picture.shape == (800, 1240, 3)
    assert apart(picture[112 + 3 : 308 : 7, 40 + 3 : 236 : 7, 0], seen) == 0
    assert apart(picture[112 + 3 : 308 : 7, 264 + 3 : 460 : 7, 0], visit.grey("reconstruction")) == 0
    longest = int(np.argmax(lengths))
    row = picture[380 + 38 * longest + 19].astype(int)
    coloured = (np.ptp(row, axis=1) > 40)[150:600].sum()  # the bar has the hue of its class
    assert coloured == pytest.approx(450 * lengths[longest], abs=4)  # but for the two marks
