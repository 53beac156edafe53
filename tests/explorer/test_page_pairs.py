"""Two digits, comparing, another network, in a real browser: the screen shows what the library computes."""

import re

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from playwright.sync_api import Browser, expect

import capsnet
from capsnet.explorer import create_app
from capsnet.models import Model
from capsnet.oscillators import phase_colours
from tests.explorer.browser import Visit, new_context, serving
from tests.explorer.conftest import BUNDLED, OUTLINES, tensor, unwire, wire
from tests.explorer.reading import DIGITS, DOWN, apart, check_bars, columns, drawn, offsets_of, says


def test_pair_is_merged_and_decoded_as_the_library_does(visit: Visit, bundled: Model) -> None:
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
    was_there = (pair["offsets"][0][1], pair["offsets"][1][0]) == (-4, 4)  # the pair is random
    assert was_there or apart(moved, start) > 100
    assert apart(moved, merged()) == 0

    lengths, poses = says(bundled, moved)
    order = np.argsort(lengths)[::-1]
    first, second = (drawn(bundled, k, poses[k]) for k in order[:2])
    of_class = "async (klass) => (await import('/static/js/hues.js')).inkOf(klass, 10)"
    one, other = (np.array(visit.page.evaluate(of_class, int(k))) for k in order[:2])
    assert apart(visit.pixels("pair-first")[..., :3], first[..., None] / 255 * one) <= 2
    assert apart(visit.pixels("pair-second")[..., :3], second[..., None] / 255 * other) <= 2
    both = visit.pixels("pair-both")[..., :3].astype(float)
    free = 1 - np.maximum(first, second) / 255
    ghost = 0.4 * moved * free
    colours = first[..., None] / 255 * one + second[..., None] / 255 * other
    assert apart(both, np.minimum(255, np.minimum(255, colours) + ghost[..., None])) <= 3

    absent = int(order[-3])
    visit.by("decode-absent-class").select_option(str(absent))
    visit.quiet()
    ink = np.array(visit.page.evaluate(of_class, absent))
    assert (
        apart(visit.pixels("decode-absent")[..., :3], drawn(bundled, absent, poses[absent])[..., None] / 255 * ink) <= 2
    )
    expect(visit.page.locator("#pair figcaption", has_text=f"Capsule {absent}, absent")).to_be_visible()


def test_pair_can_be_the_input(visit: Visit, bundled: Model) -> None:
    seen, before = visit.grey("seen"), visit.lengths()
    visit.by("pair-toggle").check()
    visit.quiet()
    assert apart(visit.grey("seen"), visit.grey("pair-seen")) == 0
    assert check_bars(visit, bundled) != before
    visit.press("pair-dx-1", "End")
    assert apart(visit.grey("seen"), visit.grey("pair-seen")) == 0
    check_bars(visit, bundled)
    visit.by("pair-toggle").uncheck()
    visit.quiet()
    assert apart(visit.grey("seen"), seen) == 0
    assert visit.lengths() == before


def test_pair_leaves_the_drawing_unchanged(visit: Visit, bundled: Model) -> None:
    visit.stroke(*DOWN)
    one = visit.grey("seen")
    visit.stroke((0.2, 0.5), (0.8, 0.5))
    paper, seen = visit.grey("canvas"), visit.grey("seen")
    visit.by("pair-toggle").check()
    visit.press("pair-dx-1", "End")
    assert apart(visit.grey("canvas"), paper) > 100
    visit.by("pair-toggle").uncheck()
    visit.quiet()
    assert apart(visit.grey("canvas"), paper) == 0
    assert apart(visit.grey("seen"), seen) == 0
    visit.click("undo")
    assert apart(visit.grey("seen"), one) == 0
    visit.click("redo")
    visit.by("pair-toggle").check()
    visit.quiet()
    visit.click("undo")  # takes the pair away, no stroke
    expect(visit.by("pair-toggle")).not_to_be_checked()
    assert apart(visit.grey("seen"), seen) == 0
    visit.by("pair-toggle").check()
    visit.quiet()
    visit.by("centre").uncheck()
    visit.by("pair-toggle").uncheck()
    visit.quiet()
    assert apart(visit.grey("canvas"), paper) == 0
    assert apart(visit.grey("seen"), seen) > 50  # prepared anew
    visit.by("centre").check()
    visit.by("pair-toggle").check()
    visit.stroke((0.1, 0.1), (0.2, 0.1))  # on the pair: the drawing is two steps back
    expect(visit.by("pair-toggle")).not_to_be_checked()
    visit.click("undo")
    visit.click("undo")
    assert apart(visit.grey("canvas"), paper) == 0
    check_bars(visit, bundled)


