"""The page's manners: links, files, copies, keyboard, screen readers, widths, themes, and keeping to itself."""

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from capsnet.data import ArrayDataset
from capsnet.inference import preprocessing_of
from capsnet.models import Model

from .browser import Visit
from .conftest import BUNDLED, as_bytes, unwire
from .reading import DIGITS, DOWN, apart, check_bars, columns, drawn, offsets_of, says

Visits = Callable[..., Visit]


# Links


def test_a_link_brings_back_the_view(visit: Visit, visits: Visits) -> None:
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


def test_a_link_to_a_pair(visit: Visit, visits: Visits) -> None:
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


def test_a_link_to_a_pair_has_the_capsule_and_its_knobs(visit: Visit, visits: Visits) -> None:
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


def test_a_link_in_an_open_page(visit: Visit, visits: Visits) -> None:
    other = visits().open()
    visit.stroke(*DOWN)
    other.page.goto(other.home + visit.link())  # the page stays, only what is behind "#" changes
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
def test_a_damaged_link(visits: Visits, link: str, sentence: str, bundled: Model) -> None:
    visit = visits().open(link)
    expect(visit.by("status")).to_contain_text(sentence)
    check_bars(visit, bundled)
    visit.stroke(*DOWN)
    expect(visit.by("first")).to_contain_text("first: 1")


def test_a_link_cut_short_or_with_nonsense(visit: Visit, visits: Visits, bundled: Model) -> None:
    whole = visit.link()
    cut = visits().open(re.sub(r"x=([\w-]+)", lambda found: "x=" + found[1][:100], whole))
    expect(cut.by("status")).to_contain_text("picture is damaged")
    odd = visits().open(f"{whole}&k=77&p=99:1,x:y,2:0.125&i=50&runs=99&pair=1*2.x&compare=nobody*what*3&toy=zz")
    assert odd.lengths() == visit.lengths()
    assert odd.knobs()[2] == 0.125
    expect(odd.by("routing-iteration")).to_have_text("Iteration 3 of 3")
    check_bars(odd, bundled)


# Files


