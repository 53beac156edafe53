"""The page without a server, in a real Chromium, beside the server's answers."""

import base64
import gzip
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect

from capsnet.data import ArrayDataset
from capsnet.explorer import _graphs, write_static
from capsnet.explorer._onnx_web import runtime_files
from capsnet.models import Model
from tests.explorer.browser import Visit, new_context, serving_folder
from tests.explorer.conftest import BUNDLED, TestClient, png, wire
from tests.explorer.reading import DOWN, apart, check_bars, drawn, says
from tests.explorer.story_walk import walk

SAME = 1e-4
LARGEST = 12e6  # bytes, compressed
PACKED = {"points": ("<f4", SAME), "contributions": ("<i2", 4)}  # type and tolerance
ROUTINGS = ("dynamic", "uniform")
MOST = 5  # iterations
ASK = "async ([home, path, body]) => (await import(`${home}static/js/backend.js`)).ask(path, body)"


def need_runtime() -> None:
    """Skip where npm cannot fetch the runtime, except in CI, where that fails."""
    try:
        runtime_files()
    except ValueError as error:
        required = os.environ.get("CI") or os.environ.get("CAPSNET_REQUIRE_BROWSER") == "1"
        (pytest.fail if required else pytest.skip)(str(error))


@pytest.fixture(scope="module")
def folder(bundled: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small page, written once for all processes of the tests."""
    need_runtime()
    own = tmp_path_factory.getbasetemp()
    place = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "static-page"
    with FileLock(f"{place}.lock"):
        if not place.exists():
            said: list[str] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_graphs, "MOST", MOST)  # fewer take less time to export
                write_static(place, {BUNDLED: bundled}, routings=ROUTINGS, say=said.append)
            if not sys.stderr.isatty():  # on a terminal there is a bar instead
                assert said == ["routings ...", f"{BUNDLED} ...", "pictures ..."]
    return place


@pytest.fixture(scope="module")
def site(chromium: Browser, folder: Path) -> Iterator[tuple[Page, str]]:
    with serving_folder(folder) as home:
        context = new_context(chromium, home)
        yield context.new_page(), home
        context.close()


@pytest.fixture
def page(site: tuple[Page, str]) -> Iterator[Visit]:
    visit = Visit(*site)
    yield visit.open()
    visit.close()
    visit.reset()


def unpacked(text: str, kind: str = "u1") -> NDArray:
    return np.frombuffer(base64.b64decode(text), dtype=kind).astype(float)


def check_same(found: Any, expected: Any, where: str) -> None:
    """The same answer: numbers to 1e-4, bytes to one level."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key in expected.keys() - {"milliseconds"}:
            check_same(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, str):  # packed numbers: one level of a byte, or as much of an int16
        kind, near = PACKED.get(where.rpartition(".")[2], ("u1", 1))
        np.testing.assert_allclose(unpacked(found, kind), unpacked(expected, kind), atol=near, err_msg=where)
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        assert len(found) == len(expected), where
        for n, pair in enumerate(zip(found, expected, strict=True)):
            check_same(*pair, f"{where}.{n}")
    elif isinstance(expected, float | list) and expected != []:
        np.testing.assert_allclose(np.array(found, float), np.array(expected, float), atol=SAME, err_msg=where)
    else:
        assert found == expected, where


def test_answers_are_the_servers(page: Visit, client: TestClient, bundled: Model, digits: ArrayDataset) -> None:
    digit = digits.batch(np.array([3])).images[0, 0].mul(255).round().byte().numpy()
    _, poses = says(bundled, digit)
    seen, pose, blot = wire(digit), poses[0].tolist(), np.zeros((224, 224), np.uint8)
    blot[40:180, 100:120] = 255
    votes = [[[0.6, 0.85], [-0.11, -0.64]], [[0.82, 0.73], [0.38, -0.42]], [[0.5, -0.42], [-0.88, 0.63]]]
    questions: list[tuple[str, dict[str, Any]]] = [
        ("classify", {"seen": seen}),
        ("classify", {"seen": seen, "iterations": MOST}),
        ("classify", {"seen": seen, "routing": "uniform"}),
        ("decode", {"poses": [pose, pose], "classes": [0, 4]}),
        ("sweep", {"pose": pose, "class": 0}),
        ("trace", {"seen": seen, "class": 0}),
        ("trace", {"seen": seen, "class": 8, "iterations": 4}),
        ("see", {"image": wire(blot), "centre": True}),
        ("see", {"image": wire(blot), "centre": False}),
        ("pair", {"first": seen, "second": seen, "offsets": [[-4, 3], [12, -12]]}),
    ]
    for what, body in questions:
        found = page.page.evaluate(ASK, [page.home, f"/api/{what}", {"model": BUNDLED, **body}])
        expected = client.post(f"/api/{what}", json={"model": BUNDLED, **body}).json()
        check_same(found, expected, what)
    toy = {"votes": votes, "routing": "dynamic", "iterations": MOST}
    found = page.page.evaluate(ASK, [page.home, "/api/toy/route", toy])
    check_same(found, client.post("/api/toy/route", json=toy).json(), "toy")
    for path in (
        "gallery?kind=7&page=0",
        "gallery?kind=hard",
        "gallery?kind=wrong",
        "digit/0?",
        "pair/random?number=7",
    ):
        whole = f"/api/{path}&model={BUNDLED}"
        expected = client.get(whole).json()
        pages = {"pages": 1} if path.startswith("gallery") else {}  # the first page of each kind is put beside the page
        check_same(page.page.evaluate(ASK, [page.home, whole, None]), expected | pages, path)


def test_page_works_as_with_a_server(page: Visit, bundled: Model, digits: ArrayDataset) -> None:
    check_bars(page, bundled)
    page.stroke(*DOWN)
    assert np.argmax(check_bars(page, bundled)) == 1
    _, poses = says(bundled, page.grey("seen"))
    page.press("knob-3", "End")
    turned = poses[1].clone()
    turned[3] = page.knobs()[3]
    assert turned[3] != poses[1][3]
    assert apart(page.grey("reconstruction"), drawn(bundled, 1, turned)) <= 1
    link = page.link()
    page.by("upload").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": png(big(digits))})
    page.quiet()
    assert np.argmax(check_bars(page, bundled)) == 7
    page.by("upload").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"no picture"})
    expect(page.by("status")).to_contain_text("not a picture")
    assert np.argmax(page.lengths()) == 7
    page.open(link)
    assert np.argmax(check_bars(page, bundled)) == 1
    assert page.knobs()[3] == pytest.approx(float(turned[3]), abs=1e-6)


