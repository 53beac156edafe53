"""Late replies, overtaking strokes and other races in a real browser: the newest wins."""

import io
import json
from urllib.parse import unquote

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import FilePayload, Route, expect

from capsnet.data import ArrayDataset
from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import BUNDLED, wire
from tests.explorer.reading import DOWN, Visits, apart, check_bars, columns, drawn


def test_newest_picture_is_shown(visit: Visit, bundled: Model) -> None:
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
    assert apart(visit.grey("reconstruction"), drawn(bundled, 7, visit.knobs())) <= 1
    visit.page.unroute("**/api/decode")


def test_stale_answer_is_ignored(visit: Visit) -> None:
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


def test_each_lane_has_one_request_in_flight(visit: Visit, bundled: Model) -> None:
    visit.page.evaluate("() => { net.most = {}; net.sent = {}; }")
    (left, top), *rest = visit.spots("canvas", [(0.3, 0.2), (0.7, 0.2), (0.4, 0.85)])
    visit.page.mouse.move(left, top)
    visit.page.mouse.down()
    for x, y in rest:
        visit.page.mouse.move(x, y, steps=30)
    visit.page.mouse.up()
    visit.quiet()
    check_bars(visit, bundled)
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
    lanes = ("see", "decode", "sweep", "trace")
    assert [net["most"][f"/api/{name}"] for name in lanes] == [1] * len(lanes)
    assert net["sent"]["/api/sweep"] == net["sent"]["/api/trace"] == 1  # when the stroke has ended, not in its midst
    assert net["most"]["/api/classify"] <= 3  # the bars, then the columns of the comparison
    klass = int(np.argmax(visit.lengths()))
    assert apart(visit.grey("reconstruction"), drawn(bundled, klass, visit.knobs())) <= 1


# Late replies and other races


def test_undo_during_a_keyboard_stroke_ends_it(visit: Visit) -> None:
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


def draw_meanwhile(visit: Visit) -> NDArray:
    """A stroke while an answer is held back. Returns the canvas."""
    mouse, spots = visit.page.mouse, visit.spots("canvas", DOWN)
    mouse.move(*spots[0])
    mouse.down()
    mouse.move(*spots[1], steps=4)
    mouse.up()
    return visit.grey("canvas")


def test_stroke_replaces_a_late_gallery_picture_or_file(visit: Visit, digits: ArrayDataset) -> None:
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
        ink = draw_meanwhile(visit)
        let_go(visit, pattern, held)
        assert apart(visit.grey("canvas"), ink) == 0


def test_cleared_digit_of_a_pair_stays_cleared(visit: Visit) -> None:
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


def test_failed_random_pair_leaves_the_old_one(visit: Visit) -> None:
    visit.pardoned += ["status of 503"]
    before = visit.grey("pair-seen")
    visit.page.route("**/api/pair/random*", lambda route: route.fulfill(status=503, json={"error": "too busy"}))
    visit.by("pair-random").click()
    expect(visit.page.locator("#status")).to_have_text("Too busy")
    expect(visit.by("pair-random")).to_be_visible()
    assert apart(visit.grey("pair-seen"), before) == 0


def test_measured_ranges_reach_the_open_page(visits: Visits) -> None:
    visit = visits()
    measured: list[bool] = []

    def answer(route: Route) -> None:
        whole = route.fetch().json()
        if not measured:
            whole["models"][0]["ranges"] = None
        route.fulfill(json=whole)

    visit.page.route("**/api/models", answer)
    visit.open()
    visit.press("knob-0", "ArrowRight")
    turned = visit.knobs()
    unknown = visit.by("knob-1").get_attribute("max")
    measured.append(True)
    visit.until(lambda: visit.by("knob-1").get_attribute("max") != unknown)
    assert visit.knobs() == pytest.approx(turned, abs=1e-6)
    asked = visit.net()["sent"]["/api/models"]
    visit.page.wait_for_timeout(2500)
    assert visit.net()["sent"]["/api/models"] == asked  # known: not asked again


