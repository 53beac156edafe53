"""Links: the address bar holds the whole view."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import BUNDLED
from tests.explorer.reading import DOWN, Visits, apart, check_bars, columns, offsets_of


def test_link_restores_the_view(visit: Visit, visits: Visits) -> None:
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

    other = visits().open(visit.link())
    assert other.lengths() == visit.lengths()
    assert apart(other.grey("seen"), visit.grey("seen")) == 0
    expect(other.page.locator("#knobs h3")).to_have_text("Capsule “9”")
    assert other.knobs() == pytest.approx(visit.knobs(), abs=1e-8)
    assert apart(other.grey("reconstruction"), visit.grey("reconstruction")) <= 1
    expect(other.by("routing-iteration")).to_have_text("Iteration 2 of 5")
    assert other.texts("#routing .map-class .number") == visit.texts("#routing .map-class .number")
    expect(other.by("centre")).not_to_be_checked()
    assert offsets_of(other) == offsets_of(visit)
    assert (offsets_of(other)[1][1], offsets_of(other)[0][0]) == (-4, 4)
    assert apart(other.grey("pair-seen"), visit.grey("pair-seen")) == 0
    assert len(columns(other)) == 2
    assert columns(other) == columns(visit)
    words = vote.get_attribute("aria-label")
    assert other.page.locator("#toy .toy-vote").nth(4).get_attribute("aria-label") == words


def test_link_to_a_pair_restores_the_pair(visit: Visit, visits: Visits) -> None:
    visit.click("pair-random")
    visit.by("pair-toggle").check()
    visit.press("pair-dx-1", "End")
    visit.by("decode-absent-class").select_option("3")
    visit.quiet()
    other = visits().open(visit.link())
    assert other.lengths() == visit.lengths()
    expect(other.by("pair-toggle")).to_be_checked()
    assert offsets_of(other) == offsets_of(visit)
    for canvas in ("seen", "pair-seen", "pair-both", "decode-absent"):
        assert apart(other.pixels(canvas), visit.pixels(canvas)) == 0, canvas


def test_link_to_a_pair_restores_the_capsule_and_its_knobs(visit: Visit, visits: Visits) -> None:
    visit.by("pair-toggle").check()
    visit.quiet()
    second = int(np.argsort(visit.lengths())[-2])
    visit.click(visit.by(f"bar-{second}"))
    visit.press("knob-3", *["ArrowRight"] * 7)
    other = visits().open(visit.link())
    expect(other.by("pair-toggle")).to_be_checked()
    expect(other.page.locator("#knobs h3")).to_have_text(f"Capsule “{second}”")
    assert other.knobs() == pytest.approx(visit.knobs(), abs=1e-8)
    assert other.link() == visit.link()


def test_link_opened_in_an_open_page_replaces_the_view(visit: Visit, visits: Visits) -> None:
    other = visits().open()
    visit.stroke(*DOWN)
    other.page.goto(other.home + visit.link())  # the page stays, only the part after "#" changes
    expect(other.by("first")).to_contain_text("first: 1")
    other.quiet()
    assert other.lengths() == visit.lengths()


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        (f"#m={BUNDLED}&x=garbage!!", "picture is damaged"),
        (f"#m={BUNDLED}&x=", "picture is damaged"),
        ("#m=nobody&x=AAAA", "“nobody”, which is not loaded"),
    ],
)
def test_damaged_link_is_explained(visits: Visits, link: str, sentence: str, bundled: Model) -> None:
    visit = visits().open(link)
    expect(visit.by("status")).to_contain_text(sentence)
    check_bars(visit, bundled)
    visit.stroke(*DOWN)
    expect(visit.by("first")).to_contain_text("first: 1")


def test_invalid_parts_of_a_link_are_ignored(visit: Visit, visits: Visits, bundled: Model) -> None:
    whole = visit.link()
    cut = visits().open(re.sub(r"x=([\w-]+)", lambda found: "x=" + found[1][:100], whole))
    expect(cut.by("status")).to_contain_text("picture is damaged")
    odd = visits().open(f"{whole}&k=77&p=99:1,x:y,2:0.125&i=50&runs=99&pair=1*2.x&compare=nobody*what*3&toy=zz")
    assert odd.lengths() == visit.lengths()
    assert odd.knobs()[2] == 0.125
    expect(odd.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    check_bars(odd, bundled)