def test_pair_leaves_the_example_an_example(visit: Visit) -> None:
    visit.by("pair-toggle").check()
    visit.quiet()
    visit.by("pair-toggle").uncheck()
    visit.quiet()
    expect(visit.page.get_by_text("the first stroke clears it")).to_be_visible()
    visit.stroke(*DOWN)
    expect(visit.by("first")).to_contain_text("first: 1")


def test_pair_can_be_drawn(visit: Visit, bundled: Model) -> None:
    visit.click(visit.page.get_by_role("button", name="Clear the second digit"))
    visit.stroke(*DOWN, on="pair-canvas-1")
    lengths, _ = says(bundled, visit.grey("pair-seen"))
    assert np.argmax(lengths) == 1
    expect(visit.page.locator("#pair figcaption", has_text="Seen: ")).to_contain_text(f"Seen: 1 ({lengths[1]:.2f})")
    visit.click(visit.page.get_by_role("button", name="Use my drawing as the second digit"))  # the example
    ink = visit.grey("pair-seen").astype(int).sum()
    assert ink > 1.3 * visit.grey("seen").astype(int).sum()  # the stroke too
    visit.stroke(*DOWN)
    expect(visit.by("pair-toggle")).not_to_be_checked()


# Compare


def test_compare_shows_what_the_library_computes(visit: Visit, bundled: Model) -> None:
    seen = wire(visit.grey("seen"))
    expected = [visit.ask("classify", seen=seen, iterations=n)["lengths"] for n in (1, 3, 10)]
    assert np.abs(np.diff(expected, axis=0)).max(axis=1).min() > 1e-3  # the columns differ
    for shown, own in zip(columns(visit), expected, strict=True):
        assert shown == pytest.approx(own, abs=DIGITS)
    assert f"{bundled.num_parameters():,} parameters" in visit.texts("#compare .compare-facts")[0]
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


def test_compare_keeps_the_focus(visit: Visit) -> None:
    iterations = visit.by("compare-row").nth(1).get_by_label("Iterations")
    visit.press(iterations, "ArrowDown")
    expect(iterations).to_be_focused()
    expect(iterations).to_have_value("4")
    visit.press(iterations, "ArrowDown")
    expect(iterations).to_have_value("5")
    expect(visit.by("compare-row")).to_have_count(3)


def test_compare_shows_the_same_digit_in_every_frame(visit: Visit) -> None:
    seen = visit.grey("seen")
    visit.by("compare-row").nth(0).get_by_label("Network").select_option("capsnet-multimnist")
    visit.by("compare-row").nth(1).get_by_label("Network").select_option(BUNDLED)
    visit.quiet()
    expected = [
        visit.ask("classify", model="capsnet-multimnist", seen=wire(np.pad(seen, 4)))["lengths"],
        visit.ask("classify", seen=wire(seen))["lengths"],
    ]
    for name in ("capsnet-multimnist", BUNDLED):
        visit.by("model").select_option(name)
        visit.quiet()
        for shown, own in zip(columns(visit), expected, strict=False):
            assert shown == pytest.approx(own, abs=DIGITS)


# Another network


