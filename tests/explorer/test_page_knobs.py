"""Bars, sliders and sweep in a real browser: what is on the screen is what the library computes."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Locator, expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.reading import DIGITS, apart, drawn, says


def test_capsule_can_be_chosen(visit: Visit, bundled: Model) -> None:
    _, poses = says(bundled, visit.grey("seen"))
    visit.click(visit.by("bar-3"))
    expect(visit.page.locator("#knobs h3")).to_have_text("Capsule “3”")
    assert visit.knobs() == pytest.approx(poses[3].tolist(), abs=1e-6)
    assert apart(visit.grey("reconstruction"), drawn(bundled, 3, poses[3])) <= 1
    visit.press(visit.page.get_by_role("radio", name="3", exact=True), "ArrowDown")
    expect(visit.page.get_by_role("radio", name="4", exact=True)).to_be_checked()
    assert visit.knobs() == pytest.approx(poses[4].tolist(), abs=1e-6)
    expect(visit.by("second")).to_contain_text("second: ")
    order = np.argsort(visit.lengths())
    assert visit.by("second").inner_text().split()[1] == str(order[-2])


def test_knob_moves_by_keyboard(visit: Visit, bundled: Model) -> None:
    lengths, poses = says(bundled, visit.grey("seen"))
    klass = int(np.argmax(lengths))
    before, own = visit.grey("reconstruction"), visit.knobs()
    assert own == pytest.approx(poses[klass].tolist(), abs=1e-6)
    assert apart(before, drawn(bundled, klass, own)) <= 1
    expect(visit.by("reset-all")).to_be_disabled()

    visit.press("knob-2", *["ArrowRight"] * 12)
    turned = visit.knobs()
    assert turned[2] > own[2] + 0.01
    assert turned[:2] + turned[3:] == own[:2] + own[3:]
    assert float(visit.by("knob-number-2").input_value()) == pytest.approx(turned[2], abs=DIGITS)
    assert apart(visit.grey("reconstruction"), before) > 3
    assert apart(visit.grey("reconstruction"), drawn(bundled, klass, turned)) <= 1
    shown = visit.page.locator("#knobs .length b").inner_text()
    assert float(shown) == pytest.approx(math.hypot(*turned), abs=DIGITS)

    visit.by("knob-number-5").fill("0.75")  # beyond the range of the class
    visit.press("knob-number-5", "Enter")
    assert visit.knobs()[5] == 0.75
    assert apart(visit.grey("reconstruction"), drawn(bundled, klass, visit.knobs())) <= 1
    visit.by("knob-number-5").fill("")
    visit.press("knob-number-5", "Enter")
    assert float(visit.by("knob-number-5").input_value()) == 0.75

    visit.click("knob-reset-2")
    assert visit.knobs()[2] == own[2]
    expect(visit.by("knob-reset-2")).to_be_disabled()
    expect(visit.by("knob-reset-5")).to_be_enabled()
    visit.click("reset-all")
    assert visit.knobs() == own
    assert apart(visit.grey("reconstruction"), before) == 0


def test_double_click_resets_a_knob(visit: Visit) -> None:
    own = visit.knobs()
    visit.press("knob-7", "End")
    assert visit.knobs()[7] > own[7]
    visit.by("knob-7").dblclick(position={"x": 20, "y": 5})
    visit.quiet()
    assert visit.knobs() == own


def test_difference_has_two_colours(visit: Visit) -> None:
    visit.press("knob-0", "End")
    seen, picture = visit.grey("seen").astype(int), visit.grey("reconstruction").astype(int)
    shown = visit.pixels("difference").astype(int)
    more = np.unravel_index((picture - seen).argmax(), seen.shape)
    less = np.unravel_index((seen - picture).argmax(), seen.shape)
    assert shown[more][0] > shown[more][2] + 50  # orange: drawn, but not in the input
    assert shown[less][2] > shown[less][0] + 20  # blue: there, not drawn
    same = np.abs(seen - picture) == 0
    assert shown[same][:, :3].max() == 0
    words = visit.by("difference").get_attribute("aria-label")
    assert words is not None
    assert f"{100 * np.abs(seen - picture).mean() / 255:.1f} %" in words


def test_sweep_cell_sets_its_slider(visit: Visit) -> None:
    own = visit.knobs()

    def cell(row: int, column: int) -> Locator:
        return visit.by("sweep").locator(f'[data-row="{row}"][data-column="{column}"]')

    def frame(row: int, column: int) -> NDArray:
        sheet = visit.grey(visit.by("sweep").locator("canvas"))
        return sheet[30 * row + 1 : 30 * row + 29, 30 * column + 1 : 30 * column + 29]

    assert visit.by("sweep").locator(".cell").count() == 16 * 11
    assert apart(frame(3, 5), visit.grey("reconstruction")) <= 1
    visit.click(cell(3, 9))
    assert visit.knobs()[3] == pytest.approx(own[3] + 0.2, abs=1e-9)
    assert apart(visit.grey("reconstruction"), frame(3, 9)) <= 1
    assert apart(frame(3, 9), frame(3, 5)) > 3
    expect(cell(3, 9)).to_have_attribute("aria-selected", "true")
    expect(cell(3, 5)).to_have_attribute("aria-selected", "false")
    visit.press(cell(3, 9), "ArrowRight", "ArrowDown", "Enter")
    assert visit.knobs()[4] == pytest.approx(own[4] + 0.25, abs=1e-9)
    assert visit.knobs()[3] == pytest.approx(own[3] + 0.2, abs=1e-9)