def test_digit_is_placed_in_the_middle_of_another_frame(visit: Visit, digits: ArrayDataset) -> None:
    script = """async ([numbers, height, width, channels]) => {
        const { placed } = await import("/static/js/pixels.js");
        const picture = { width: 28, height: 28, channels: 1, bytes: Uint8Array.from(numbers) };
        const made = placed(picture, { image_size: [height, width], channels });
        return made && [...made.bytes];
    }"""
    digit = np.pad(digits.images[0, 0, 4:24, 4:24], 4)  # black all around

    def placed(height: int, width: int, channels: int = 1) -> NDArray | None:
        made = visit.page.evaluate(script, [digit.ravel().tolist(), height, width, channels])
        return None if made is None else np.array(made).reshape(height, width)

    larger, smaller, mixed = placed(36, 40), placed(24, 23), placed(30, 24)
    assert larger is not None
    assert apart(larger, np.pad(digit, ((4, 4), (6, 6)))) == 0
    assert smaller is not None
    assert apart(smaller, digit[2:26, 3:26]) == 0
    assert mixed is not None
    assert apart(mixed, np.pad(digit, ((1, 1), (0, 0)))[:, 2:26]) == 0
    assert placed(12, 40) is None  # no ink is cut off
    assert placed(28, 28, 3) is None


def test_example_does_not_replace_a_first_stroke(visits: Visits) -> None:
    for pattern in ("**/api/models", "**/api/digit/*"):
        visit = visits()
        held = held_back(visit, pattern)
        visit.page.goto(visit.home)
        visit.until(lambda held=held: held)
        ink = draw_meanwhile(visit)
        let_go(visit, pattern, held)
        expect(visit.by("first")).to_contain_text("first: 1")
        visit.quiet()
        assert apart(visit.grey("canvas"), ink) == 0


def test_column_shows_the_newest_answer(visit: Visit) -> None:
    """An answer that had to wait for the picture's frame does not come over a newer one that had not."""
    visit.by("model").select_option("capsnet-multimnist")
    visit.quiet()
    visit.by("compare-row").nth(0).get_by_label("Network").select_option(BUNDLED)
    visit.quiet()
    visit.by("pair-toggle").check()  # its ink does not fit into 28 x 28: the server is asked for the frame
    visit.quiet()
    held = held_back(visit, "**/api/see")
    old = columns(visit)[0]
    visit.by("pair-dx-1").focus()
    visit.page.keyboard.press("End")
    visit.until(lambda: held)
    visit.by("pair-toggle").uncheck()
    visit.until(lambda: columns(visit)[0] != old)
    right = columns(visit)[0]
    let_go(visit, "**/api/see", held)
    assert columns(visit)[0] == right


def test_links_hold_columns_of_oddly_named_networks(visit: Visit) -> None:
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
    assert visit.page.evaluate(models) == ["a,b*c%&", BUNDLED]
    visit.page.evaluate("async () => (await import('/static/js/state.js')).state.set({ compare: [] })")


def test_answer_is_timed_once(visit: Visit) -> None:
    facts = visit.page.locator(".compare-facts").nth(1)
    expect(facts).to_contain_text("one call")
    visit.page.evaluate("async () => (await import('/static/js/state.js')).state.set({ drawing: true })")
    visit.page.evaluate("async () => (await import('/static/js/state.js')).state.set({ drawing: false })")
    visit.quiet()
    expect(facts).to_contain_text("one call")


def test_words_follow_the_declared_normalisation(visit: Visit) -> None:
    script = """async ([bytes, share, routing]) => {
        const { Trace } = await import("/static/js/trace.js");
        const { describeIteration } = await import("/static/js/routing_words.js");
        const trace = new Trace({
          iterations: 1, grid: [1, 1, 2], couplings: btoa(String.fromCharCode(...bytes)), entropy: [1],
          lengths: [[0.5, 0.25]], ...share,
        });
        return describeIteration(trace, routing, 0, 1, "b");
    }"""
    halves = {"offset": 0, "scale": 1, "start": 0.5}
    parents, children, none = ({"normalised": over} for over in ("parents", "children", "none"))
    words = visit.page.evaluate(script, [[128, 128, 127, 127], halves, parents])
    assert words.startswith("At first every child gives each class the same")
    words = visit.page.evaluate(script, [[128, 128, 127, 127], halves, children])
    assert words.startswith("At first each class attends to every child the same")
    assert "an equal share is 0.50" in visit.page.evaluate(script, [[200, 55, 20, 235], halves, parents])
    words = visit.page.evaluate(script, [[200, 55, 20, 235], {"offset": -0.5, "scale": 1, "start": None}, none])
    assert "share" not in words
    assert "The votes of 1 of 2 children count against it" in words


def test_exports_are_disabled_before_the_first_answer(visits: Visits) -> None:
    visit = visits()
    held = held_back(visit, "**/api/classify")
    visit.page.goto(visit.home)
    visit.until(lambda: held)
    for name in ("copy-link", "copy-python", "export-png", "export-json"):
        expect(visit.by(name)).to_be_disabled()
    let_go(visit, "**/api/classify", held)
    expect(visit.by("export-json")).to_be_enabled()
