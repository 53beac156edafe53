"""On a phone, what the network reads and draws stays in sight while one draws and turns."""

from playwright.sync_api import expect

from tests.explorer.browser import Visit
from tests.explorer.reading import DOWN, Visits, apart


def in_sight(visit: Visit, testid: str) -> bool:
    box = visit.by(testid).bounding_box()
    height = visit.page.evaluate("innerHeight")
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height


def test_answer_stays_in_sight(visits: Visits) -> None:
    for width, height in ((360, 740), (412, 915)):
        visit = visits(has_touch=True, viewport={"width": width, "height": height}).open()
        visit.stroke(*DOWN)
        assert all(in_sight(visit, part) for part in ("canvas", "mini-words", "mini-drawn", "mini-seen")), width
        expect(visit.by("mini-words")).to_contain_text("1 · 0.")
        assert apart(visit.grey("mini-drawn"), visit.grey("reconstruction")) == 0
        before = visit.grey("mini-drawn")
        visit.press("knob-12", "End")
        assert in_sight(visit, "knob-12")
        assert in_sight(visit, "mini-drawn")
        assert apart(visit.grey("mini-drawn"), visit.grey("reconstruction")) == 0
        assert apart(visit.grey("mini-drawn"), before) > 3
    wide = visits(viewport={"width": 1280, "height": 900}).open()
    expect(wide.by("mini")).to_be_hidden()  # the panels stand side by side