def test_undo_works_in_a_larger_frame(visit: Visit) -> None:
    """The same picture in another frame is no further step, and the example stays one."""
    expect(visit.by("undo")).to_be_disabled()
    example = visit.grey("seen")
    visit.by("model").select_option("capsnet-multimnist")
    visit.quiet()
    assert apart(visit.grey("seen"), np.pad(example, 4)) == 0
    expect(visit.by("undo")).to_be_disabled()
    expect(visit.page.get_by_text("the first stroke clears it")).to_be_visible()
    visit.by("model").select_option(BUNDLED)
    visit.quiet()
    visit.click(visit.by("gallery-item").nth(0))
    first = visit.grey("seen")
    visit.click(visit.by("gallery-item").nth(1))
    second = visit.grey("seen")
    visit.by("model").select_option("capsnet-multimnist")
    visit.quiet()
    assert apart(visit.grey("seen"), np.pad(second, 4)) == 0
    visit.click("undo")
    assert apart(visit.grey("seen"), np.pad(first, 4)) == 0
    visit.click("undo")
    assert apart(visit.grey("seen"), np.pad(example, 4)) == 0
    expect(visit.by("undo")).to_be_disabled()
    visit.click("redo")
    visit.click("redo")
    visit.by("model").select_option(BUNDLED)
    visit.quiet()
    assert apart(visit.grey("seen"), second) == 0


def check_formulas(visit: Visit, model: Model) -> None:
    """The heads of two panels show the formulas that the routing declares."""
    own = model.class_routing
    assert own is not None
    for panel, formula in (("routing", own.formula.coupling), ("classes", own.formula.presence)):
        shown = formula.replace("_", "").replace("^", "").replace("-", "\N{MINUS SIGN}")
        expect(visit.page.locator(f"#{panel} .equation")).to_have_text(shown)
    expect(visit.page.locator("#routing header")).to_contain_text(own.sentence)


def test_network_without_capsules_says_so(visit: Visit, bundled: Model) -> None:
    visit.pardoned += ["status of 404"]  # its data set is not bundled
    visit.by("model").select_option("cnn")
    visit.quiet()
    expect(visit.page.locator("#classes .legend")).to_contain_text("no capsules")
    expect(visit.page.locator("#classes header")).to_contain_text("How sure the network is that each class")
    expect(visit.page.locator("#classes .equation")).to_be_hidden()
    expect(visit.page.locator("#routing .equation")).to_be_hidden()
    expect(visit.page.locator("#knobs")).to_be_hidden()
    expect(visit.page.locator("#sweep")).to_be_hidden()
    expect(visit.page.locator("#routing .routing-note")).to_contain_text("cnn has none")
    expect(visit.by("routing-step")).to_be_hidden()
    own = visit.ask("classify", seen=wire(visit.grey("seen")), model="cnn")["lengths"]
    assert visit.lengths() == pytest.approx(own, abs=DIGITS)
    visit.by("model").select_option(BUNDLED)
    visit.quiet()
    expect(visit.page.locator("#classes header")).to_contain_text("its length says how sure")
    check_formulas(visit, bundled)
    spoken = "c i j is exp(b i j) over the sum over k of exp(b i k)"
    expect(visit.page.locator("#routing .equation")).to_have_attribute("aria-label", spoken)
    expect(visit.by("first")).to_contain_text("first: 7")
    assert len(visit.knobs()) == 16
    expect(visit.by("routing-step")).to_be_visible()


def test_phases_of_a_network_colour_the_pair(chromium: Browser, bundled: Model) -> None:
    torch.manual_seed(0)
    rotating = capsnet.create_model("rotating-small").eval()
    rotating.card = {"data": "multimnist"}
    with serving(create_app({"rotating": rotating, BUNDLED: bundled})) as home:
        visit = Visit(new_context(chromium, home).new_page(), home).open()
        ink = visit.grey("pair-seen")
        with torch.inference_mode():
            phases = rotating(tensor(ink)).phases
        assert phases is not None
        expected = phase_colours(phases[0].flatten(0, 1).movedim(0, -1), torch.from_numpy(ink / 255))
        assert apart(visit.pixels("pair-phases")[..., :3], 255 * expected.numpy()) <= 1
        visit.by("model").select_option(BUNDLED)
        visit.quiet()
        expect(visit.by("pair-phases")).to_be_hidden()
        visit.close()
        visit.context.close()


