"""The explorer in a real Chromium, for the pictures of the docs."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import Page, sync_playwright

from capsnet.explorer import create_app
from capsnet.serving.server import Server, listen

NAMES = ("chromium", "chromium-browser", "google-chrome")
SEEN = [{"name": "capsnet-hints-seen", "value": "1"}]
COUNT = """
window.busy = 0;
const own = window.fetch;
window.fetch = async (...what) => {
  window.busy += 1;
  try { return await own(...what); } finally { window.busy -= 1; }
};
"""


@contextmanager
def opened(width: int, height: int, theme: str = "light", **options: Any) -> Iterator[tuple[Page, str]]:
    """The page with all bundled networks, and its address."""
    path = os.environ.get("CAPSNET_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise SystemExit("no Chromium found: install chromium, or set CAPSNET_CHROMIUM to its path")
    ready = threading.Event()
    with listen("127.0.0.1", 0) as listener, sync_playwright() as playwright:
        config = uvicorn.Config(create_app([]), log_level="warning", ws="none", timeout_graceful_shutdown=1)
        server = Server(config, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        ready.wait(60)
        home = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        stored: Any = {"cookies": [], "origins": [{"origin": home.rstrip("/"), "localStorage": SEEN}]}
        size: Any = {"width": width, "height": height}
        scheme: Any = theme
        context = browser.new_context(viewport=size, color_scheme=scheme, storage_state=stored, **options)
        page = context.new_page()
        page.add_init_script(COUNT)
        yield page, home
        browser.close()
        server.should_exit = True
        thread.join(20)


def settle(page: Page, quiet: int = 6, pause: int = 50) -> None:
    """Wait until every request is answered: none is under way at several looks in a row."""
    still = 0
    while still < quiet:
        page.wait_for_timeout(pause)
        still = still + 1 if page.evaluate("() => window.busy === 0") else 0
