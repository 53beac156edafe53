"""The pictures of docs/explorer.md and of the README, taken from the page as it is.

    python -m tools.screenshots

A real Chromium and the bundled networks; nothing is retouched. Look at each before you commit it.
"""

from pathlib import Path

from playwright.sync_api import Page

from tools._page import opened, settle

DOCS = Path("docs")
STROKES = [[(0.36, 0.18), (0.28, 0.5), (0.72, 0.52)], [(0.62, 0.22), (0.58, 0.86)]]  # a four


def main() -> None:
    with opened(1440, 900) as (page, home):
        page.goto(home)
        settle(page)
        sketch(page)
        page.screenshot(path=DOCS / "explorer.png", clip={"x": 0, "y": 0, "width": 1440, "height": 800})
        page.locator("#routing").screenshot(path=DOCS / "explorer-routing.png")
        parse(page, home)
        for number, name in ((1, "scramble"), (5, "pair")):
            page.goto(f"{home}#story={number}")
            page.reload()
            page.locator(".story-live:not(:empty)").wait_for()
            settle(page)
            page.wait_for_timeout(900)  # the scrolling
            page.screenshot(path=DOCS / f"explorer-story-{name}.png")
    with opened(390, 844, "dark", has_touch=True, device_scale_factor=2) as (page, home):
        page.goto(home)
        settle(page)
        page.get_by_test_id("canvas").scroll_into_view_if_needed()
        page.evaluate("() => document.getElementById('draw').scrollIntoView()")
        sketch(page)
        page.screenshot(path=DOCS / "explorer-phone.png")


def parse(page: Page, home: str) -> None:
    """A pair of digits whose strokes have the colours of the digits to which they go."""
    page.goto(f"{home}#m=kuramoto-multimnist")
    page.reload()
    settle(page)
    for label in ("Use this pair as the input of all panels", "Colour by class"):
        page.get_by_text(label, exact=True).click()
        settle(page)
    page.mouse.move(0, 0)
    page.locator(".flight-stage").screenshot(path=DOCS / "explorer-parse.png")


def sketch(page: Page) -> None:
    box = page.get_by_test_id("canvas").bounding_box()
    assert box is not None
    for (x, y), *rest in STROKES:
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        page.mouse.down()
        for right, down in rest:
            page.mouse.move(box["x"] + right * box["width"], box["y"] + down * box["height"], steps=12)
        page.mouse.up()
    page.mouse.move(0, 0)
    settle(page)


if __name__ == "__main__":
    main()
