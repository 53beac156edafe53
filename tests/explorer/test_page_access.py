"""Keyboard, screen readers, widths, hints and themes."""

import re
from typing import Literal

from playwright.sync_api import expect

from tests.explorer.browser import Visit
from tests.explorer.reading import Visits, apart, grave_violations


def test_axe_finds_no_serious_violation(visits: Visits) -> None:
    visit = visits(hints=True, bypass_csp=True).open()  # the policy would keep axe out
    visit.page.get_by_text("The snippet").click()
    visit.press("knob-3", "End")
    looks: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 360), ("dark", 1440))
    for scheme, width in looks:
        visit.page.emulate_media(color_scheme=scheme)
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.quiet()
        assert grave_violations(visit) == [], (scheme, width)


def test_page_does_not_scroll_sideways(visits: Visits) -> None:
    visit = visits(hints=True).open()
    visit.page.get_by_text("The snippet").click()
    beyond = """() => {
      scrollTo(1000, 0);
      const wide = [...document.querySelectorAll("main *, header *")].filter((element) => {
        const box = element.getBoundingClientRect();
        const clipped = element.closest("pre, .visually-hidden, .skip, [hidden]");
        return box.width > 1 && !clipped && (box.right > innerWidth + 1 || box.left < -1);
      });
      return [scrollX, document.documentElement.scrollWidth - document.documentElement.clientWidth,
        wide.slice(0, 4).map((element) => element.outerHTML.slice(0, 120))];
    }"""
    for width in (360, 768, 1920):
        visit.page.set_viewport_size({"width": width, "height": 900})
        assert visit.page.evaluate(beyond) == [0, 0, []], width


# What has the focus, and whether that is visible: by its own outline, its label's, or a stroke around a vote.
STOP = """() => {
  const at = document.activeElement;
  const outlined = [at, at.closest("label")].filter(Boolean).some((element) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  });
  const target = at.querySelector(".toy-target");
  const name = at.name || at.id || (at.getAttribute("class") ?? at.tagName).split(" ")[0];
  return [at.dataset.testid ?? name, target ? getComputedStyle(target).stroke !== "none" : outlined];
}"""


def test_keyboard_reaches_every_control(visit: Visit) -> None:
    visit.page.evaluate("() => document.activeElement.blur()")
    stops: list[str] = []
    while len(stops) < 400 and "copy-link" not in stops:
        visit.page.keyboard.press("Tab")
        name, marked = visit.page.evaluate(STOP)
        assert marked, f"the focus of {name} is not visible"
        stops.append(name)
    assert stops[:2] == ["skip", "model"]
    wanted = ["canvas", "clear", "brush", "centre", "gallery-item", "klass", "knob-0", "cell"]
    wanted += ["routing-back", "region", "map-class-0", "toy-vote", "pair-random", "pair-dx-1", "copy-link"]
    assert [name for name in [*wanted, "knob-number-15"] if name not in stops] == []
    places = [stops.index(name) for name in wanted]
    assert places == sorted(places)
    assert stops.count("klass") == stops.count("cell") == stops.count("region") == 1  # one stop each, arrows within


def test_skip_link_focuses_the_panels(visit: Visit) -> None:
    before = visit.link()
    visit.press(visit.page.locator("#skip"), "Enter")
    expect(visit.page.locator("#main")).to_be_focused()
    assert visit.link() == before


def test_hints_are_shown_on_the_first_visit_only(visits: Visits) -> None:
    visit = visits(hints=True).open()
    hints = visit.by("hints")
    expect(hints).to_be_visible()
    expect(hints.get_by_role("listitem")).to_have_count(3)
    hints.get_by_role("button", name="Watch the routing").click()
    expect(visit.page.locator("#routing-title")).to_be_focused()
    visit.page.keyboard.press("Escape")
    expect(hints).to_be_hidden()
    visit.open()
    expect(hints).to_be_hidden()
    visit.by("help").click()
    expect(hints).to_be_focused()
    expect(visit.by("help")).to_have_attribute("aria-expanded", "true")
    hints.get_by_role("button", name="Got it").click()
    expect(hints).to_be_hidden()
    expect(visit.by("help")).to_be_focused()


def test_theme_can_be_chosen_and_is_remembered(visits: Visits) -> None:
    visit = visits(color_scheme="dark").open()
    ground = "() => getComputedStyle(document.body).backgroundColor"

    def bright() -> bool:
        return sum(map(int, re.findall(r"\d+", visit.page.evaluate(ground))[:3])) > 600

    assert not bright()
    dark = visit.pixels("map-type-0")
    visit.by("theme").click()
    assert bright()
    visit.until(lambda: apart(visit.pixels("map-type-0"), dark) > 30)  # canvases follow
    visit.open()
    assert bright()  # it is remembered
    visit.by("theme").click()
    assert not bright()
    light = visits(color_scheme="light").open()
    assert sum(map(int, re.findall(r"\d+", light.page.evaluate(ground))[:3])) > 600
