"""The routing panel and the toy in a real browser: what is on the screen is what the library computes."""

import base64
import re

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from playwright.sync_api import expect

import capsnet
from capsnet import routing
from tests.explorer.browser import Visit
from tests.explorer.conftest import tensor, wire
from tests.explorer.reading import Visits, apart

LIT = re.compile(r"\blit\b")


def couplings_of(trace: dict) -> NDArray:
    """(R, H, W, T, J) from the server's answer."""
    raw = np.frombuffer(base64.b64decode(trace["couplings"]), dtype=np.uint8) / 255
    return raw.reshape(trace["iterations"], *trace["grid"], -1)


def test_routing_panel_shows_the_librarys_trace(visits: Visits) -> None:
    visit = visits().open()
    trace = visit.ask("trace", seen=wire(visit.grey("seen")))
    shares = couplings_of(trace)

    def check(iteration: int) -> None:
        expect(visit.by("routing-iteration")).to_have_text(f"Iteration {iteration + 1} of 3")
        entropy = float(visit.by("entropy").locator("output").inner_text())
        assert entropy == pytest.approx(trace["entropy"][iteration], abs=0.0051)
        shown = [float(text) for text in visit.texts("#routing .map-class .number")]
        assert shown == pytest.approx(trace["lengths"][iteration], abs=0.0051)
        colours = [visit.pixels(f"map-type-{t}")[8::16, 8::16, :3].astype(float).sum(axis=-1) for t in range(8)]
        expected = shares[iteration, ..., 7].transpose(2, 0, 1)  # (T, H, W), the example is a 7
        if iteration == 0:
            assert np.ptp(colours) == 0
        else:
            assert abs(np.corrcoef(np.ravel(colours), np.ravel(expected))[0, 1]) > 0.97

    assert len(visit.texts("#routing .map-class")) == 10
    check(2)
    expect(visit.by("routing-step")).to_be_disabled()
    visit.by("routing-reset").click()
    check(0)
    expect(visit.by("routing-back")).to_be_disabled()
    visit.by("routing-step").click()
    check(1)
    expect(visit.by("routing-story")).to_contain_text("“7”")
    visit.by("routing-step").click()
    check(2)
    visit.by("routing-back").click()
    check(1)

    visit.page.get_by_label("How many iterations to run").select_option("5")
    visit.quiet()
    expect(visit.by("routing-iteration")).to_have_text("Iteration 5 of 5")
    longer = visit.ask("trace", seen=wire(visit.grey("seen")), iterations=5)
    shown = [float(text) for text in visit.texts("#routing .map-class .number")]
    assert shown == pytest.approx(longer["lengths"][4], abs=0.0051)


WATCH_STEPS = """() => {
  const line = document.querySelector('[data-testid=routing-iteration]');
  window.steps = [];
  const note = () => { if (steps.at(-1) !== line.textContent) steps.push(line.textContent); };
  new MutationObserver(note).observe(line, { childList: true, characterData: true, subtree: true });
}"""


def test_play_steps_through_the_iterations(visits: Visits) -> None:
    """Every step is recorded in the page: on a busy machine one could be missed from here."""
    visit = visits(reduced_motion="no-preference").open()
    end = visit.pixels("map-type-0")
    visit.page.evaluate(WATCH_STEPS)
    visit.by("routing-play").click()
    visit.until(lambda: visit.page.evaluate("() => steps.length") == 3)
    expect(visit.by("routing-play")).to_have_text("Play")
    assert visit.page.evaluate("() => steps") == [f"Iteration {n} of 3" for n in (1, 2, 3)]
    visit.until(lambda: apart(visit.pixels("map-type-0"), end) == 0)
    visit.by("routing-reset").click()
    visit.until(lambda: np.ptp(visit.pixels("map-type-0")[8::16, 8::16, 0]) == 0)
    pressed = "(button) => [0, 1].map(() => { button.click(); return button.textContent; })"
    assert visit.by("routing-play").evaluate(pressed) == ["Pause", "Play"]
    visit.by("routing-step").click()
    expect(visit.by("routing-iteration")).to_have_text("Iteration 2 of 3")


