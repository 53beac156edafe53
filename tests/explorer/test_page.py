"""The panels in a real browser: what is on the screen is what the library computes."""

import base64
import io
import json
import math
import re
from collections.abc import Callable
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import FilePayload, Locator, Route, expect

from capsnet import routing
from capsnet.data import ArrayDataset
from capsnet.models import Model

from .browser import Visit
from .conftest import SHIPPED, as_bytes, tensor, unwire, wire

Visits = Callable[..., Visit]
DIGITS = 5.1e-4  # the bars show three digits
DOWN = ((0.5, 0.2), (0.5, 0.8))  # a stroke that everybody reads as a 1


def says(model: Model, picture: NDArray) -> tuple[list[float], torch.Tensor]:
    """Lengths and poses (J, D) of a picture (H, W)."""
    with torch.inference_mode():
        output = model(tensor(picture))
    return output.lengths[0].tolist(), output.poses[0]


def drawn(model: Model, klass: int, pose: list[float] | torch.Tensor) -> NDArray:
    """What a capsule with this pose draws: (H, W) bytes."""
    poses = torch.zeros(1, 10, 16)
    poses[0, klass] = torch.as_tensor(pose)
    with torch.inference_mode():
        return as_bytes(model.decode(poses, torch.tensor([klass])))[0, :, :, 0]


def apart(first: NDArray, second: NDArray) -> int:
    """The largest difference of two pictures, in bytes."""
    return int(np.abs(first.astype(int) - second.astype(int)).max())


def check_bars(visit: Visit, model: Model) -> list[float]:
    """The bars show what the network says of the picture that is shown beside the paper; returns them."""
    lengths, _ = says(model, visit.grey("seen"))
    assert visit.lengths() == pytest.approx(lengths, abs=DIGITS)
    return visit.lengths()


# Draw


def test_a_stroke_is_read(visit: Visit, shipped: Model) -> None:
    expect(visit.by("first")).to_contain_text("first: 7")  # the example
    before = check_bars(visit, shipped)
    visit.stroke(*DOWN)
    expect(visit.by("first")).to_contain_text("first: 1")
    after = check_bars(visit, shipped)
    assert after[1] == max(after) > 0.8
    assert after[7] < before[7] - 0.3
    ink = visit.grey("seen")
    assert ink.shape == (28, 28)
    rows = np.flatnonzero(ink.any(axis=1))
    assert (rows[0], rows[-1]) == pytest.approx((4, 23), abs=1)  # MNIST's box of 20 pixels
    assert expect_number(visit.by("first")) == pytest.approx(after[1], abs=0.0051)


def expect_number(place: Locator) -> float:
    found = re.search(r"(\d\.\d+)\s*$", place.inner_text())
    assert found, place.inner_text()
    return float(found[1])


def test_centring_is_a_switch(visit: Visit) -> None:
    across = np.arange(28) + 0.5

    def middle() -> float:
        ink = visit.grey("seen").astype(float).sum(axis=0)
        return float((ink * across).sum() / ink.sum())

    visit.stroke((0.2, 0.2), (0.2, 0.8))
    assert middle() == pytest.approx(14, abs=0.7)
    visit.by("centre").uncheck()
    visit.quiet()
    assert middle() == pytest.approx(0.2 * 28, abs=0.3)
    visit.by("centre").check()
    visit.quiet()
    assert middle() == pytest.approx(14, abs=0.7)


def test_undo_redo_and_clear(visit: Visit) -> None:
    expect(visit.by("undo")).to_be_disabled()
    example = visit.grey("seen")
    visit.stroke(*DOWN)
    one = visit.grey("seen")
    visit.stroke((0.2, 0.5), (0.8, 0.5))
    two = visit.grey("seen")
    assert apart(one, two) > 100
    visit.click("undo")
    assert apart(visit.grey("seen"), one) == 0
    visit.click("redo")
    assert apart(visit.grey("seen"), two) == 0
    expect(visit.by("redo")).to_be_disabled()
    visit.click("clear")
    assert visit.ink() == 0
    assert not visit.grey("seen").any()
    expect(visit.page.get_by_text("Draw here")).to_be_visible()
    visit.press("clear", "Control+z")
    assert apart(visit.grey("seen"), two) == 0
    visit.press("clear", "Control+z", "Control+z")
    assert apart(visit.grey("seen"), example) == 0
    visit.press("clear", "Control+Shift+z")
    assert apart(visit.grey("seen"), one) == 0


