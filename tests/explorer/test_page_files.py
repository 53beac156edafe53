"""Image files on the page: uploaded, pasted, dropped."""

import io
import re
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import expect

from capsnet.data import ArrayDataset
from capsnet.inference import preprocessing_of
from capsnet.models import Model
from tests.explorer.browser import Visit
from tests.explorer.conftest import as_bytes, png
from tests.explorer.reading import apart, check_bars


def photo(digits: ArrayDataset, n: int) -> bytes:
    """Dark ink on white paper."""
    return png(255 - np.kron(digits.images[n, 0], np.ones((9, 9), np.uint8)))


def test_good_files_are_shown_and_bad_ones_refused(
    visit: Visit, digits: ArrayDataset, bundled: Model, tmp_path: Path
) -> None:
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
        "header.png": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "image"),
        "words.txt": (b"this is no picture, but a sentence\n" * 20, "not an image"),
        "empty.png": (b"", "image"),
    }
    for name, (content, words) in bad.items():
        visit.page.evaluate("() => { document.getElementById('status').textContent = ''; }")
        send(name, content)
        expect(visit.by("status")).to_contain_text(words)
        assert re.match(r"[A-Z][^{}<>]{10,200}$", visit.by("status").inner_text()), name
        assert apart(visit.grey("seen"), seen) == 0
        assert visit.lengths() == before
    visit.by("centre").uncheck()  # the upload is prepared again
    visit.quiet()
    assert apart(visit.grey("seen"), seen) > 50


def test_undone_file_does_not_come_back(visit: Visit, digits: ArrayDataset) -> None:
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
    visit.by("centre").check()  # prepared again, which is not a step of its own
    visit.quiet()
    assert apart(visit.grey("seen"), uploaded) == 0
    visit.click("undo")
    assert apart(visit.grey("seen"), picked) == 0


def test_pasted_and_dropped_files_are_shown(visit: Visit, digits: ArrayDataset, bundled: Model) -> None:
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