def test_play_jumps_with_reduced_motion(visits: Visits) -> None:
    visit = visits().open()
    start = "(button) => { button.click(); return document.querySelector('[data-testid=map-type-0]').toDataURL(); }"
    last = visit.by("map-type-0").evaluate("(canvas) => canvas.toDataURL()")
    first = visit.by("routing-play").evaluate(start)  # at once, without a frame in between
    assert first != last
    assert np.ptp(visit.pixels("map-type-0")[8::16, 8::16, 0]) == 0
    expect(visit.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    assert visit.by("map-type-0").evaluate("(canvas) => canvas.toDataURL()") == last


def test_pointing_highlights_the_same_children_everywhere(visit: Visit) -> None:
    trace = visit.ask("trace", seen=wire(visit.grey("seen")))
    shares = couplings_of(trace)[-1]  # (H, W, T, J)
    cells = visit.by("regions").get_by_role("gridcell")
    lit = visit.by("regions").locator(".lit")
    words = visit.page.locator("#routing .spot-words")
    plain = visit.pixels("map-type-3")

    y, x = decided(shares.mean(axis=2))
    cells.nth(6 * y + x).hover()
    expect(cells.nth(6 * y + x)).to_have_class(LIT)
    assert lit.count() == 1
    expect(words).to_contain_text(f"row {y + 1}, column {x + 1}")
    expect(words).to_contain_text(f"“{shares[y, x].mean(axis=0).argmax()}” {shares[y, x].mean(axis=0).max():.2f}")
    changed = np.argwhere((visit.pixels("map-type-3") != plain).any(axis=-1)) // 16
    assert np.unique(changed, axis=0).tolist() == [[y, x]]

    y, x, kind = decided(shares)
    side = (visit.by(f"map-type-{kind}").bounding_box() or {})["width"] / 6
    visit.by(f"map-type-{kind}").hover(position={"x": (x + 0.5) * side, "y": (y + 0.5) * side})
    expect(cells.nth(6 * y + x)).to_have_class(LIT)
    expect(words).to_contain_text(f"type {kind + 1} ")
    expect(words).to_contain_text(f"“{shares[y, x, kind].argmax()}” {shares[y, x, kind].max():.2f}")

    child, left, top = loneliest_vote(visit)
    visit.by("votes").hover(position={"x": left, "y": top})
    expect(cells.nth(child // 8)).to_have_class(LIT)
    expect(words).to_contain_text(f"type {child % 8 + 1} ")

    visit.page.mouse.move(0, 0)
    expect(lit).to_have_count(0)
    visit.press(cells.nth(0), "ArrowDown", "ArrowRight")
    expect(cells.nth(7)).to_have_class(LIT)


def test_negative_couplings_are_explained(visit: Visit) -> None:
    """A learned prior is added: couplings do not sum to one, and a vote may count against its class."""
    visit.by("model").select_option("efficient-mnist")
    visit.quiet()
    model = capsnet.load("efficient-mnist")
    with torch.inference_mode():
        couplings = model(tensor(visit.grey("seen")), trace=True).trace.couplings[0, 0]  # (I, J)
    expect(visit.by("routing-story")).to_contain_text("do not add up to one")
    against = int((couplings[:, 7] < 0).sum())
    expect(visit.by("routing-story")).to_contain_text(f"The votes of {against} of 16 children count against it")
    expect(visit.by("entropy").locator("output")).to_have_text("0.857")
    scale = visit.page.locator("#routing .map-scale").nth(1)
    expect(scale).to_contain_text(f"{float(couplings.min()):.2f}")
    expect(scale).to_contain_text(f"{float(couplings.max()):.2f}")
    expect(scale).to_contain_text("zero; negative votes")
    expect(visit.page.locator("#routing .votes-words")).to_contain_text("hollow where it counts against it")
    child = int(couplings[:, 7].argmax())
    plain = visit.pixels("map-type-0" if child else "map-type-1")
    visit.by(f"map-type-{child}").hover()
    words = visit.page.locator("#routing .spot-words")
    expect(words).to_contain_text(f"type {child + 1} gives “7” {float(couplings[child, 7]):.2f}")
    expect(words).to_contain_text(re.compile(r"Each sees 27 . 27 pixels, outlined"))
    assert apart(visit.pixels("map-type-0" if child else "map-type-1"), plain) == 0  # only the child's own is marked


def decided(shares: NDArray) -> tuple[int, ...]:
    """Where the first of the last axis's shares is farthest before the second."""
    ranked = np.sort(shares, axis=-1)
    gap = ranked[..., -1] - ranked[..., -2]
    return tuple(int(n) for n in np.unravel_index(gap.argmax(), gap.shape))


def loneliest_vote(visit: Visit) -> tuple[int, float, float]:
    """The vote that is farthest from the next one, and where it is on the canvas."""
    answer = visit.ask("trace", seen=wire(visit.grey("seen")), klass=7)["votes"]
    points = np.frombuffer(base64.b64decode(answer["points"]), dtype="<f4").reshape(-1, 2) - answer["origin"]
    places = np.concatenate([[[0, 0]], np.array(answer["parents"]) - answer["origin"], points])
    low, high = places.min(axis=0), places.max(axis=0)
    reach = 0.56 * max(*(high - low), 1)
    half = (visit.by("votes").bounding_box() or {})["width"] / 2
    shown = half + (points - (low + high) / 2) / reach * half * [1, -1]
    far = np.linalg.norm(shown[:, None] - shown[None], axis=-1) + 1e9 * np.eye(len(shown))
    child = int(far.min(axis=1).argmax())
    return child, float(shown[child, 0]), float(shown[child, 1])


# The toy


def test_toy_offers_every_routing_and_form(visit: Visit) -> None:
    choice = visit.page.locator("#toy select")
    assert choice.locator("option").all_inner_texts() == routing.list_forms()
    votes = toy_votes(visit)
    for name in routing.list_forms():
        choice.select_option(name)
        visit.quiet()
        own = routing.get(name)
        options = {"iterations": 3} if own.iterates else {}
        expected = routing.get(name, **options)(torch.from_numpy(votes)[None]).act[0]
        for text, presence in zip(visit.page.locator("#toy .toy-length").all(), expected.tolist(), strict=True):
            expect(text).to_have_text(re.compile(number_near(presence)))
        most = 10 if own.iterates else 1
        expect(visit.page.locator("#toy .toy-iteration")).to_have_text(f"{min(3, most)} of {most}")
        expect(visit.page.locator("#toy header")).to_contain_text(own.sentence)


def number_near(value: float) -> str:
    """A pattern of the two-digit numbers within one hundredth."""
    return "|".join(f"^{value + step:.2f}$" for step in (-0.005, 0, 0.005))


def toy_votes(visit: Visit) -> NDArray:
    """The votes as their labels say, [I, J, 2]."""
    labels = visit.page.locator("#toy .toy-vote").evaluate_all(
        "(all) => all.map((vote) => vote.getAttribute('aria-label'))"
    )
    numbers = [re.search(r"x (-?\d\.\d\d), y (-?\d\.\d\d)", label) for label in labels]
    pairs = [[float(one[1]), float(one[2])] for one in numbers if one]
    return np.array(pairs).reshape(3, 9, 2).transpose(1, 0, 2)  # plane by plane on the page


def test_toy_link_of_an_earlier_version_is_read(visit: Visit) -> None:
    visit.page.locator("#toy select").select_option("attention")
    link = visit.link()
    assert "toy=attention." in link
    visit.open_anew(link.replace("toy=attention.", "toy=2."))
    expect(visit.page.locator("#toy select")).to_have_value("attention")


def test_toy_parents_follow_dragged_votes(visit: Visit) -> None:
    votes = visit.page.locator("#toy .toy-vote")
    assert votes.count() == 27

    def state() -> NDArray:
        return toy_votes(visit)

    def check(iterations: int) -> list[float]:
        visit.quiet()
        own = routing.get("dynamic", iterations=iterations)(torch.from_numpy(state())[None]).act[0]
        shown = [float(text) for text in visit.texts("#toy .toy-length")]
        assert shown == pytest.approx(own.tolist(), abs=0.0051)
        return shown

    first, before = check(3), state()
    visit.press(votes.nth(0), *["Shift+ArrowLeft"] * 5)
    assert state()[0, 0] == pytest.approx(before[0, 0] + [-1.25, 0], abs=0.011)
    second = check(3)
    assert second[0] < first[0] - 0.02

    votes.nth(12).scroll_into_view_if_needed()  # child 4 of parent B: from where it is to the middle of the plane
    plane = visit.page.locator("#toy .toy-plane").nth(1).bounding_box()
    box = votes.nth(12).locator(".toy-target").bounding_box()
    assert plane is not None
    assert box is not None
    mouse = visit.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    mouse.down()
    mouse.move(plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] / 2, steps=4)
    mouse.up()
    assert state()[3, 1] == pytest.approx([0, 0], abs=0.011)
    assert check(3) != second

    controls = visit.page.locator("#toy .toy-controls")
    controls.get_by_role("button", name="Step").click()
    expect(visit.page.locator("#toy .toy-iteration")).to_have_text("4 of 10")
    now = routing.get("dynamic", iterations=4)(torch.from_numpy(state())[None]).act[0].tolist()
    expect(visit.page.locator("#toy .toy-length").nth(1)).to_have_text(f"{now[1]:.2f}")
    controls.get_by_role("button", name="Reset").click()
    visit.until(lambda: np.array_equal(state(), before))