def png(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def photo(digits: ArrayDataset, n: int) -> bytes:
    """Dark ink on white paper."""
    return png(255 - np.kron(digits.images[n, 0], np.ones((9, 9), np.uint8)))


def test_files(visit: Visit, digits: ArrayDataset, bundled: Model, tmp_path: Path) -> None:
    def send(name: str, content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        visit.by("upload").set_input_files(tmp_path / name)
        visit.quiet()

    visit.pardoned += ["status of 415", "status of 422"]
    good = photo(digits, 3)
    send("digit.png", good)
    expected = as_bytes(preprocessing_of(bundled)(Image.open(io.BytesIO(good))))[:, :, 0]
    seen = visit.grey("seen")
    assert apart(seen, expected) == 0
    check_bars(visit, bundled)
    assert np.argmax(visit.lengths()) == digits.targets[3]
    before = visit.lengths()
    bad = {
        "huge.png": (good + bytes(11_000_000), "at most 10 MB"),
        "corrupt.png": (good[: len(good) // 2], "damaged or incomplete"),
        "header.png": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "picture"),
        "words.txt": (b"this is no picture, but a sentence\n" * 20, "not a picture"),
        "empty.png": (b"", "picture"),
    }
    for name, (content, words) in bad.items():
        visit.page.evaluate("() => { document.getElementById('status').textContent = ''; }")
        send(name, content)
        expect(visit.by("status")).to_contain_text(words)
        assert re.match(r"[A-Z][^{}<>]{10,200}$", visit.by("status").inner_text()), name
        assert apart(visit.grey("seen"), seen) == 0
        assert visit.lengths() == before
    visit.by("centre").uncheck()  # what was uploaded is prepared anew
    visit.quiet()
    assert apart(visit.grey("seen"), seen) > 50


def test_an_undone_file_does_not_come_back(visit: Visit, digits: ArrayDataset) -> None:
    visit.click(visit.by("gallery-item").nth(0))
    picked = visit.grey("seen")
    visit.by("upload").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": photo(digits, 3)})
    visit.quiet()
    uploaded = visit.grey("seen")
    visit.click("undo")
    assert apart(visit.grey("seen"), picked) == 0
    visit.by("centre").uncheck()
    visit.quiet()
    assert apart(visit.grey("seen"), picked) == 0
    visit.click("redo")
    assert apart(visit.grey("seen"), uploaded) == 0
    visit.by("centre").check()  # prepared anew, which is no step of its own
    visit.quiet()
    assert apart(visit.grey("seen"), uploaded) == 0
    visit.click("undo")
    assert apart(visit.grey("seen"), picked) == 0


def test_paste_and_drop(visit: Visit, digits: ArrayDataset, bundled: Model) -> None:
    give = """([kind, numbers, type]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(numbers)], "digit", { type }));
      const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
        : new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
      return document.body.dispatchEvent(event);
    }"""
    for kind, n in (("paste", 1), ("drop", 2)):
        content = photo(digits, n)
        goes_on = visit.page.evaluate(give, [kind, list(content), "image/png"])
        assert goes_on == (kind == "paste")  # else the browser would leave the page for the file
        visit.quiet()
        expected = as_bytes(preprocessing_of(bundled)(Image.open(io.BytesIO(content))))[:, :, 0]
        assert apart(visit.grey("seen"), expected) == 0
    zone = visit.page.locator("#dropzone")
    visit.page.evaluate(give, ["dragover", [1], "image/png"])
    expect(zone).to_be_visible()
    visit.page.evaluate(give, ["drop", [1], "text/plain"])
    expect(zone).to_be_hidden()
    expect(visit.by("status")).to_have_text("That is not a picture.")


# Taking it away


def run(code: str) -> list[str]:
    """What the snippet prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {})
    return said.getvalue().splitlines()


def test_copy_as_python(visit: Visit, bundled: Model) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=visit.home)
    visit.stroke((0.3, 0.2), (0.7, 0.2), (0.4, 0.85))
    visit.press("knob-3", *["ArrowRight"] * 7)
    visit.by("copy-python").click()
    expect(visit.by("status")).to_contain_text("clipboard")
    code = visit.page.evaluate("() => navigator.clipboard.readText()")
    *lines, last = run(code)
    shown = [f"{k}: {length:.3f}" for k, length in enumerate(visit.lengths())]
    assert [line for line in lines if line] == shown
    length = visit.page.locator("#knobs .length b").inner_text()
    klass = int(np.argmax(visit.lengths()))
    ink = drawn(bundled, klass, visit.knobs()).astype(float).sum() / 255
    found = re.fullmatch(r"length now (\S+), ink (\S+)", last)
    assert found
    assert float(found[1]) == pytest.approx(float(length), abs=2 * DIGITS)
    assert float(found[2]) == pytest.approx(ink, abs=0.5)  # of 784 rounded bytes
    visit.link()
    visit.by("snippet").locator("summary").click()
    assert visit.by("snippet").locator("code").inner_text().strip() == code.strip()

    visit.by("copy-link").click()
    expect(visit.by("status")).to_contain_text("link is in the clipboard")
    assert visit.page.evaluate("() => navigator.clipboard.readText()") == visit.page.url
    assert "x=" in visit.page.url


def test_exports(visit: Visit, bundled: Model, tmp_path: Path) -> None:
    visit.press("knob-3", *["ArrowRight"] * 7)
    link = visit.link()
    seen = visit.grey("seen")
    for ending in ("json", "png"):
        with visit.page.expect_download() as download:
            visit.by(f"export-{ending}").click()
        assert download.value.suggested_filename == f"{BUNDLED}-view.{ending}"
        download.value.save_as(tmp_path / f"view.{ending}")
    told = json.loads((tmp_path / "view.json").read_text())
    lengths, poses = says(bundled, seen)
    assert list(told["lengths"].values()) == pytest.approx(lengths, abs=1e-6)
    np.testing.assert_allclose(told["poses"], poses.numpy(), atol=1e-6)
    assert apart(unwire(told["seen"])[:, :, 0], seen) == 0
    assert told["capsule"]["pose"] == pytest.approx(visit.knobs(), abs=1e-9)
    assert told["capsule"]["turned"] == pytest.approx({"3": visit.knobs()[3]}, abs=1e-9)
    assert apart(unwire(told["reconstruction"])[:, :, 0], visit.grey("reconstruction")) == 0
    assert told["link"].endswith(link)
    picture = np.asarray(Image.open(tmp_path / "view.png").convert("RGB"))
    assert picture.shape == (800, 1240, 3)
    assert apart(picture[112 + 3 : 308 : 7, 40 + 3 : 236 : 7, 0], seen) == 0
    assert apart(picture[112 + 3 : 308 : 7, 264 + 3 : 460 : 7, 0], visit.grey("reconstruction")) == 0
    longest = int(np.argmax(lengths))
    row = picture[380 + 38 * longest + 19]
    blue = (row == [0, 114, 178]).all(axis=1).sum()
    assert blue == pytest.approx(450 * lengths[longest], abs=4)  # but for the two marks


# Keeping to itself


def test_nothing_from_elsewhere(visits: Visits) -> None:
    """Each visit is checked at its end; here it is made sure that the check sees something."""
    visit = visits().open()
    assert len(visit.addresses) > 30
    assert visit.complaints == []
    probe = "() => fetch('http://127.0.0.1:9/x').then(() => 'reached', () => 'refused')"
    assert visit.page.evaluate(probe) == "refused"  # by the policy, before anything is sent
    visit.until(lambda: visit.complaints)
    assert visit.net()["refused"] == ["connect-src http://127.0.0.1:9/x"]
    visit.pardoned += ["Content Security Policy"]
    visit.page.evaluate("() => { net.refused = []; }")
    visit.addresses[:] = [url for url in visit.addresses if ":9/x" not in url]
    visit.page.evaluate("() => console.error('a complaint')")
    visit.until(lambda: "a complaint" in visit.complaints)
    visit.complaints.remove("a complaint")


def test_the_server_is_gone_and_comes_back(visit: Visit, bundled: Model) -> None:
    visit.pardoned += ["ERR_"]
    visit.page.route("**/api/**", lambda route: route.abort())
    visit.by("knob-1").focus()
    visit.page.keyboard.press("End")
    expect(visit.by("status")).to_contain_text("does not answer")
    visit.page.unroute("**/api/**")
    visit.press("knob-1", "Home")
    assert apart(visit.grey("reconstruction"), drawn(bundled, 7, visit.knobs())) <= 1


# For everybody


def test_accessibility(visits: Visits) -> None:
    visit = visits(hints=True, bypass_csp=True).open()  # the policy would keep axe out
    visit.page.locator("#share summary").click()
    visit.press("knob-3", "End")
    for scheme in ("light", "dark"):
        for width in (360, 1440):
            visit.page.emulate_media(color_scheme=scheme)
            visit.page.set_viewport_size({"width": width, "height": 900})
            visit.quiet()
            found = Axe().run(visit.page).response
            assert len(found["passes"]) > 25
            grave = [
                (violation["id"], [node["target"] for node in violation["nodes"]][:3])
                for violation in found["violations"]
                if violation["impact"] in ("serious", "critical")
            ]
            assert grave == [], (scheme, width)


def test_no_sideways_scrolling(visits: Visits) -> None:
    visit = visits(hints=True).open()
    visit.page.locator("#share summary").click()
    beyond = """() => {
      scrollTo(1000, 0);
      const wide = [...document.querySelectorAll("main *, header *")].filter((element) => {
        const box = element.getBoundingClientRect();
        const clipped = element.closest("pre, .visually-hidden, .skip, [hidden]");
        return box.width > 1 && !clipped && (box.right > innerWidth + 1 || box.left < -1);
      });
      return [scrollX, document.documentElement.scrollWidth - document.documentElement.clientWidth,
        wide.slice(0, 4).map((element) => element.outerHTML.slice(0, 120))];
    }"""
    for width in (360, 768, 1920):
        visit.page.set_viewport_size({"width": width, "height": 900})
        assert visit.page.evaluate(beyond) == [0, 0, []], width


# What has the focus, and whether one can see that it has: by its own outline, its label's, or a stroke around a vote.
STOP = """() => {
  const at = document.activeElement;
  const outlined = [at, at.closest("label")].filter(Boolean).some((element) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  });
  const target = at.querySelector(".toy-target");
  const name = at.name || at.id || (at.getAttribute("class") ?? at.tagName).split(" ")[0];
  return [at.dataset.testid ?? name, target ? getComputedStyle(target).stroke !== "none" : outlined];
}"""


def test_keyboard_alone(visit: Visit) -> None:
    visit.page.evaluate("() => document.activeElement.blur()")
    stops: list[str] = []
    while len(stops) < 400 and "copy-link" not in stops:
        visit.page.keyboard.press("Tab")
        name, marked = visit.page.evaluate(STOP)
        assert marked, f"nobody sees that {name} has the focus"
        stops.append(name)
    assert stops[:2] == ["skip", "model"]
    wanted = ["canvas", "clear", "brush", "centre", "gallery-item", "klass", "knob-0", "knob-number-15", "cell"]
    wanted += ["routing-back", "region", "map-class-0", "toy-vote", "pair-random", "pair-dx-1", "copy-link"]
    assert [name for name in wanted if name not in stops] == []
    places = [stops.index(name) for name in wanted]
    assert places == sorted(places)
    assert stops.count("klass") == stops.count("cell") == stops.count("region") == 1  # one stop each, arrows within


def test_skipping_to_the_panels(visit: Visit) -> None:
    before = visit.link()
    visit.press(visit.page.locator("#skip"), "Enter")
    expect(visit.page.locator("#main")).to_be_focused()
    assert visit.link() == before


def test_hints_come_once(visits: Visits) -> None:
    visit = visits(hints=True).open()
    hints = visit.by("hints")
    expect(hints).to_be_visible()
    expect(hints.get_by_role("listitem")).to_have_count(3)
    hints.get_by_role("button", name="Watch the routing").click()
    expect(visit.page.locator("#routing-title")).to_be_focused()
    visit.page.keyboard.press("Escape")
    expect(hints).to_be_hidden()
    visit.open()
    expect(hints).to_be_hidden()
    visit.by("help").click()
    expect(hints).to_be_focused()
    expect(visit.by("help")).to_have_attribute("aria-expanded", "true")
    hints.get_by_role("button", name="Got it").click()
    expect(hints).to_be_hidden()
    expect(visit.by("help")).to_be_focused()


def test_the_theme_is_a_choice(visits: Visits) -> None:
    visit = visits(color_scheme="dark").open()
    ground = "() => getComputedStyle(document.body).backgroundColor"

    def bright() -> bool:
        return sum(map(int, re.findall(r"\d+", visit.page.evaluate(ground))[:3])) > 600

    assert not bright()
    dark = visit.pixels("map-type-0")
    visit.by("theme").click()
    assert bright()
    visit.until(lambda: apart(visit.pixels("map-type-0"), dark) > 30)  # canvases follow
    visit.open()
    assert bright()  # and it is remembered
    visit.by("theme").click()
    assert not bright()
    light = visits(color_scheme="light").open()
    assert sum(map(int, re.findall(r"\d+", light.page.evaluate(ground))[:3])) > 600
