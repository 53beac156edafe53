"""Nothing on the page misleads: undo, blank pictures, broken links, networks of other things."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

import capsnet
from capsnet.explorer import create_app
from capsnet.models import Model
from tests.explorer.browser import Visit, new_context, serving
from tests.explorer.conftest import BUNDLED
from tests.explorer.reading import DOWN, Visits, apart, drawn, says


def test_ctrl_z_takes_back_the_last_change_of_any_panel(visit: Visit, bundled: Model) -> None:
    visit.stroke((0.3, 0.2), (0.7, 0.2), (0.4, 0.85))
    paper, own = visit.grey("canvas"), visit.knobs()
    visit.press("knob-2", *["ArrowRight"] * 5)
    turned = visit.knobs()
    visit.click(visit.by("bar-3"))
    visit.press("knob-4", "End")
    visit.click(visit.by("bar-7"))
    assert visit.knobs() == turned  # they survive a look at another capsule
    vote = visit.page.locator("#toy .toy-vote").nth(2)
    place = vote.get_attribute("aria-label")
    visit.press(vote, "ArrowUp")
    pair = visit.grey("pair-seen")
    visit.stroke(*DOWN, on="pair-canvas-1")
    assert apart(visit.grey("pair-seen"), pair) > 100
    assert vote.get_attribute("aria-label") != place

    visit.press("clear", "Control+z")
    assert apart(visit.grey("pair-seen"), pair) == 0
    visit.press("clear", "Control+z")
    assert vote.get_attribute("aria-label") == place
    visit.press("clear", "Control+z")
    expect(visit.page.locator("#knobs h3")).to_have_text("Capsule “3”")
    visit.click(visit.by("bar-7"))
    visit.press("clear", "Control+z")
    assert visit.knobs() == own
    assert apart(visit.grey("canvas"), paper) == 0  # never wiped
    visit.press("clear", "Control+y")
    assert visit.knobs() == turned
    visit.press("clear", "Control+z", "Control+z")  # the knob, then the stroke
    assert apart(visit.grey("canvas"), paper) > 100
    visit.click("redo")
    assert apart(visit.grey("canvas"), paper) == 0
    assert apart(visit.grey("reconstruction"), drawn(bundled, 7, visit.knobs())) <= 1


def test_tap_leaves_ink_and_a_blank_picture_has_no_answer(visit: Visit) -> None:
    visit.click("clear")
    expect(visit.by("first")).to_have_text("nothing drawn yet")
    assert visit.lengths() == [0] * 10
    for panel in ("knobs", "sweep", "compare"):
        expect(visit.page.locator(f"#{panel} .idle-note")).to_be_visible()
    assert not visit.pixels("reconstruction")[..., :3].any()
    expect(visit.page.locator("#routing .routing-note")).to_contain_text("Draw something first")
    expect(visit.page.locator("#compare .compare-verdict").first).to_have_text("nothing drawn yet")
    visit.link()  # the address bar holds the blank picture
    x, y = visit.spots("canvas", [(0.5, 0.5)])[0]
    visit.page.mouse.click(x, y)
    visit.quiet()
    assert visit.ink() == pytest.approx(np.pi * 17**2, rel=0.03)
    assert visit.grey("seen").any()
    expect(visit.by("first")).not_to_have_text("nothing drawn yet")
    expect(visit.page.locator("#knobs .idle-note")).to_be_hidden()

    visit.click(visit.page.get_by_role("button", name="Clear the first digit"))
    visit.click(visit.page.get_by_role("button", name="Clear the second digit"))
    expect(visit.page.locator("#pair figcaption", has_text="Nothing drawn yet")).to_be_visible()
    visit.press("pair-canvas-2", "Space", *["Shift+ArrowDown"] * 7, "Space")  # by keyboard
    expect(visit.page.locator("#pair figcaption", has_text="Seen: 1")).to_be_visible()


def test_first_pair_is_read(visit: Visit, bundled: Model) -> None:
    words = visit.page.locator("#pair figcaption", has_text="Seen: ").inner_text()
    pair = visit.get(f"pair/random?model={BUNDLED}")
    lengths = says(bundled, visit.grey("pair-seen"))[0]
    assert set(np.argsort(lengths)[-2:]) == set(pair["labels"])
    assert {int(digit) for digit in re.findall(r"(\d) \(", words)} == set(pair["labels"])
    visit.click(visit.page.get_by_role("button", name="Switch to capsnet-multimnist"))
    words = visit.page.locator("#pair figcaption", has_text="Seen: ").inner_text()
    assert {int(digit) for digit in re.findall(r"(\d) \(", words)} == set(pair["labels"])


def test_bad_links_and_odd_values_are_explained(visits: Visits) -> None:
    visit = visits().open("#pair=zzzz")
    expect(visit.by("status")).to_contain_text("pair is damaged")
    whole = visit.link()
    visit.page.goto(visit.home + whole + "&compare=%25E0%25A4*x,%E0%A4&toy=%E0%A4%A&p=2:1e99,3:0.5")
    expect(visit.by("status")).to_contain_text("knobs beyond ±1000")
    visit.quiet()
    assert visit.knobs()[3] == 0.5
    expect(visit.by("compare-row")).to_have_count(3)
    visit.by("knob-number-5").fill("123456")
    visit.press("knob-number-5", "Enter")
    expect(visit.by("status")).to_contain_text("1000 to 1000")
    assert visit.knobs()[5] == 1000
    visit.click("knob-reset-5")
    assert float(visit.by("knob-5").get_attribute("max") or 0) < 2
    visit.by("knob-number-6").fill("-0.0001")
    visit.press("knob-number-6", "Enter")
    visit.by("canvas").focus()
    assert visit.by("knob-number-6").input_value() == "0.000"
    visit.press("canvas", "?")
    expect(visit.by("hints")).to_be_visible()
    visit.page.keyboard.press("?")
    expect(visit.by("hints")).to_be_hidden()

    visit.by("model").select_option("efficient-mnist")
    visit.link()
    expect(visit.by("routing-step")).to_be_hidden()  # one step: nothing to play
    expect(visit.by("routing-play")).to_be_hidden()
    visit.page.go_back()
    expect(visit.by("model")).to_have_value(BUNDLED)
    visit.quiet()
    visit.page.go_forward()
    expect(visit.by("model")).to_have_value("efficient-mnist")
    visit.quiet()


CLIPPED = """() => [...document.querySelectorAll("#knobs label, #sweep .name, #compare select, .compare-bars .name")]
  .filter((element) => element.checkVisibility() && element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.textContent.trim() || element.value)"""
BROKEN = """() => [...document.querySelectorAll("#knobs label")].filter((element) => {
  const words = element.textContent.trim().split(/\\s+/).length;
  return element.getClientRects().length && element.offsetHeight > 17 * words;
}).map((element) => element.textContent)"""


def test_labels_are_whole(visit: Visit) -> None:
    visit.by("compare-row").nth(0).get_by_label("Network").select_option("efficient-mnist")
    visit.quiet()
    for width in (360, 768, 1240, 1440):
        visit.page.set_viewport_size({"width": width, "height": 900})
        assert visit.page.evaluate(CLIPPED) == [], width
        assert visit.page.evaluate(BROKEN) == [], width
        box = visit.by("compare-row").nth(0).get_by_label("Routing").bounding_box()
        assert box is not None
        assert box["width"] > 125, width  # "self-attention" and the arrow


NAMES = ("an extraordinarily long name of a class", "blue", "Donaudampfschifffahrtsgesellschaft")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of colour pictures in three classes."""
    rng = np.random.default_rng(0)
    for name, colour in zip(NAMES, ((200, 40, 40), (40, 40, 200), (40, 180, 60)), strict=True):
        for part in ("train", "test"):
            (tmp_path / part / name).mkdir(parents=True)
            for n in range(4):
                noise = rng.integers(0, 40, (20, 24, 3))
                Image.fromarray((noise + colour).astype(np.uint8)).save(tmp_path / part / name / f"{n}.png")
    return tmp_path