def test_brush_and_eraser(visit: Visit) -> None:
    long = 0.6 * 448
    for key, width in (("Home", 12), ("End", 64)):
        visit.click("clear")
        visit.press("brush", key)
        visit.stroke(*DOWN)
        assert visit.ink() == pytest.approx(width * long + math.pi * width**2 / 4, rel=0.02)
    before = visit.ink()
    visit.click("eraser")
    expect(visit.by("eraser")).to_have_attribute("aria-pressed", "true")
    visit.stroke((0.2, 0.5), (0.8, 0.5))
    assert visit.grey("canvas")[224, 224] == 0
    assert before - visit.ink() == pytest.approx(64 * 64, rel=0.03)
    visit.click("eraser")
    visit.stroke((0.45, 0.5), (0.55, 0.5))
    assert visit.grey("canvas")[224, 224] == 255


def test_drawing_by_keyboard(visit: Visit, shipped: Model) -> None:
    visit.press("canvas", "Space", *["Shift+ArrowDown"] * 7, "Space", "ArrowRight")
    paper = visit.grey("canvas")
    assert (paper[112:336, 224] == 255).all()
    assert not paper[112:336, 224 + 40].any()
    expect(visit.page.locator("#draw .cursor")).to_be_visible()
    expect(visit.by("first")).to_contain_text("first: 1")
    check_bars(visit, shipped)


def test_drawing_by_finger(visits: Visits, shipped: Model) -> None:
    visit = visits(has_touch=True, viewport={"width": 360, "height": 740}).open()
    finger = visit.context.new_cdp_session(visit.page)
    points = [(0.5, 0.2 + 0.05 * n) for n in range(13)]
    spots = visit.spots("canvas", points)
    scrolled = visit.page.evaluate("scrollY")
    for n, (x, y) in enumerate(spots):
        kind = "touchMove" if n else "touchStart"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    expect(visit.by("first")).to_contain_text("first: 1")
    visit.quiet()
    check_bars(visit, shipped)
    assert visit.grey("canvas")[224, 224] == 255
    assert visit.page.evaluate("scrollY") == scrolled


def test_the_gallery(visit: Visit, digits: ArrayDataset, shipped: Model) -> None:
    visit.click(visit.by("gallery").get_by_role("tab", name="4", exact=True))
    fourth = int(np.flatnonzero(digits.targets == 4)[3])
    item = visit.by("gallery-item").nth(3)
    expect(item).to_have_attribute("aria-label", "a 4")
    visit.click(item)
    assert apart(visit.grey("seen"), digits.images[fourth, 0]) == 0
    check_bars(visit, shipped)
    visit.click(visit.page.get_by_role("button", name="Next page"))
    visit.click(visit.by("gallery-item").nth(0))
    page = int(np.flatnonzero(digits.targets == 4)[24])
    assert apart(visit.grey("seen"), digits.images[page, 0]) == 0
    visit.click(visit.by("gallery").get_by_role("tab", name="Misread"))
    item = visit.by("gallery-item").nth(0)
    found = re.fullmatch(r"a (\d), read as (\d)", item.get_attribute("aria-label") or "")
    assert found
    visit.press(item, "Enter")
    assert np.argmax(visit.lengths()) == int(found[2]) != int(found[1])


# Who is there, and the knobs


def test_a_capsule_can_be_chosen(visit: Visit, shipped: Model) -> None:
    _, poses = says(shipped, visit.grey("seen"))
    visit.click(visit.by("bar-3"))
    expect(visit.page.locator("#knobs h3")).to_have_text("Capsule “3”")
    assert visit.knobs() == pytest.approx(poses[3].tolist(), abs=1e-6)
    assert apart(visit.grey("reconstruction"), drawn(shipped, 3, poses[3])) <= 1
    visit.press(visit.page.get_by_role("radio", name="3", exact=True), "ArrowDown")
    expect(visit.page.get_by_role("radio", name="4", exact=True)).to_be_checked()
    assert visit.knobs() == pytest.approx(poses[4].tolist(), abs=1e-6)
    expect(visit.by("second")).to_contain_text("second: ")
    order = np.argsort(visit.lengths())
    assert visit.by("second").inner_text().split()[1] == str(order[-2])


