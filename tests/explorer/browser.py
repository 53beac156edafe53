"""A visit with a real Chromium: actions on the page, what it shows, and errors behind it."""

import base64
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright

from capsnet.serving.server import Server, listen
from tests.explorer.conftest import BUNDLED

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]
PATIENCE = 20.0  # seconds
VIEWPORT: Any = {"width": 1280, "height": 900}
HINTS_SEEN = {"name": "capsnet-hints-seen", "value": "1"}
UNFOLDED = [{"name": f"capsnet-{what}", "value": "1"} for what in ("couplings", "knobs")]  # details of panels

# Counts questions by path, to the server or to the workers of the page without one: `busy` now, `most` at once, `sent`
# in all; and what the policy refused.
WATCH = """
(() => {
  const net = { busy: 0, last: performance.now(), now: {}, most: {}, sent: {}, refused: [] };
  window.net = net;
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
    net.refused.push(`${violatedDirective} ${blockedURI}`);
  });
  const begin = (path) => {
    const name = String(path).split("?")[0];
    const count = (by) => {
      net.busy += by;
      net.now[name] = (net.now[name] ?? 0) + by;
      net.most[name] = Math.max(net.most[name] ?? 0, net.now[name]);
      net.last = performance.now();
    };
    net.sent[name] = (net.sent[name] ?? 0) + 1;
    count(1);
    return () => count(-1);
  };
  const own = window.fetch;
  window.fetch = async (path, options) => {
    const end = begin(path);
    try {
      const response = await own(path, options);
      await response.clone().arrayBuffer();
      return response;
    } finally {
      end();
    }
  };
  window.Worker = class extends Worker {
    ends = new Map();
    constructor(...options) {
      super(...options);
      this.addEventListener("message", ({ data: { number } }) => this.ends.get(number)());
    }
    postMessage(question) {
      this.ends.set(question.number, begin(question.path));
      super.postMessage(question);
    }
  };
})();
"""