def test_own_colour_network_has_its_own_pictures_and_words(chromium: Browser, photos: Path) -> None:
    spec = f"folder:{photos},size=24"
    frame = capsnet.data.load(spec, "test").image_size
    model = capsnet.create_model(
        "capsnet",
        in_channels=3,
        image_size=frame,
        num_classes=3,
        conv_channels=4,
        primary_types=2,
        decoder_widths=(8, 9),
    )
    model.class_names = tuple(capsnet.data.load(spec, "test").class_names)
    model.card = {"data": spec}
    with serving(create_app({"mine": model}, data=spec)) as home:
        visit = Visit(new_context(chromium, home).new_page(), home).open()
        seen = visit.pixels("seen")[..., :3].astype(int)
        assert seen.any()
        assert len(np.unique(seen.reshape(-1, 3).argmax(axis=1))) <= 2  # a picture of one colour, from the folder
        text = visit.page.locator("body").inner_text()
        assert "digit" not in text.replace("Which digit", "")
        assert "MNIST" not in text
        expect(visit.by("centre")).to_be_hidden()
        expect(visit.page.locator("#classes h2")).to_have_text("Which class?")
        visit.click("clear")
        visit.by("colour").fill("#ff0000")
        visit.stroke(*DOWN)
        red = visit.pixels("seen")[..., :3].astype(int)
        assert red[..., 0].max() > 200
        assert red[..., 1:].max() < 60
        for width in (360, 768, 1440):
            visit.page.set_viewport_size({"width": width, "height": 900})
            assert visit.page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        visit.close()
