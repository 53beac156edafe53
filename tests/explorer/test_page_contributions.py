"""Routing on the picture: contributions on the strokes, votes that fly, the network that is worth seeing."""

import base64
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import expect

from tests.explorer.browser import Visit
from tests.explorer.conftest import wire
from tests.explorer.reading import Visits, apart


def totals(trace: dict) -> NDArray:
    """|s| of each class in each iteration, (R, J), from the server's answer."""
    sent = np.frombuffer(base64.b64decode(trace["contributions"]), dtype="<i2").reshape(trace["iterations"], -1, 10)
    return (sent * (trace["contribution"] / 32767)).sum(axis=1)


def numbers(visit: Visit) -> list[float]:
    return [float(text) for text in re.findall(r"\d+\.\d+", visit.by("contribution-words").inner_text())]


def colourful(visit: Visit) -> NDArray:
    """How far each pixel of the strokes is from grey, (H, W)."""
    return np.ptp(visit.pixels("contributions")[..., :3].astype(int), axis=-1)


def hue(visit: Visit) -> NDArray:
    """The direction of the strokes' mean colour away from grey: equal for equal hues, (3,)."""
    pixels = visit.pixels("contributions")[..., :3].astype(float).reshape(-1, 3)
    colour = (pixels - pixels.mean(axis=1, keepdims=True)).sum(axis=0)
    return colour / np.linalg.norm(colour)


def test_contributions_light_the_strokes(visits: Visits) -> None:
    visit = visits().open()
    seen = visit.grey("seen")
    trace = visit.ask("trace", seen=wire(seen))
    assert numbers(visit) == pytest.approx([totals(trace)[-1, 7], trace["lengths"][-1][7]], abs=0.011)
    shown = [float(text) for text in visit.texts(".flight-parent .number")]
    assert shown == pytest.approx(trace["lengths"][-1], abs=0.0051)
    lit, seven = colourful(visit), hue(visit)
    assert lit[seen == 0].max() == 0  # only strokes are painted
    assert lit.max() > 40
    visit.by("parent-3").scroll_into_view_if_needed()
    expect(visit.by("routing-offer")).to_be_visible()  # from then on nothing moves below the pointer
    visit.by("parent-3").hover()
    assert numbers(visit)[0] == pytest.approx(totals(trace)[-1, 3], abs=0.011)
    assert colourful(visit).max() < lit.max() / 2  # on the same scale a class that is absent gets little
    visit.page.mouse.move(0, 0)

    middle = (trace["lengths"][0][7] + trace["lengths"][1][7]) / 2
    visit.by("routing-scrub").evaluate("(range) => { range.value = 0.5; range.dispatchEvent(new Event('input')); }")
    assert [float(t) for t in visit.texts(".flight-parent .number")][7] == pytest.approx(middle, abs=0.0051)
    visit.by("routing-reset").click()
    expect(visit.by("routing-iteration")).to_have_text("Iteration 1 of 3")
    assert numbers(visit) == pytest.approx([totals(trace)[0, 7], trace["lengths"][0][7]], abs=0.011)
    visit.by("parent-3").click()
    expect(visit.by("parent-3")).to_have_attribute("aria-pressed", "true")

    visit.by("routing-route").select_option("kuramoto")
    visit.quiet()
    visit.by("class-hue").check()
    expect(visit.by("contribution-words")).to_contain_text("the class to which the children there contribute most")
    assert colourful(visit).max() > 40
    assert colourful(visit)[seen == 0].max() == 0
    assert hue(visit) @ seven > 0.9  # most of a seven contributes to the seven, whichever class is chosen
    visit.by("class-hue").uncheck()
    assert hue(visit) @ seven < 0.9  # the chosen class is 3
    assert "route=kuramoto" in visit.link()
    visit.by("routing-route").select_option("")

    visit.by("routing-offer").scroll_into_view_if_needed()
    expect(visit.by("routing-offer")).to_contain_text("matrix-mnist")
    visit.by("routing-offer").click()
    visit.quiet()
    expect(visit.by("model")).to_have_value("matrix-mnist")
    expect(visit.by("routing-offer")).to_be_hidden()
    visit.until(lambda: float(visit.by("entropy").locator("output").inner_text()) < 0.5)


# How many pictures of the votes are shown in the first iteration: counted in the page, where no frame is missed.
PLAYED = """async (canvas) => {
  const iteration = document.querySelector('[data-testid=routing-iteration]');
  const shown = new Set();
  document.querySelector('[data-testid=routing-play]').click();
  do {
    await new Promise(requestAnimationFrame);
    shown.add(canvas.toDataURL());
  } while (iteration.textContent === "Iteration 1 of 3");
  return shown.size;
}"""


def test_votes_fly_while_it_plays(visits: Visits) -> None:
    visit = visits(reduced_motion="no-preference").open()
    lines = visit.page.locator(".flight-lines")
    visit.by("routing-slow").check()
    assert lines.evaluate(PLAYED) > 2  # they move without another step
    visit.by("routing-play").click()
    expect(visit.by("routing-play")).to_have_text("Play")
    visit.by("routing-slow").uncheck()
    visit.by("routing-play").click()
    expect(visit.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    expect(visit.by("routing-play")).to_have_text("Play")
    assert apart(visit.pixels(lines), visit.pixels(lines)) == 0
