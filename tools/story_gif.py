"""The story as a GIF of twenty seconds, for the README.

    python -m tools.story_gif [--out docs/figures/story.gif]

A real Chromium walks through the six steps, presses “Show me” and is photographed all the while. The times between
pictures are the real ones, shortened alike to the length of the GIF. Look at it before you commit it.
"""

import argparse
import io
import sys
import time
from itertools import pairwise
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tools._page import opened, settle

SECONDS = 20.0
LIMIT = 3_000_000  # bytes
WIDTH, HEIGHT, SCALE = 1200, 720, 0.7
COLOURS = 64
STEPS = ((5.0, False), (5.0, True), (5.5, True), (5.0, True), (5.0, True), (2.5, False))  # seconds, and “Show me”

Shot = tuple[float, Image.Image]


def film(page: Page) -> list[Shot]:
    """Pictures with their times, one pass through the story."""
    shots: list[Shot] = []
    begin = time.monotonic()
    for number, (seconds, acts) in enumerate(STEPS):
        if number:
            page.get_by_test_id("story-next").click()
        start = time.monotonic()
        acted = not acts
        while time.monotonic() < start + seconds:
            picture = Image.open(io.BytesIO(page.screenshot(type="jpeg", quality=92)))
            shots.append((time.monotonic() - begin, picture))
            if not acted and time.monotonic() > start + 1.2:
                page.get_by_test_id("story-act").click()
                acted = True
            page.wait_for_timeout(120)
    return shots


def write(shots: list[Shot], out: Path) -> int:
    """The GIF; returns its size in bytes."""
    size = (round(WIDTH * SCALE), round(HEIGHT * SCALE))
    small = [picture.convert("RGB").resize(size, Image.Resampling.LANCZOS) for _, picture in shots]
    palette = _palette(small)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in small]
    times = [at for at, _ in shots] + [shots[-1][0] + 1.0]
    factor = SECONDS / (times[-1] - times[0])
    lasts = [max(20, round(1000 * factor * (after - before))) for before, after in pairwise(times)]
    out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=lasts, loop=0, optimize=True)
    return out.stat().st_size


def _palette(pictures: list[Image.Image]) -> Image.Image:
    """One palette for all pictures, so that what stands still stays the same."""
    some = pictures[:: max(1, len(pictures) // 12)]
    sheet = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for n, picture in enumerate(some):
        sheet.paste(picture, (0, n * picture.height))
    return sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/figures/story.gif"))
    out = parser.parse_args().out
    with opened(WIDTH, HEIGHT) as (page, home):
        page.goto(f"{home}#story")
        page.get_by_text("Of the first").wait_for(timeout=60_000)
        settle(page)
        shots = film(page)
    size = write(shots, out)
    sys.stdout.write(f"{out}: {len(shots)} pictures, {size / 1e6:.2f} MB\n")
    if size > LIMIT:
        raise SystemExit(f"{out} has {size / 1e6:.2f} MB, more than {LIMIT / 1e6:.0f}: lower SCALE or COLOURS")


if __name__ == "__main__":
    main()
