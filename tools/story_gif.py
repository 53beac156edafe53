"""The story as a GIF of twenty seconds, for the README.

    python -m tools.story_gif [--out docs/figures/story.gif]

A real Chromium walks through the six steps and presses “Show me”. The page's clock is the script's: it is set forward
by one frame, all requests are answered, a picture is taken. So the film is the same on a slow machine. Look at it
before you commit it.
"""

import argparse
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page

from tools._page import opened, settle

FRAME = 200  # milliseconds
LIMIT = 3_000_000  # bytes
WIDTH, HEIGHT, SCALE = 1200, 720, 0.75
COLOURED = 50  # of 255: the difference of the largest and the least of red, green and blue
STEPS = ((17, False), (16, True), (24, True), (22, True), (14, True), (7, False))  # frames, and whether to “Show me”
LOOK = 5  # frames before that


def film(page: Page) -> list[Image.Image]:
    """One pass through the story."""
    shots: list[Image.Image] = []
    for number, (frames, acts) in enumerate(STEPS):
        if number:
            page.get_by_test_id("story-next").click()
            page.clock.run_for(50)
            settle(page)
        for frame in range(frames):
            if acts and frame == LOOK:
                page.get_by_test_id("story-act").click()
            page.clock.run_for(FRAME)
            settle(page, quiet=2, pause=20)
            shots.append(Image.open(io.BytesIO(page.screenshot(type="jpeg", quality=92))))
    return shots


def write(shots: list[Image.Image], out: Path) -> int:
    """The GIF; returns its size in bytes."""
    size = (round(WIDTH * SCALE), round(HEIGHT * SCALE))
    small = [picture.convert("RGB").resize(size, Image.Resampling.LANCZOS) for picture in shots]
    palette = _palette(small)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in small]
    out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=FRAME, loop=0, optimize=True)
    return out.stat().st_size


def _palette(pictures: list[Image.Image]) -> Image.Image:
    """One palette for all pictures, so that what stands still stays the same. Half of it is for the few coloured
    pixels: the hues of the classes would drown in grey."""
    some = np.stack([np.asarray(picture) for picture in pictures[:: max(1, len(pictures) // 20)]]).reshape(-1, 3)
    coloured = some[np.ptp(some.astype(int), axis=1) > COLOURED]
    both = np.concatenate([some, np.resize(coloured, some.shape)]) if len(coloured) else some
    return Image.fromarray(both.reshape(-1, pictures[0].width, 3)).quantize(256, method=Image.Quantize.MEDIANCUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/figures/story.gif"))
    out = parser.parse_args().out
    with opened(WIDTH, HEIGHT) as (page, home):
        page.clock.install()
        page.goto(f"{home}#story")
        page.get_by_text("A quick look").wait_for(timeout=120_000)
        settle(page)
        page.clock.pause_at(page.evaluate("() => Date.now() + 1000"))
        shots = film(page)
    size = write(shots, out)
    sys.stdout.write(f"{out}: {len(shots)} pictures, {size / 1e6:.2f} MB\n")
    if size > LIMIT:
        raise SystemExit(f"{out} has {size / 1e6:.2f} MB, more than {LIMIT / 1e6:.0f}: lower SCALE")


if __name__ == "__main__":
    main()