QUIET = "() => net.busy === 0 && performance.now() - net.last > 50"
FORGET = """(items) => {
  sessionStorage.clear();
  localStorage.clear();
  for (const { name, value } of items) localStorage.setItem(name, value);
}"""
READ = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let text = "";
  for (let n = 0; n < data.length; n += 8192) text += String.fromCharCode(...data.subarray(n, n + 8192));
  return [canvas.height, canvas.width, btoa(text)];
}"""


@contextmanager
def launched() -> Iterator[Browser]:
    """The system's Chromium. Without one the tests are skipped, except in CI, where they fail."""
    path = os.environ.get("CAPSNET_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        required = os.environ.get("CI") or os.environ.get("CAPSNET_REQUIRE_BROWSER") == "1"
        (pytest.fail if required else pytest.skip)("no Chromium found: install chromium, or set CAPSNET_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        expect.set_options(timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@contextmanager
def serving(app: FastAPI, port: int = 0) -> Iterator[str]:
    """A real server on a (free) port of the loopback, in a thread; its address."""
    ready = threading.Event()
    with listen("127.0.0.1", port) as listener:
        config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=1)
        server = Server(config, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert ready.wait(PATIENCE), "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def serving_folder(folder: Path, prefix: str = "/project/explorer/") -> Iterator[str]:
    """A plain web server that shows a folder below ``prefix``, as a project's pages are; its address."""

    class Below(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            inside = path.startswith(prefix)
            return super().translate_path(path.removeprefix(prefix[:-1]) if inside else "/nothing-is-outside")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Below, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
        server.shutdown()
        thread.join(PATIENCE)


def new_context(browser: Browser, home: str, *, hints: bool = False, **options: Any) -> BrowserContext:
    """A user's browser: a returning one unless ``hints``. Nothing moves by itself unless ``reduced_motion`` says
    "no-preference": oscillators in sight would take half a core."""
    stored = [
        {
            "origin": "{0.scheme}://{0.netloc}".format(urlsplit(home)),
            "localStorage": UNFOLDED if hints else [HINTS_SEEN, *UNFOLDED],
        }
    ]
    usual: Any = {"viewport": VIEWPORT, "reduced_motion": "reduce", "storage_state": {"origins": stored}}
    context = browser.new_context(**usual | options)
    context.set_default_timeout(1000 * PATIENCE)
    context.add_init_script(WATCH)
    return context


class Visit:
    """One user's page. ``pardoned`` lists console errors that the test provokes."""

    def __init__(self, page: Page, home: str) -> None:
        self.home = home
        self.page = page
        self.context = page.context
        self.complaints: list[str] = []
        self.pardoned: list[str] = []
        self.addresses: list[str] = []
        self.listeners: dict[Any, Callable[[Any], None]] = {
            "console": self.collect,
            "pageerror": lambda error: self.complaints.append(str(error)),
            "request": lambda request: self.addresses.append(request.url),
        }
        for event, listener in self.listeners.items():
            page.on(event, listener)

    def collect(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):  # asked for by ``reset``
            url = message.location["url"]
            self.complaints.append(f"{message.text} ({url})" if url else message.text)

    def open(self, link: str = "") -> "Visit":
        """Open the page and wait until every panel is filled."""
        self.page.goto(self.home + link)
        expect(self.by("first")).not_to_be_empty()
        self.quiet()
        return self

    def open_anew(self, link: str = "") -> "Visit":
        """Open the page as on another computer: nothing is remembered but the link."""
        self.reset()
        return self.open(link)

    def close(self) -> None:
        """Check that there were no errors, no violated policy, no requests to other hosts."""
        refused = self.page.evaluate("() => window.net?.refused ?? []")
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)
        errors = [text for text in self.complaints if not any(words in text for words in self.pardoned)]
        foreign = [url for url in self.addresses if not url.startswith((self.home, "blob:", "data:"))]
        assert (errors, foreign, refused) == ([], [], []), f"errors {errors}, other hosts {foreign}, refused {refused}"

    def reset(self) -> None:
        """Make the page as new for the next visit. A new context takes three times as long as this and a load."""
        self.page.unroute_all(behavior="ignoreErrors")
        self.context.clear_permissions()
        self.page.set_viewport_size(VIEWPORT)
        self.page.goto(f"{self.home}static/icon.svg")  # of the same origin: keeps the process
        self.page.evaluate(FORGET, [HINTS_SEEN, *UNFOLDED])

    # Waiting

    def quiet(self) -> None:
        """Wait until all requests are answered."""
        self.page.wait_for_function(QUIET, polling=20)  # else each frame, which would be drawn for that

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition in Python holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "the condition never held"
            self.page.wait_for_timeout(20)

    def link(self) -> str:
        """The part of the address after #, once it is up to date."""
        self.quiet()
        follows = "async (link) => `#${await (await import(link)).encode()}` === location.hash"
        self.until(lambda: self.page.evaluate(follows, f"{self.home}static/js/link.js"))
        return "#" + self.page.url.partition("#")[2]

    # Looking

    def by(self, testid: str) -> Locator:
        return self.page.get_by_test_id(testid)

    def pixels(self, canvas: str | Locator) -> NDArray:
        """What is on a canvas: (H, W, 4) bytes."""
        place = self.by(canvas) if isinstance(canvas, str) else canvas
        height, width, data = place.evaluate(READ)
        return np.frombuffer(base64.b64decode(data), dtype=np.uint8).reshape(height, width, 4)

    def grey(self, canvas: str | Locator) -> NDArray:
        """What is on a grey canvas: (H, W) bytes."""
        whole = self.pixels(canvas)
        assert (whole[..., 0] == whole[..., 1]).all()
        return whole[..., 0]

    def ink(self) -> float:
        """How much white is on the paper, in pixels."""
        return float(self.grey("canvas").astype(float).sum()) / 255

    def lengths(self) -> list[float]:
        return self.page.locator("#classes [role=meter]").evaluate_all(
            "(meters) => meters.map((meter) => Number(meter.getAttribute('aria-valuenow')))"
        )

    def knobs(self) -> list[float]:
        """The values of all dimensions in order, wherever their sliders stand."""
        values = self.page.locator("#knobs input[type=range]").evaluate_all(
            "(sliders) => sliders.map((slider) => [Number(slider.id.split('-')[1]), Number(slider.value)])"
        )
        return [value for _, value in sorted(values)]

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def net(self) -> dict[str, Any]:
        """The counts of requests; see ``WATCH``."""
        return self.page.evaluate("() => net")

    def ask(self, what: str, **body: Any) -> dict[str, Any]:
        """The server's own answer, without the page."""
        named = {"class" if key == "klass" else key: value for key, value in body.items()}
        response = self.page.request.post(f"{self.home}api/{what}", data={"model": BUNDLED, **named})
        assert response.ok, response.text()
        return response.json()

    def get(self, path: str) -> dict[str, Any]:
        response = self.page.request.get(f"{self.home}api/{path}")
        assert response.ok, response.text()
        return response.json()

    # Doing

    def stroke(self, *points: tuple[float, float], on: str = "canvas") -> None:
        """Draw with the mouse; points are shares of the canvas's width and height."""
        mouse, spots = self.page.mouse, self.spots(on, points)
        mouse.move(*spots[0])
        mouse.down()
        for spot in spots[1:]:
            mouse.move(*spot, steps=8)
        mouse.up()
        self.quiet()

    def spots(self, testid: str, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Shares of an element's width and height as places in the window."""
        self.by(testid).scroll_into_view_if_needed()
        box = self.by(testid).bounding_box()
        assert box is not None
        return [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]

    def press(self, target: str | Locator, *keys: str) -> None:
        """Keys on an element, and then quiet."""
        place = self.by(target) if isinstance(target, str) else target
        place.focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.quiet()

    def click(self, target: str | Locator) -> None:
        (self.by(target) if isinstance(target, str) else target).click()
        self.quiet()