def test_a_knob_by_keyboard(visit: Visit, shipped: Model) -> None:
    lengths, poses = says(shipped, visit.grey("seen"))
    klass = int(np.argmax(lengths))
    before, own = visit.grey("reconstruction"), visit.knobs()
    assert own == pytest.approx(poses[klass].tolist(), abs=1e-6)
    assert apart(before, drawn(shipped, klass, own)) <= 1
    expect(visit.by("reset-all")).to_be_disabled()

    visit.press("knob-2", *["ArrowRight"] * 12)
    turned = visit.knobs()
    assert turned[2] > own[2] + 0.01
    assert turned[:2] + turned[3:] == own[:2] + own[3:]
    assert float(visit.by("knob-number-2").input_value()) == pytest.approx(turned[2], abs=DIGITS)
    assert apart(visit.grey("reconstruction"), before) > 3
    assert apart(visit.grey("reconstruction"), drawn(shipped, klass, turned)) <= 1
    shown = visit.page.locator("#knobs .length b").inner_text()
    assert float(shown) == pytest.approx(math.hypot(*turned), abs=DIGITS)

    visit.by("knob-number-5").fill("0.75")  # beyond the range of the class
    visit.press("knob-number-5", "Enter")
    assert visit.knobs()[5] == 0.75
    assert apart(visit.grey("reconstruction"), drawn(shipped, klass, visit.knobs())) <= 1
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


def test_a_double_click_resets(visit: Visit) -> None:
    own = visit.knobs()
    visit.press("knob-7", "End")
    assert visit.knobs()[7] > own[7]
    visit.by("knob-7").dblclick(position={"x": 20, "y": 5})
    visit.quiet()
    assert visit.knobs() == own


def test_the_difference_is_in_two_colours(visit: Visit) -> None:
    visit.press("knob-0", "End")
    seen, picture = visit.grey("seen").astype(int), visit.grey("reconstruction").astype(int)
    shown = visit.pixels("difference").astype(int)
    more = np.unravel_index((picture - seen).argmax(), seen.shape)
    less = np.unravel_index((seen - picture).argmax(), seen.shape)
    assert shown[more][0] > shown[more][2] + 50  # orange: drawn, not there
    assert shown[less][2] > shown[less][0] + 20  # blue: there, not drawn
    same = np.abs(seen - picture) == 0
    assert shown[same][:, :3].max() == 0
    words = visit.by("difference").get_attribute("aria-label")
    assert words is not None
    assert f"{100 * np.abs(seen - picture).mean() / 255:.1f} %" in words


def test_the_sweep_sets_a_slider(visit: Visit) -> None:
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


# Routing


LIT = re.compile(r"\blit\b")


def couplings_of(trace: dict) -> NDArray:
    """(R, H, W, T, J) from the server's answer."""
    raw = np.frombuffer(base64.b64decode(trace["couplings"]), dtype=np.uint8) / 255
    return raw.reshape(trace["iterations"], *trace["grid"], -1)


def test_the_routing_step_by_step(visits: Visits) -> None:
    visit = visits(reduced_motion="reduce").open()
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


