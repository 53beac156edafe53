"""Links: the address bar holds the whole view."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import BUNDLED
from tests.explorer.reading import DOWN, Visits, apart, check_bars, columns, offsets_of


def test_link_restores_the_view(visit: Visit) -> None:
    visit.stroke((0.3, 0.2), (0.7, 0.2), (0.4, 0.85))
    visit.click(visit.by("bar-9"))
    visit.press("knob-3", *["ArrowRight"] * 7)
    visit.by("knob-number-11").fill("-0.321")
    visit.press("knob-number-11", "Enter")
    visit.by("centre").uncheck()
    visit.quiet()
    visit.press("knob-3", *["ArrowRight"] * 7)
    visit.page.get_by_label("How many iterations to run").select_option("5")
    visit.quiet()
    visit.by("routing-reset").click()
    visit.by("routing-step").click()
    visit.press("pair-dx-2", "Home")
    visit.press("pair-dy-1", "End")
    visit.click(visit.page.get_by_role("button", name="Remove column 2"))
    vote = visit.page.locator("#toy .toy-vote").nth(4)
    visit.press(vote, "Shift+ArrowUp")

    words = vote.get_attribute("aria-label")
    lengths, seen, knobs, decoded = visit.lengths(), visit.grey("seen"), visit.knobs(), visit.grey("reconstruction")
    maps, offsets = visit.texts("#routing .map-class .number"), offsets_of(visit)
    pair, shown = visit.grey("pair-seen"), columns(visit)

    visit.open_anew(visit.link())
    assert visit.lengths() == lengths
    assert apart(visit.grey("seen"), seen) == 0
    expect(visit.page.locator("#knobs h3")).to_have_text("Capsule “9”")
    assert visit.knobs() == pytest.approx(knobs, abs=1e-8)
    assert apart(visit.grey("reconstruction"), decoded) <= 1
    expect(visit.by("routing-iteration")).to_have_text("Iteration 2 of 5")
    assert visit.texts("#routing .map-class .number") == maps
    expect(visit.by("centre")).not_to_be_checked()
    assert offsets_of(visit) == offsets
    assert (offsets[1][1], offsets[0][0]) == (-4, 4)
    assert apart(visit.grey("pair-seen"), pair) == 0
    assert len(shown) == 2
    assert columns(visit) == shown
    expect(visit.page.locator("#toy .toy-vote").nth(4)).to_have_attribute("aria-label", words or "")


def test_link_to_a_pair_restores_the_pair(visit: Visit) -> None:
    visit.click("pair-random")
    visit.by("pair-toggle").check()
    visit.press("pair-dx-1", "End")
    visit.by("decode-absent-class").select_option("3")
    visit.quiet()
    lengths, offsets = visit.lengths(), offsets_of(visit)
    drawn = {name: visit.pixels(name) for name in ("seen", "pair-seen", "pair-both", "decode-absent")}
    visit.open_anew(visit.link())
    assert visit.lengths() == lengths
    expect(visit.by("pair-toggle")).to_be_checked()
    assert offsets_of(visit) == offsets
    for canvas, pixels in drawn.items():
        assert apart(visit.pixels(canvas), pixels) == 0, canvas


def test_link_to_a_pair_restores_the_capsule_and_its_knobs(visit: Visit) -> None:
    visit.by("pair-toggle").check()
    visit.quiet()
    second = int(np.argsort(visit.lengths())[-2])
    visit.click(visit.by(f"bar-{second}"))
    visit.press("knob-3", *["ArrowRight"] * 7)
    knobs, link = visit.knobs(), visit.link()
    visit.open_anew(link)
    expect(visit.by("pair-toggle")).to_be_checked()
    expect(visit.page.locator("#knobs h3")).to_have_text(f"Capsule “{second}”")
    assert visit.knobs() == pytest.approx(knobs, abs=1e-8)
    assert visit.link() == link


def test_link_opened_in_an_open_page_replaces_the_view(visit: Visit) -> None:
    visit.stroke(*DOWN)
    lengths, link = visit.lengths(), visit.link()
    visit.open_anew()
    assert visit.lengths() != lengths
    visit.page.goto(visit.home + link)  # the page stays, only the part after "#" changes
    expect(visit.by("first")).to_contain_text("first: 1")
    visit.quiet()
    assert visit.lengths() == lengths


def test_damaged_link_is_explained(visits: Visits, bundled: Model) -> None:
    visit, damaged = visits(), "picture is damaged"
    refused = {f"#m={BUNDLED}&x=garbage!!": damaged, f"#m={BUNDLED}&x=": damaged, "#m=nobody&x=AAAA": "“nobody”, which"}
    for link, sentence in refused.items():
        visit.open_anew(link)
        expect(visit.by("status")).to_contain_text(sentence)
        check_bars(visit, bundled)
        visit.stroke(*DOWN)
        expect(visit.by("first")).to_contain_text("first: 1")


def test_invalid_parts_of_a_link_are_ignored(visit: Visit, bundled: Model) -> None:
    whole, lengths = visit.link(), visit.lengths()
    visit.open_anew(re.sub(r"x=([\w-]+)", lambda found: "x=" + found[1][:100], whole))
    expect(visit.by("status")).to_contain_text("picture is damaged")
    visit.open_anew(f"{whole}&k=77&p=99:1,x:y,2:0.125&i=50&runs=99&pair=1*2.x&compare=nobody*what*3&toy=zz")
    assert visit.lengths() == lengths
    assert visit.knobs()[2] == 0.125
    expect(visit.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    check_bars(visit, bundled)
