"""The scene of parts: drawn as the data set draws it, moved by mouse and keys, read by both networks."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from playwright.sync_api import Browser, expect

import capsnet
from capsnet.data.generated._shapes_draw import PRIMITIVES, draw
from capsnet.data.generated._shapes_scenes import stroke_width
from capsnet.data.generated._shapes_wholes import ARRANGEMENTS
from capsnet.explorer import create_app
from capsnet.models import Model
from tests.explorer.browser import Visit, new_context, serving
from tests.explorer.conftest import tensor
from tests.explorer.reading import apart

NAMES = ("capsnet-shapes", "capsnet-shapes-cnn")
DRAWN = """async ([whole, moves]) => {
  const { assemble, drawParts } = await import("/static/js/shapes.js");
  const parts = assemble(whole, 40);
  moves.forEach(([x, y, angle], n) => { parts[n].x += x; parts[n].y += y; parts[n].angle += angle; });
  return [...drawParts(parts, 40).bytes];
}"""


@pytest.fixture(scope="module")
def networks() -> dict[str, Model]:
    return {name: capsnet.load(name) for name in NAMES}


@pytest.fixture
def visit(chromium: Browser, networks: dict[str, Model]) -> Iterator[Visit]:
    with serving(create_app(networks)) as address:
        context = new_context(chromium, address)
        visit = Visit(context.new_page(), address).open()
        yield visit
        visit.close()
        context.close()


def expected(whole: str, moves: Sequence[Sequence[float]]) -> NDArray:
    """The same parts by the library: (40, 40) bytes."""
    parts, size = ARRANGEMENTS[whole], 0.58 * 40
    rows = [(19.5 + size * p.x, 19.5 + size * p.y, p.angle, size * p.width, p.aspect) for p in parts]
    poses = np.array(rows)
    poses[: len(moves), :3] += np.array(moves).reshape(-1, 3)
    kinds, filled = np.array([p.kind for p in parts]), np.array([p.filled for p in parts])
    return np.rint(255 * draw(kinds, poses, filled, 40, stroke_width(40)).max(axis=0)).astype(np.uint8)


def test_parts_are_dragged_turned_and_read(visit: Visit, networks: dict[str, Model]) -> None:
    assert set(PRIMITIVES) == {"rectangle", "triangle", "ellipse", "half"}
    for whole in ARRANGEMENTS:
        for moves in ([], [[1.5, -2, 0.3], [-4, 3, 2], [0.2, 0, -1]]):
            page = np.array(visit.page.evaluate(DRAWN, [whole, moves]), np.uint8).reshape(40, 40)
            assert apart(page, expected(whole, moves)) <= 1

    visit.page.locator("#scene").scroll_into_view_if_needed()
    words = visit.by("scene-words")
    visit.by("scene-boat").click()
    expect(words).to_contain_text("All parts of the boat are in place.")

    def check() -> None:
        for name, model in networks.items():
            with torch.inference_mode():
                lengths = model(tensor(visit.grey("scene"))).lengths[0].tolist()
            shown = visit.by(f"scene-says-{name}").locator(".value").all_inner_texts()
            assert [float(value) for value in shown] == pytest.approx(lengths, abs=0.0051)

    visit.quiet()
    assert apart(visit.grey("scene"), expected("boat", [])) <= 1
    check()
    expect(words).to_contain_text("capsnet-shapes: boat 0.")

    sail = ARRANGEMENTS["boat"][4]
    place = [(19.5 + 0.58 * 40 * value + 0.5) / 40 for value in (sail.x, sail.y)]
    start, stop = visit.spots("scene", [(place[0], place[1]), (place[0] - 0.4, place[1] + 0.1)])
    visit.page.mouse.move(*start)
    visit.page.mouse.down()
    visit.page.mouse.move(*stop, steps=5)
    visit.page.mouse.up()
    visit.quiet()
    expect(words).to_contain_text("Not in place: sail.")
    assert apart(visit.grey("scene"), expected("boat", [[0, 0, 0]] * 4 + [[-16, 4, 0]])) <= 40  # pointers are rounded
    check()

    visit.press("scene-part-3", "ArrowLeft", "ArrowLeft", "ArrowLeft", "Shift+ArrowRight")
    expect(words).to_contain_text("Not in place: mast, sail.")
    visit.by("scene-turn").fill("90")
    visit.quiet()
    check()
    link = visit.link()
    assert "scene=boat" in link
    before = visit.grey("scene")
    visit.open(link)
    visit.page.locator("#scene").scroll_into_view_if_needed()
    expect(words).to_contain_text("Not in place: mast, sail.")
    assert np.abs(visit.grey("scene").astype(int) - before).mean() < 1  # tenths of a pixel
    visit.by("scene-scramble").click()
    expect(words).to_contain_text("Not in place: bow")
    visit.click("scene-use")
    assert apart(visit.grey("seen"), visit.grey("scene")) == 0
    visit.by("scene-face").click()
    expect(words).to_contain_text("All parts of the face are in place.")
