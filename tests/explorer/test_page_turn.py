"""Turn it and watch: what is on the screen is the picture moved, and what the networks say of it."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.reading import apart, says


def set_range(visit: Visit, value: float) -> None:
    visit.by("turn-range").fill(str(value))
    visit.quiet()


def test_turning_a_digit_moves_length_direction_and_twin(visit: Visit, bundled: Model) -> None:
    before = visit.net()["sent"]["/api/classify"]
    seen = visit.grey("seen")
    visit.page.locator("#turn").scroll_into_view_if_needed()
    curve = visit.by("turn-lengths")
    expect(curve).to_have_attribute("aria-label", re.compile(r"“7” stays above 0.5 from \u2212\d+° to \+\d+°; cnn: "))
    assert visit.net()["sent"]["/api/classify"] >= before + 48  # not before someone looks
    assert apart(visit.grey("turned"), seen) == 0

    set_range(visit, 90)
    assert apart(visit.grey("turned"), np.rot90(seen, -1)) == 0  # clockwise
    set_range(visit, 20)
    expect(visit.by("turn-value")).to_have_text("+20°")
    turned = visit.grey("turned")
    lengths, poses = says(bundled, turned)
    _, start = says(bundled, seen)
    cosine = float((poses[7] @ start[7]) / (poses[7].norm() * start[7].norm()))
    words = visit.by("turn-words")
    expect(words).to_contain_text(f"“7” has {lengths[7]:.2f}, its direction {np.degrees(np.arccos(cosine)):.0f}°")
    expect(words).to_contain_text("cnn gives “7” ")
    top = np.ptp(visit.pixels("turn-plane")[..., 3])
    assert top > 0  # a path is drawn

    visit.by("turn-shift").click()
    set_range(visit, 3)
    visit.by("turn-reset").click()
    expect(visit.by("turn-value")).to_have_text("0.0 px")
    set_range(visit, 3)
    assert apart(visit.grey("turned")[:, 3:], seen[:, :-3]) == 0
    expect(curve).to_have_attribute("aria-label", re.compile(r"from \u2212\d+\.\d px to \+\d+\.\d px"))
    visit.by("turn-reset").click()

    visit.by("turn-turn").click()
    (middle, side) = visit.spots("turned", [(0.5, 0.5), (0.9, 0.1)])
    visit.page.mouse.move(middle[0], middle[1] - 60)
    visit.page.mouse.down()
    visit.page.mouse.move(*side, steps=6)
    visit.page.mouse.up()
    visit.quiet()
    expect(visit.by("turn-value")).to_have_text("+45°")
    moved = visit.grey("turned")
    assert visit.lengths() != pytest.approx(says(bundled, moved)[0], abs=0.01)
    visit.click("turn-use")
    assert apart(visit.grey("seen"), moved) == 0
    assert visit.lengths() == pytest.approx(says(bundled, moved)[0], abs=1e-3)
    expect(visit.by("turn-value")).to_have_text("0°")
