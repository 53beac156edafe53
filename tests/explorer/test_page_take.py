"""Panels to take along: PNG at double size, SVG, an animation, the whole page, a link to one panel."""

import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from PIL import Image
from playwright.sync_api import expect

from tests.explorer.browser import Visit
from tests.explorer.conftest import BUNDLED


def taken(visit: Visit, testid: str) -> bytes:
    with visit.page.expect_download() as download:
        visit.by(testid).click()
    panel, _, ending = testid.partition("-as-")
    assert download.value.suggested_filename == f"{BUNDLED}-{panel}.{ending}" or testid == "export-page"
    return Path(download.value.path()).read_bytes()


def test_panels_are_saved_as_seen(visit: Visit) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=visit.home)
    visit.page.locator("#routing").scroll_into_view_if_needed()
    visit.quiet()
    box = visit.page.locator("#routing").bounding_box() or {}
    visit.by("routing-tools").locator("summary").click()
    picture = Image.open(io.BytesIO(taken(visit, "routing-as-png"))).convert("RGB")
    assert abs(picture.width - 2 * box["width"]) <= 2
    assert picture.height >= 2 * box["height"] - 2
    place = visit.by("contributions").bounding_box() or {}
    now = visit.page.locator("#routing").bounding_box() or {}
    left, top = (round(2 * (place[axis] - now[axis])) for axis in ("x", "y"))
    side = round(2 * place["width"])
    shown = np.asarray(picture.crop((left, top, left + side, top + side)).resize((28, 28), Image.Resampling.BOX))
    page = visit.pixels("contributions")[..., :3].astype(int)
    assert np.abs(shown.astype(int) - page).mean() < 12  # votes lie over the strokes

    drawing = ElementTree.fromstring(taken(visit, "routing-as-svg"))
    assert drawing.tag.endswith("svg")
    text = "".join(drawing.itertext())
    assert "See the routing" in text
    assert "Copy link" not in text

    animation = Image.open(io.BytesIO(taken(visit, "routing-as-gif")))
    frames = getattr(animation, "n_frames", 1)
    assert frames > 30
    assert animation.info["loop"] == 0
    moments = []
    for n in (5, frames - 1):
        animation.seek(n)
        moments.append(np.asarray(animation.convert("RGB")).astype(int))
    assert np.abs(moments[0] - moments[1]).max() > 60  # votes fly
    visit.by("routing-as-link").click()
    expect(visit.by("status")).to_contain_text("link to this panel")
    link = visit.page.evaluate("() => navigator.clipboard.readText()")
    assert link.endswith("&panel=routing")

    whole = Image.open(io.BytesIO(taken(visit, "export-page")))
    assert whole.width == visit.page.evaluate("() => Math.round(document.body.getBoundingClientRect().width)")
    assert whole.height > 2000

    visit.open("#" + link.partition("#")[2])
    visit.until(
        lambda: abs(visit.page.evaluate("() => document.getElementById('routing').getBoundingClientRect().top")) < 60
    )
