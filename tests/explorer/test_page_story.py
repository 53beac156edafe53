"""The guided story in a real browser: by keyboard, by touch, for a screen reader, and with other networks."""

from typing import Literal

import torch
from playwright.sync_api import Browser, expect

import capsnet
from capsnet.explorer import create_app
from capsnet.models import Model
from tests.explorer.browser import Visit, new_context, serving
from tests.explorer.conftest import BUNDLED, tensor
from tests.explorer.reading import Visits, apart, grave_violations
from tests.explorer.story_walk import step, walk


def test_story_by_keyboard(visit: Visit, bundled: Model) -> None:
    walk(visit, bundled, "capsnet-multimnist")


def test_story_fills_the_screen(visit: Visit) -> None:
    visit.press("story-start", "Enter")
    step(visit, 1)
    full = "() => document.fullscreenElement !== null"
    for act in (lambda: visit.by("story-full").click(), lambda: visit.page.keyboard.press("f")):
        act()
        visit.page.wait_for_function(full)
        expect(visit.by("story-full")).to_have_text("Leave full screen")
        visit.page.keyboard.press("f")
        visit.page.wait_for_function(f"() => !({full})()")
    visit.page.keyboard.press("f")
    visit.page.wait_for_function(full)
    visit.by("story-end").click()
    visit.page.wait_for_function(f"() => !({full})()")
    expect(visit.by("story")).to_be_hidden()


def test_story_by_touch_on_a_phone(visits: Visits) -> None:
    visit = visits(has_touch=True, viewport={"width": 360, "height": 740}).open("#story")
    step(visit, 1)
    for number in range(2, 7):
        visit.by("story-next").tap()
        step(visit, number)
        if number in (2, 3, 5):
            visit.by("story-act").tap()  # at once: nothing moves
            visit.quiet()
        box, card = visit.by("story-next").bounding_box(), visit.by("story").bounding_box()
        assert box is not None
        assert card is not None
        assert box["height"] >= 40
        assert box["y"] + box["height"] <= 740
        assert card["y"] > 300  # the panel has the larger half
        assert visit.page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    expect(visit.by("mini-words")).to_contain_text("4 · 0.")
    visit.by("story-next").tap()
    expect(visit.by("story")).to_be_hidden()


def test_story_is_accessible_in_both_themes(visits: Visits) -> None:
    visit = visits(bypass_csp=True).open("#story")
    expect(visit.by("story-live")).to_contain_text("Of the first")
    text = visit.page.locator(".story-text")
    expect(text).to_have_attribute("aria-live", "polite")
    looks: tuple[tuple[Literal["light", "dark"], int], ...] = (("dark", 1), ("light", 4))
    for scheme, number in looks:
        visit.page.emulate_media(color_scheme=scheme)
        while f"{number} of" not in visit.page.locator(".story-count").inner_text():
            visit.click("story-next")
        visit.quiet()
        assert grave_violations(visit) == [], (scheme, number)


def test_story_of_a_network_without_capsules_borrows_one(visits: Visits) -> None:
    visit = visits().open("#m=cnn&story=3")
    step(visit, 3)
    expect(visit.by("model")).to_have_value(BUNDLED)


def test_story_begins_with_faces_where_networks_know_them(chromium: Browser, bundled: Model) -> None:
    shapes = capsnet.load("capsnet-shapes")
    torch.manual_seed(0)
    plain = capsnet.create_model("cnn-small", image_size=shapes.image_size, num_classes=shapes.num_classes)
    plain.class_names, plain.card = shapes.class_names, {"data": "svhn"}
    networks = {BUNDLED: bundled, "capsnet-shapes": shapes, "plain": plain}
    with serving(create_app(networks)) as home:
        visit = Visit(new_context(chromium, home).new_page(), home).open("#story")
        expect(visit.by("story-live")).to_contain_text("Of 9 such pictures of 3 things")
        moved = visit.grey("scramble-moved")
        assert apart(visit.grey("scramble-whole"), moved) > 100
        for row, model in zip(visit.by("scramble-answers").get_by_role("listitem").all(), (plain, shapes), strict=True):
            with torch.inference_mode():
                score = model(tensor(moved)).lengths.max()
            expect(row).to_contain_text(f"{float(score):.2f}")
        visit.close()
        visit.context.close()