def test_phases_colour_a_picture_of_two_outlines(chromium: Browser, bundled: Model) -> None:
    """The network of docs/synchrony.md: its data set is generated, so there are pictures to choose from."""
    model = capsnet.load(OUTLINES)
    scenes = capsnet.data.load("outlines:size=24", "test").batch(range(24))
    with serving(create_app({"outlines": model, BUNDLED: bundled})) as home:
        visit = Visit(new_context(chromium, home).new_page(), home).open()

        def coloured(image: torch.Tensor) -> NDArray:
            with torch.inference_mode():
                phases = model(image[None]).phases
            assert phases is not None
            return 255 * phase_colours(phases[0].flatten(0, 1).movedim(0, -1), image[0]).numpy()

        assert apart(visit.pixels("phases")[..., :3], coloured(scenes.images[0])) <= 1  # the first visit's example
        expect(visit.page.locator("#phases")).to_contain_text("Colour is phase. Ink of one colour is in phase")
        item = visit.by("gallery-item").nth(8)
        expect(item).to_have_attribute("aria-label", "a square and a circle")
        visit.click(item)
        shown = visit.pixels("phases")[..., :3].astype(int)
        assert apart(shown, coloured(scenes.images[8])) <= 1
        assert scenes.sources is not None
        owners = capsnet.data.owners(scenes.sources.images)[8].numpy()
        blue = [(shown[..., 2] > shown[..., 1])[owners == k].mean() for k in (1, 2)]
        assert sorted(blue) == [0, 1]  # each outline has a colour of its own, all of it

        expect(visit.page.locator("#pair h2")).to_have_text("Two objects")
        with visit.page.expect_request("**/api/pair/random*") as request:
            visit.by("pair-random").click()
        visit.quiet()
        number = int(request.value.url.partition("number=")[2]) % 2000
        scene = capsnet.data.load("outlines:size=24", "test").batch([number]).images[0]
        assert apart(visit.grey("pair-seen"), 255 * scene[0].numpy()) == 0
        assert apart(visit.pixels("pair-phases")[..., :3], coloured(scene)) <= 1
        visit.click(visit.page.get_by_role("button", name="Clear the first object"))
        assert 0 < visit.grey("pair-seen").sum() < 255 * scene.sum()
        visit.by("model").select_option(BUNDLED)  # has other pairs
        visit.quiet()
        expect(visit.page.locator("#pair h2")).to_have_text("Two digits")
        assert visit.grey("pair-seen").shape == bundled.image_size
        expect(visit.by("pair-both")).to_be_visible()
        expect(visit.page.locator("#phases")).to_be_hidden()
        visit.close()
        visit.context.close()


def test_matrix_capsules_can_be_stepped_through(visit: Visit) -> None:
    """They have no decoder, but a routing over 3 x 3 places."""
    visit.by("model").select_option("matrix-mnist")
    visit.quiet()
    expect(visit.page.locator("#classes header")).to_contain_text("A capsule is a pose and, apart from it,")
    check_formulas(visit, capsnet.load("matrix-mnist"))
    expect(visit.page.locator("#classes .legend")).to_contain_text("no decoder")
    expect(visit.page.locator("#sweep")).to_be_hidden()
    expect(visit.page.locator("#routing .routing-note")).to_be_hidden()
    expect(visit.by("routing-iteration")).to_have_text("EM step 2 of 2")
    expect(visit.by("regions").get_by_role("gridcell")).to_have_count(9)
    visit.by("routing-back").click()
    expect(visit.by("routing-story")).to_contain_text("every child gives each class the same")
    visit.by("regions").get_by_role("gridcell").first.hover()
    expect(visit.page.locator("#routing .spot-words")).to_contain_text("pixels, outlined")
    expect(visit.by("receptive")).to_be_visible()
