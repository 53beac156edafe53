"""Documents: the same blocks as Markdown and as self-contained HTML; and the layout of picture pages."""

from pathlib import Path

import numpy as np
from PIL import Image

from capsnet.drawing.document import Bullets, Code, Document, Figure, Heading, Table, inline
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.style import VERMILLION


def page(folder: Path) -> Document:
    picture = folder / "a.png"
    Image.new("L", (4, 4)).save(picture)
    return Document("A <title>").add(
        "A sentence with `code` & *emphasis*.",
        Heading("Numbers"),
        Bullets(["one", "two"]),
        Table("A table", ["what", "how | much"], [["x", "1|2"]]),
        Table("Nothing", ["what"], []),
        Figure(picture, "A [caption]"),
        Code("capsnet train"),
        Code("{}", "details"),
    )


def test_markdown_has_every_block(tmp_path: Path) -> None:
    text = page(tmp_path).to_markdown(level=2)
    parts = [
        "## A <title>",
        "A sentence with `code` & *emphasis*.",
        "### Numbers",
        "- one\n- two",
        "*A table*\n\n| what | how \\| much |\n|---|---|\n| x | 1\\|2 |",
        f"![A (caption)]({(tmp_path / 'a.png').as_posix()})",
        "    capsnet train",
    ]
    assert text == "\n\n".join(parts) + "\n"


def test_html_has_every_block_and_no_other_file(tmp_path: Path) -> None:
    text = page(tmp_path).to_html()
    assert "<h1>A &lt;title&gt;</h1>" in text
    assert "<p>A sentence with <code>code</code> &amp; <em>emphasis</em>.</p>" in text
    assert "<ul><li>one</li><li>two</li></ul>" in text
    assert "<td>x</td><td>1|2</td>" in text
    assert "Nothing" not in text
    assert 'src="data:image/png;base64,' in text
    assert "<details><summary>details</summary><pre>{}</pre></details>" in text
    assert str(tmp_path) not in text


def test_inline_leaves_products_alone() -> None:
    assert inline("2 * 3 * 4 and a*b*c") == "2 * 3 * 4 and a*b*c"


def test_picture_rows_draw_frames_and_words(tmp_path: Path) -> None:
    image = np.zeros((1, 8, 8))
    rows = [
        Row([Cell(image), Cell(image)], "label\nbelow", "end", ["one", "two"], "a title"),
        Row([Cell(image, [Words("word")], VERMILLION)], lines=["line"]),
    ]
    with Image.open(picture_rows(tmp_path / "p.png", rows, "title", "note", size=40)) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert (abs(pixels - [0xD5, 0x5E, 0x00]).max(axis=-1) <= 3).any()
    assert pixels[0, 0].tolist() == [255, 255, 255]
