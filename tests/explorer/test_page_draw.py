"""Paper, brush and gallery in a real browser: what is on the screen is what the library computes."""

import math
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from capsnet.data import ArrayDataset
from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.reading import DOWN, Visits, apart, check_bars, expect_number


def test_stroke_is_classified_as_the_library_does(visit: Visit, bundled: Model) -> None:
    expect(visit.by("first")).to_contain_text("first: 7")  # the example
    before = check_bars(visit, bundled)
    visit.stroke(*DOWN)
    expect(visit.by("first")).to_contain_text("first: 1")
    after = check_bars(visit, bundled)
    assert after[1] == max(after) > 0.8
    assert after[7] < before[7] - 0.3
    ink = visit.grey("seen")
    assert ink.shape == (28, 28)
    rows = np.flatnonzero(ink.any(axis=1))
    assert (rows[0], rows[-1]) == pytest.approx((4, 23), abs=1)  # MNIST's box of 20 pixels
    assert expect_number(visit.by("first")) == pytest.approx(after[1], abs=0.0051)


def test_centring_can_be_switched_off(visit: Visit) -> None:
    across = np.arange(28) + 0.5

    def middle() -> float:
        ink = visit.grey("seen").astype(float).sum(axis=0)
        return float((ink * across).sum() / ink.sum())

    visit.stroke((0.2, 0.2), (0.2, 0.8))
    assert middle() == pytest.approx(14, abs=0.7)
    visit.by("centre").uncheck()
    visit.quiet()
    assert middle() == pytest.approx(0.2 * 28, abs=0.3)
    visit.by("centre").check()
    visit.quiet()
    assert middle() == pytest.approx(14, abs=0.7)


def test_undo_redo_and_clear_restore_pictures(visit: Visit) -> None:
    expect(visit.by("undo")).to_be_disabled()
    example = visit.grey("seen")
    visit.stroke(*DOWN)
    one = visit.grey("seen")
    visit.stroke((0.2, 0.5), (0.8, 0.5))
    two = visit.grey("seen")
    assert apart(one, two) > 100
    visit.click("undo")
    assert apart(visit.grey("seen"), one) == 0
    visit.click("redo")
    assert apart(visit.grey("seen"), two) == 0
    expect(visit.by("redo")).to_be_disabled()
    visit.click("clear")
    assert visit.ink() == 0
    assert not visit.grey("seen").any()
    expect(visit.page.get_by_text("Draw here")).to_be_visible()
    visit.press("clear", "Control+z")
    assert apart(visit.grey("seen"), two) == 0
    visit.press("clear", "Control+z", "Control+z")
    assert apart(visit.grey("seen"), example) == 0
    visit.press("clear", "Control+Shift+z")
    assert apart(visit.grey("seen"), one) == 0


def test_brush_and_eraser_change_the_ink(visit: Visit) -> None:
    long = 0.6 * 448
    for key, width in (("Home", 12), ("End", 64)):
        visit.click("clear")
        visit.press("brush", key)
        visit.stroke(*DOWN)
        assert visit.ink() == pytest.approx(width * long + math.pi * width**2 / 4, rel=0.02)
    before = visit.ink()
    visit.click("eraser")
    expect(visit.by("eraser")).to_have_attribute("aria-pressed", "true")
    visit.stroke((0.2, 0.5), (0.8, 0.5))
    assert visit.grey("canvas")[224, 224] == 0
    assert before - visit.ink() == pytest.approx(64 * 64, rel=0.03)
    visit.click("eraser")
    visit.stroke((0.45, 0.5), (0.55, 0.5))
    assert visit.grey("canvas")[224, 224] == 255


def test_keyboard_draws(visit: Visit, bundled: Model) -> None:
    visit.press("canvas", "Space", *["Shift+ArrowDown"] * 7, "Space", "ArrowRight")
    paper = visit.grey("canvas")
    assert (paper[112:336, 224] == 255).all()
    assert not paper[112:336, 224 + 40].any()
    expect(visit.page.locator("#draw .cursor")).to_be_visible()
    expect(visit.by("first")).to_contain_text("first: 1")
    check_bars(visit, bundled)


def test_finger_draws(visits: Visits, bundled: Model) -> None:
    visit = visits(has_touch=True, viewport={"width": 360, "height": 740}).open()
    finger = visit.context.new_cdp_session(visit.page)
    points = [(0.5, 0.2 + 0.05 * n) for n in range(13)]
    spots = visit.spots("canvas", points)
    scrolled = visit.page.evaluate("scrollY")
    for n, (x, y) in enumerate(spots):
        kind = "touchMove" if n else "touchStart"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    expect(visit.by("first")).to_contain_text("first: 1")
    visit.quiet()
    check_bars(visit, bundled)
    assert visit.grey("canvas")[224, 224] == 255
    assert visit.page.evaluate("scrollY") == scrolled


def test_gallery_shows_test_pictures(visit: Visit, digits: ArrayDataset, bundled: Model) -> None:
    visit.click(visit.by("gallery").get_by_role("tab", name="4", exact=True))
    fourth = int(np.flatnonzero(digits.targets == 4)[3])
    item = visit.by("gallery-item").nth(3)
    expect(item).to_have_attribute("aria-label", "a 4")
    visit.click(item)
    assert apart(visit.grey("seen"), digits.images[fourth, 0]) == 0
    check_bars(visit, bundled)
    visit.click(visit.page.get_by_role("button", name="Next page"))
    visit.click(visit.by("gallery-item").nth(0))
    page = int(np.flatnonzero(digits.targets == 4)[24])
    assert apart(visit.grey("seen"), digits.images[page, 0]) == 0
    visit.click(visit.by("gallery").get_by_role("tab", name="Misread"))
    item = visit.by("gallery-item").nth(0)
    found = re.fullmatch(r"a (\d), read as (\d)", item.get_attribute("aria-label") or "")
    assert found
    visit.press(item, "Enter")
    assert np.argmax(visit.lengths()) == int(found[2]) != int(found[1])