def test_story_is_the_same_without_a_server(page: Visit, bundled: Model) -> None:
    walk(page, bundled, BUNDLED)


def big(digits: ArrayDataset) -> NDArray:
    """The first test digit, a seven, enlarged as a file would be."""
    digit = digits.batch(np.array([0])).images[0, 0].mul(255).round().byte().numpy()
    return np.pad(np.kron(digit, np.ones((8, 8), np.uint8)), 20)


def test_folder_holds_everything_and_points_nowhere(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert "'wasm-unsafe-eval'" in page
    assert "'unsafe-eval'" not in page
    assert "unsafe-inline" not in page
    texts = {path: path.read_text() for path in folder.rglob("*") if path.suffix in (".html", ".css")}
    texts |= {path: path.read_text() for path in (folder / "static").rglob("*.js")}
    for path, text in texts.items():
        assert 'src="/' not in text, path
        assert 'href="/' not in text, path
        assert "https://" not in text, path
    assert "MIT License" in (folder / "runtime" / "LICENSE").read_text()
    about = json.loads((folder / "networks" / "networks.json").read_text())
    assert [routing["name"] for routing in about["routings"]] == list(ROUTINGS)
    assert about["models"][0]["routings"] == ["uniform"]


def size(folder: Path) -> int:
    return sum(len(gzip.compress(path.read_bytes())) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_default_folder_is_small(tmp_path: Path, chromium: Browser) -> None:
    need_runtime()
    done = write_static(tmp_path / "site")
    assert done.compressed == size(done.folder) <= LARGEST
    with serving_folder(done.folder) as home:
        visit = Visit(new_context(chromium, home).new_page(), home).open()
        for name in reversed(done.models):  # the first one is chosen already
            visit.by("model").select_option(name)
            visit.quiet()
            assert max(visit.lengths()) > 0
        visit.close()
        visit.context.close()
