"""The whole story by keyboard, against what the library computes: for the page with a server and for that without."""

import re

import numpy as np
import torch
from playwright.sync_api import expect

from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import BUNDLED, tensor
from tests.explorer.reading import apart, check_bars

TITLES = ("Same parts", "Draw", "Turn it", "The parts vote", "Two digits", "Your turn")
LIT = "() => [...document.querySelectorAll('main > .panel')].filter((p) => !p.hidden && !p.inert).map((p) => p.id)"


def step(visit: Visit, number: int) -> None:
    expect(visit.page.locator(".story-count")).to_have_text(f"{number} of 6")
    expect(visit.page.locator(".story-title")).to_contain_text(TITLES[number - 1])
    visit.quiet()


def walk(visit: Visit, bundled: Model, of_pairs: str) -> None:
    """From the first step to free play and back by a link; ``of_pairs`` is the network of the fifth step."""
    seen = visit.grey("seen")
    visit.press("story-start", "Enter")
    step(visit, 1)
    expect(visit.by("story-next")).to_be_focused()
    assert visit.page.evaluate(LIT) == ["scramble"]
    whole, moved = visit.grey("scramble-whole"), visit.grey("scramble-moved")
    assert apart(np.roll(whole, (14, 14), axis=(0, 1)), moved) == 0  # quarters exchanged crosswise
    expect(visit.by("story-live")).to_contain_text("Of the first 12 test pictures")
    with torch.inference_mode():
        lengths = bundled(tensor(moved)).lengths[0]
    own = visit.by("scramble-answers").get_by_role("listitem").last
    expect(own).to_contain_text(f"{int(lengths.argmax())} {float(lengths.max()):.2f}")

    visit.page.keyboard.press("ArrowRight")
    step(visit, 2)
    assert visit.page.evaluate(LIT) == ["draw", "classes"]
    visit.by("story-act").click()
    expect(visit.by("first")).to_contain_text("first: 4")
    visit.quiet()
    check_bars(visit, bundled)
    four = visit.grey("seen")
    assert apart(four, seen) > 100
    visit.press("story-next", "PageDown")
    step(visit, 3)
    assert visit.page.evaluate(LIT) == ["turn"]
    visit.click("story-act")
    expect(visit.by("turn-value")).to_have_text("+20°")  # at once: nothing moves
    expect(visit.by("turn-words")).to_contain_text("its direction")
    visit.page.keyboard.press("ArrowRight")
    step(visit, 4)
    for word in ("child", "vote", "parent", "coupling"):
        expect(visit.page.locator(".story-words dfn", has_text=re.compile(f"^{word}$"))).to_be_visible()
    expect(visit.by("story-live")).to_contain_text("entropy 0.9")
    visit.page.keyboard.press("ArrowRight")
    step(visit, 5)
    expect(visit.by("model")).to_have_value(of_pairs)
    assert visit.page.evaluate(LIT) == ["pair"]
    visit.page.keyboard.press("ArrowLeft")
    step(visit, 4)
    expect(visit.by("model")).to_have_value(BUNDLED)
    link = visit.link()
    assert "story=4" in link
    visit.press("story-next", "ArrowRight", "ArrowRight")
    step(visit, 6)
    assert len(visit.page.evaluate(LIT)) >= 9
    visit.page.keyboard.press("Escape")
    expect(visit.by("story")).to_be_hidden()
    expect(visit.by("story-start")).to_be_focused()
    assert len(visit.page.evaluate(LIT)) >= 9
    assert apart(visit.grey("seen"), four) == 0  # free play goes on with what was drawn
    visit.link()  # the address is up to date
    visit.page.goto(visit.home + link)
    step(visit, 4)