def test_the_routing_plays(visit: Visit) -> None:
    end = visit.pixels("map-type-0")
    visit.by("routing-play").click()
    expect(visit.by("routing-play")).to_have_text("Pause")
    expect(visit.by("routing-iteration")).to_have_text("Iteration 1 of 3")
    visit.until(lambda: np.ptp(visit.pixels("map-type-0")[8::16, 8::16, 0]) == 0)
    expect(visit.by("routing-iteration")).to_have_text("Iteration 2 of 3")
    visit.by("routing-play").click()
    expect(visit.by("routing-play")).to_have_text("Play")
    visit.by("routing-step").click()
    expect(visit.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    visit.until(lambda: apart(visit.pixels("map-type-0"), end) == 0)


def test_with_less_motion_the_routing_plays_in_jumps(visits: Visits) -> None:
    visit = visits(reduced_motion="reduce").open()
    start = "(button) => { button.click(); return document.querySelector('[data-testid=map-type-0]').toDataURL(); }"
    last = visit.by("map-type-0").evaluate("(canvas) => canvas.toDataURL()")
    first = visit.by("routing-play").evaluate(start)  # at once, without a frame in between
    assert first != last
    assert np.ptp(visit.pixels("map-type-0")[8::16, 8::16, 0]) == 0
    expect(visit.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    assert visit.by("map-type-0").evaluate("(canvas) => canvas.toDataURL()") == last


def test_pointing_lights_up_the_same_children(visit: Visit) -> None:
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


def decided(shares: NDArray) -> tuple[int, ...]:
    """Where the first of the last axis's shares is farthest before the second."""
    ranked = np.sort(shares, axis=-1)
    gap = ranked[..., -1] - ranked[..., -2]
    return tuple(int(n) for n in np.unravel_index(gap.argmax(), gap.shape))


def loneliest_vote(visit: Visit) -> tuple[int, float, float]:
    """The vote that is farthest from the next one, and where it is on the canvas."""
    answer = visit.ask("votes", seen=wire(visit.grey("seen")), klass=7)
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

TOYS = {
    "dynamic": routing.get("dynamic", iterations=6),
    "fixed-point": routing.get("dynamic", iterations=6, update="set"),
    "attention": routing.get("attention", iterations=6),
    "uniform": routing.get("uniform"),
}


def test_the_toy_computes_what_the_library_does(visit: Visit) -> None:
    votes = np.random.default_rng(3).normal(0, 0.8, (9, 3, 2))
    script = """async ([votes, iterations, kind]) =>
        (await import("/static/js/toy_math.js")).route(votes, { iterations, kind })"""
    for kind, own in TOYS.items():
        shown = visit.page.evaluate(script, [votes.tolist(), 6, kind])
        trace = own(torch.from_numpy(votes)[None], trace=True).trace
        assert trace is not None
        count = len(trace.couplings)  # uniform routing does it once
        np.testing.assert_allclose(np.array(shown["couplings"])[:count], trace.couplings[:, 0], atol=1e-6)
        np.testing.assert_allclose(np.array(shown["poses"])[:count], trace.poses[:, 0], atol=1e-6)
        assert np.ptp(np.array(shown["couplings"])[-1]) > (1e-3 if kind != "uniform" else -1)


def test_the_toy_follows_its_votes(visit: Visit) -> None:
    votes = visit.page.locator("#toy .toy-vote")
    assert votes.count() == 27

    def state() -> NDArray:
        """The votes as their labels say, [I, J, 2]."""
        labels = votes.evaluate_all("(all) => all.map((vote) => vote.getAttribute('aria-label'))")
        found = [re.search(r"x (-?\d\.\d\d), y (-?\d\.\d\d)", label) for label in labels]
        numbers = [[float(one[1]), float(one[2])] for one in found if one]
        return np.array(numbers).reshape(3, 9, 2).transpose(1, 0, 2)  # plane by plane on the page

    def check(iterations: int) -> list[float]:
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


# Two digits


def offsets_of(visit: Visit) -> list[list[int]]:
    return [[int(visit.by(f"pair-{axis}-{n}").input_value()) for axis in ("dy", "dx")] for n in (1, 2)]


def test_two_digits(visit: Visit, shipped: Model) -> None:
    with visit.page.expect_request("**/api/pair/random*") as request:
        visit.by("pair-random").click()
    visit.quiet()
    pair = visit.get(request.value.url.partition("/api/")[2])
    assert offsets_of(visit) == pair["offsets"]

    def merged() -> NDArray:
        made = visit.ask("pair", first=pair["first"], second=pair["second"], offsets=offsets_of(visit))
        return unwire(made["seen"])[:, :, 0]

    start = visit.grey("pair-seen")
    assert apart(start, merged()) == 0
    visit.press("pair-dx-1", "Home")
    visit.press("pair-dy-2", "End")
    assert (offsets_of(visit)[0][1], offsets_of(visit)[1][0]) == (-4, 4)
    moved = visit.grey("pair-seen")
    assert apart(moved, start) > 100
    assert apart(moved, merged()) == 0

    lengths, poses = says(shipped, moved)
    order = np.argsort(lengths)[::-1]
    first, second = (drawn(shipped, k, poses[k]) for k in order[:2])
    blue, orange = np.array([86, 180, 233]), np.array([230, 159, 0])
    assert apart(visit.pixels("pair-first")[..., :3], first[..., None] / 255 * blue) <= 2
    assert apart(visit.pixels("pair-second")[..., :3], second[..., None] / 255 * orange) <= 2
    both = visit.pixels("pair-both")[..., :3].astype(float)
    free = 1 - np.maximum(first, second) / 255
    ghost = 0.4 * moved * free
    colours = first[..., None] / 255 * blue + second[..., None] / 255 * orange
    assert apart(both, np.minimum(255, np.minimum(255, colours) + ghost[..., None])) <= 3

    absent = int(order[-3])
    visit.by("decode-absent-class").select_option(str(absent))
    visit.quiet()
    assert apart(visit.grey("decode-absent"), drawn(shipped, absent, poses[absent])) <= 1
    expect(visit.page.locator("#pair figcaption", has_text=f"Capsule {absent}, which is hardly there")).to_be_visible()


def test_a_pair_can_be_the_input(visit: Visit, shipped: Model) -> None:
    seen, before = visit.grey("seen"), visit.lengths()
    visit.by("pair-toggle").check()
    visit.quiet()
    assert apart(visit.grey("seen"), visit.grey("pair-seen")) == 0
    assert check_bars(visit, shipped) != before
    visit.press("pair-dx-1", "End")
    assert apart(visit.grey("seen"), visit.grey("pair-seen")) == 0
    check_bars(visit, shipped)
    visit.by("pair-toggle").uncheck()
    visit.quiet()
    assert apart(visit.grey("seen"), seen) == 0
    assert visit.lengths() == before


def test_a_pair_can_be_drawn(visit: Visit, shipped: Model) -> None:
    visit.click(visit.page.get_by_role("button", name="Clear the second digit"))
    visit.stroke(*DOWN, on="pair-canvas-1")
    lengths, _ = says(shipped, visit.grey("pair-seen"))
    assert np.argmax(lengths) == 1
    expect(visit.page.locator("#pair figcaption", has_text="Seen: ")).to_contain_text(f"Seen: 1 ({lengths[1]:.2f})")
    visit.click(visit.page.get_by_role("button", name="Use my drawing as the second digit"))  # the example
    assert np.argsort(says(shipped, visit.grey("pair-seen"))[0])[-1] in (1, 7)
    visit.stroke(*DOWN)
    expect(visit.by("pair-toggle")).not_to_be_checked()


# Compare


def columns(visit: Visit) -> list[list[float]]:
    labels = visit.page.locator("#compare .compare-bars").evaluate_all(
        "(all) => all.map((bars) => bars.getAttribute('aria-label'))"
    )
    return [[float(number) for number in re.findall(r" (\d\.\d{3})", label)] for label in labels]


def test_compare(visit: Visit, shipped: Model) -> None:
    seen = wire(visit.grey("seen"))
    expected = [visit.ask("classify", seen=seen, iterations=n)["lengths"] for n in (1, 3, 10)]
    assert np.abs(np.diff(expected, axis=0)).max(axis=1).min() > 1e-3  # the columns differ
    for shown, own in zip(columns(visit), expected, strict=True):
        assert shown == pytest.approx(own, abs=DIGITS)
    assert f"{shipped.num_parameters():,} parameters" in visit.texts("#compare .compare-facts")[0]
    assert re.search(r"\d\.\d ms", visit.texts("#compare .compare-facts")[0])
    expect(visit.by("compare-add")).to_be_hidden()

    visit.click(visit.page.get_by_role("button", name="Remove column 2"))
    expect(visit.by("compare-row")).to_have_count(2)
    for shown, own in zip(columns(visit), expected[::2], strict=True):
        assert shown == pytest.approx(own, abs=DIGITS)
    visit.click("compare-add")
    expect(visit.by("compare-row")).to_have_count(3)
    visit.by("compare-row").nth(2).get_by_label("Routing").select_option("uniform")
    visit.quiet()
    plain = visit.ask("classify", seen=seen, routing="uniform")["lengths"]
    assert columns(visit)[2] == pytest.approx(plain, abs=DIGITS)
    visit.by("compare-row").nth(0).get_by_label("Network").select_option("cnn")
    visit.quiet()
    other = visit.ask("classify", seen=seen, model="cnn")["lengths"]
    assert columns(visit)[0] == pytest.approx(other, abs=DIGITS)

    visit.stroke(*DOWN)
    after = visit.ask("classify", seen=wire(visit.grey("seen")), iterations=10)["lengths"]
    assert columns(visit)[1] == pytest.approx(after, abs=DIGITS)


# Another network


def test_a_network_without_capsules(visit: Visit) -> None:
    visit.pardoned += ["status of 404"]  # its pictures are not in the box
    visit.by("model").select_option("cnn")
    visit.quiet()
    expect(visit.page.locator("#who .legend")).to_contain_text("no capsules")
    expect(visit.page.locator("#knobs .excuse")).to_contain_text("no capsules")
    expect(visit.page.locator("#sweep .excuse")).to_be_visible()
    expect(visit.page.locator("#routing .routing-note")).to_contain_text("nothing to step through")
    expect(visit.by("routing-step")).to_be_hidden()
    own = visit.ask("classify", seen=wire(visit.grey("seen")), model="cnn")["lengths"]
    assert visit.lengths() == pytest.approx(own, abs=DIGITS)
    visit.by("model").select_option(SHIPPED)
    visit.quiet()
    expect(visit.by("first")).to_contain_text("first: 7")
    assert len(visit.knobs()) == 16
    expect(visit.by("routing-step")).to_be_visible()


# Newest wins


def test_the_newest_picture_wins(visit: Visit, shipped: Model) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    visit.page.route("**/api/decode", hold)
    sent = visit.net()["sent"].get("/api/decode", 0)
    visit.by("knob-1").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.until(lambda: held)
    for _ in range(8):
        visit.page.keyboard.press("ArrowRight")
    assert visit.net()["sent"]["/api/decode"] == sent + 1  # the others wait, and only the newest of them is kept
    body = json.dumps({"pictures": [wire(np.full((28, 28), 255, np.uint8))]})
    held[0].fulfill(body=body, content_type="application/json")
    visit.quiet()
    assert visit.net()["sent"]["/api/decode"] == sent + 2
    assert apart(visit.grey("reconstruction"), drawn(shipped, 7, visit.knobs())) <= 1
    visit.page.unroute("**/api/decode")


def test_a_late_answer_is_not_shown(visit: Visit) -> None:
    before, held = visit.grey("reconstruction"), list[Route]()
    visit.page.route("**/api/decode", lambda route: held.append(route))
    visit.by("knob-1").focus()
    visit.page.keyboard.press("End")
    visit.until(lambda: held)
    visit.by("reset-all").click()  # needs no request: the answer has this picture already
    body = json.dumps({"pictures": [wire(np.full((28, 28), 255, np.uint8))]})
    held[0].fulfill(body=body, content_type="application/json")
    visit.quiet()
    assert len(held) == 1
    assert apart(visit.grey("reconstruction"), before) == 0


def test_one_request_at_a_time(visit: Visit, shipped: Model) -> None:
    visit.page.evaluate("() => { net.most = {}; net.sent = {}; }")
    (left, top), *rest = visit.spots("canvas", [(0.3, 0.2), (0.7, 0.2), (0.4, 0.85)])
    visit.page.mouse.move(left, top)
    visit.page.mouse.down()
    for x, y in rest:
        visit.page.mouse.move(x, y, steps=30)
    visit.page.mouse.up()
    visit.quiet()
    check_bars(visit, shipped)
    slider, box = visit.by("knob-4"), None
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    assert box is not None
    visit.page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2, steps=30)
    visit.page.mouse.up()
    visit.quiet()
    net = visit.net()
    assert net["sent"]["/api/see"] >= 2
    assert net["sent"]["/api/decode"] >= 2
    lanes = ("see", "decode", "sweep", "trace", "votes")
    assert [net["most"][f"/api/{name}"] for name in lanes] == [1] * len(lanes)
    assert net["sent"]["/api/sweep"] == net["sent"]["/api/trace"] == 1  # when the stroke has ended, not in its midst
    assert net["most"]["/api/classify"] <= 3  # the bars, then the columns of the comparison
    klass = int(np.argmax(visit.lengths()))
    assert apart(visit.grey("reconstruction"), drawn(shipped, klass, visit.knobs())) <= 1


# Late replies and other races


def test_undo_in_the_midst_of_a_keyboard_stroke(visit: Visit) -> None:
    example = visit.grey("seen")
    visit.press("canvas", "Space", "Shift+ArrowDown", "Shift+ArrowDown", "Control+z")
    assert apart(visit.grey("seen"), example) == 0
    flags = "async () => { const { state } = await import('/static/js/state.js'); "
    flags += "return [state.get('penDown'), state.get('drawing')]; }"
    assert visit.page.evaluate(flags) == [False, False]
    visit.link()  # the address bar follows again


def held_back(visit: Visit, pattern: str) -> list[Route]:
    """Questions that wait until the test lets them go on."""
    held: list[Route] = []
    visit.page.route(pattern, lambda route: held.append(route))
    return held


def let_go(visit: Visit, pattern: str, held: list[Route]) -> None:
    visit.until(lambda: held)
    for route in held:
        route.continue_()
    visit.page.unroute(pattern)
    visit.quiet()


def test_a_stroke_overtakes_a_gallery_picture_and_a_file(visit: Visit, digits: ArrayDataset) -> None:
    for pattern in ("**/api/digit/*", "**/api/upload*"):
        held = held_back(visit, pattern)
        if "digit" in pattern:
            visit.by("gallery-item").nth(3).click()
        else:
            content = io.BytesIO()
            Image.fromarray(digits.images[3, 0]).save(content, "PNG")
            file: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": content.getvalue()}
            visit.by("upload").set_input_files(file)
        visit.until(lambda held=held: held)
        mouse, spots = visit.page.mouse, visit.spots("canvas", DOWN)
        mouse.move(*spots[0])
        mouse.down()
        mouse.move(*spots[1], steps=4)
        mouse.up()
        ink = visit.grey("canvas")
        let_go(visit, pattern, held)
        assert apart(visit.grey("canvas"), ink) == 0


def test_a_cleared_digit_of_a_pair_stays_away(visit: Visit) -> None:
    held = held_back(visit, "**/api/see")
    place = visit.spots("pair-canvas-1", DOWN)
    visit.page.mouse.move(*place[0])
    visit.page.mouse.down()
    visit.page.mouse.move(*place[1], steps=4)
    visit.page.mouse.up()
    visit.until(lambda: held)
    visit.page.get_by_role("button", name="Clear the first digit").click()
    let_go(visit, "**/api/see", held)
    assert not visit.grey("pair-canvas-1").any()


def test_a_failed_random_pair_leaves_the_old_one(visit: Visit) -> None:
    visit.pardoned += ["status of 503"]
    before = visit.grey("pair-seen")
    visit.page.route("**/api/pair/random*", lambda route: route.fulfill(status=503, json={"error": "too busy"}))
    visit.by("pair-random").click()
    expect(visit.page.locator("#status")).to_have_text("Too busy")
    expect(visit.by("pair-random")).to_be_visible()
    assert apart(visit.grey("pair-seen"), before) == 0


def test_measured_ranges_reach_the_open_page(visits: Visits) -> None:
    visit = visits()
    asked: list[int] = []

    def answer(route: Route) -> None:
        whole = route.fetch().json()
        asked.append(1)
        if len(asked) == 1:
            whole["models"][0]["ranges"] = None
        route.fulfill(json=whole)

    visit.page.route("**/api/models", answer)
    visit.open()
    visit.press("knob-0", "ArrowRight")
    turned = visit.knobs()
    unknown = visit.by("knob-1").get_attribute("max")
    visit.until(lambda: visit.by("knob-1").get_attribute("max") != unknown)
    assert visit.knobs() == pytest.approx(turned, abs=1e-6)
    assert len(asked) == 2


def test_a_digit_is_placed_in_the_middle_of_a_larger_frame(visit: Visit, digits: ArrayDataset) -> None:
    script = """async (numbers) => {
        const { placed } = await import("/static/js/pixels.js");
        const picture = { width: 28, height: 28, channels: 1, bytes: Uint8Array.from(numbers) };
        const none = placed(picture, { image_size: [36, 27], channels: 1 });
        return [[...placed(picture, { image_size: [36, 40], channels: 1 }).bytes], none];
    }"""
    whole, none = visit.page.evaluate(script, digits.images[0, 0].ravel().tolist())
    assert none is None
    assert apart(np.array(whole).reshape(36, 40), np.pad(digits.images[0, 0], ((4, 4), (6, 6)))) == 0


def test_columns_of_oddly_named_networks_in_links(visit: Visit) -> None:
    visit.pardoned += ["status of 404"]  # the server has none of that name
    script = """async () => {
        const { state } = await import("/static/js/state.js");
        const { encode } = await import("/static/js/link.js");
        const [first] = state.get("models");
        state.set({ models: [...state.get("models"), { ...first, name: "a,b*c%&" }] });
        state.set({ compare: [{ model: "a,b*c%&", iterations: 2 }, { model: first.name }] });
        return encode();
    }"""
    link = visit.page.evaluate(script)
    column = dict(part.split("=") for part in link.split("&"))["compare"]
    assert unquote(unquote(column.replace(",", " ")).split("*")[0]) == "a,b*c%&"
    visit.page.evaluate("async (link) => (await import('/static/js/link.js')).decode(link)", link)
    models = "async () => (await import('/static/js/state.js')).state.get('compare').map(({ model }) => model)"
    assert visit.page.evaluate(models) == ["a,b*c%&", SHIPPED]
    visit.page.evaluate("async () => (await import('/static/js/state.js')).state.set({ compare: [] })")


def test_one_answer_is_timed_once(visit: Visit) -> None:
    facts = visit.page.locator(".compare-facts").nth(1)
    expect(facts).to_contain_text("one call")
    visit.page.evaluate("async () => (await import('/static/js/state.js')).state.set({ drawing: true })")
    visit.page.evaluate("async () => (await import('/static/js/state.js')).state.set({ drawing: false })")
    visit.quiet()
    expect(facts).to_contain_text("one call")


def test_words_for_a_routing_that_does_not_begin_evenly(visit: Visit) -> None:
    script = """async (bytes) => {
        const { Trace } = await import("/static/js/trace.js");
        const { narrate } = await import("/static/js/routing_words.js");
        const trace = new Trace({
          iterations: 1, grid: [1, 1, 2], couplings: btoa(String.fromCharCode(...bytes)), entropy: [1],
          lengths: [[0.5, 0.25]],
        });
        return narrate(trace, 0, 1, ["a", "b"]);
    }"""
    assert visit.page.evaluate(script, [128, 128, 127, 127]).startswith(
        "At first every child gives each class the same"
    )
    assert "an equal share is 0.50" in visit.page.evaluate(script, [200, 55, 20, 235])


def test_nothing_to_take_away_before_there_is_an_answer(visits: Visits) -> None:
    visit = visits()
    held = held_back(visit, "**/api/classify")
    visit.page.goto(visit.home)
    visit.until(lambda: held)
    for name in ("copy-link", "copy-python", "export-png", "export-json"):
        expect(visit.by(name)).to_be_disabled()
    let_go(visit, "**/api/classify", held)
    expect(visit.by("export-json")).to_be_enabled()
