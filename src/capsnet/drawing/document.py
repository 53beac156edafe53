"""A document of headings, sentences, tables and figures that renders to Markdown and to one self-contained HTML file.

page = Document("Title")
page.add("A sentence with `code`.", Bullets(["first", "second"]), Table("", ["a", "b"], [["1", "2"]]))
page.to_markdown(); page.to_html()
"""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import NamedTuple, TypeAlias


class Heading(NamedTuple):
    text: str


class Bullets(NamedTuple):
    items: Sequence[str]


class Table(NamedTuple):
    """Rows of words and numbers. Without rows nothing is shown."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Figure(NamedTuple):
    """A picture. Markdown links to ``path`` as it is written, HTML embeds the file."""

    path: Path
    caption: str


class Code(NamedTuple):
    """Text in a fixed-width font; with a ``summary``, HTML shows it on request and Markdown leaves it out."""

    text: str
    summary: str = ""


Block: TypeAlias = str | Heading | Bullets | Table | Figure | Code


@dataclass
class Document:
    """A title and the blocks below it. A plain string is a paragraph."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> "Document":
        self.blocks.extend(blocks)
        return self

    def to_markdown(self, level: int = 1) -> str:
        """The document as Markdown, its title a heading of this level."""
        parts = [f"{'#' * level} {self.title}", *(_markdown(block, level) for block in self.blocks)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_html(self) -> str:
        """The document as one HTML page that needs no other file: pictures are embedded."""
        title = html.escape(self.title)
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
        body = "\n".join([f"<h1>{title}</h1>", *(_html(block) for block in self.blocks)])
        opening = f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head><body><main>'
        return f"{opening}\n{body}\n</main></body></html>\n"


def _markdown(block: Block, level: int) -> str:
    match block:
        case Heading(text):
            return f"{'#' * (level + 1)} {text}"
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Table(title, columns, rows) if rows:
            cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in [columns, *rows]]
            first, *others = ["| " + " | ".join(row) + " |" for row in cells]
            return "\n".join([*([f"*{title}*", ""] if title else []), first, "|" + "---|" * len(columns), *others])
        case Figure(path, caption):
            return f"![{caption.translate({91: '(', 93: ')', 10: ' '})}]({path.as_posix()})"
        case Code(text, ""):
            return indent(text, "    ")
        case str():
            return block
    return ""


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{html.escape(text)}</h2>"
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>" if items else ""
        case Table(title, columns, rows) if rows:
            heading = f"<h2>{html.escape(title)}</h2>" if title else ""
            lines = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
            table = f"<table><thead><tr>{_cells('th', columns)}</tr></thead><tbody>{lines}</tbody></table>"
            return f'{heading}<div class="scroll">{table}</div>'
        case Figure(path, caption):
            encoded, words = base64.b64encode(path.read_bytes()).decode(), html.escape(caption)
            picture = f'<img alt="{words}" src="data:image/{path.suffix[1:]};base64,{encoded}">'
            return f"<figure>{picture}<figcaption>{words}</figcaption></figure>"
        case Code(text, summary):
            code = f"<pre>{html.escape(text)}</pre>"
            return f"<details><summary>{html.escape(summary)}</summary>{code}</details>" if summary else code
        case str():
            return f"<p>{inline(block)}</p>"
    return ""


def _cells(tag: str, row: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row)


def inline(text: str) -> str:
    """A sentence as HTML, with its `code` and *emphasis*."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", escaped)


STYLE = """
:root { color-scheme: light dark; --ink: #222; --muted: #666; --line: #ddd; --page: #fff; --tint: #f4f6f8;
  --link: #0060a0 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --muted: #a0a0a0; --line: #3a3a3a; --page: #161616; --tint: #202326; --link: #6ab7ff }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
h1 + p { color: var(--muted); margin: 0 0 1.5rem } p { max-width: 44rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .42rem .9rem .42rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600; color: var(--muted); font-size: .85rem } td + td { white-space: nowrap }
figure { margin: 1.4rem 0 2rem }
figure img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px }
figcaption { color: var(--muted); font-size: .9rem; max-width: 44rem; margin-top: .4rem }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; font-size: .85rem }
code { font-family: ui-monospace, monospace; font-size: .92em } li { max-width: 44rem; margin: .25rem 0 }
details { margin-top: 1.5rem } summary { cursor: pointer; color: var(--link) }
"""
