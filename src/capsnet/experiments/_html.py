"""An experiment's page: one file that needs nothing else, to read, to send, to print."""

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

from capsnet.experiments._report import read_measure

STYLE = """
:root { color-scheme: light dark; --ink: #222; --muted: #666; --line: #ddd; --page: #fff; --tint: #f4f6f8;
  --link: #0060a0 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --muted: #a0a0a0; --line: #3a3a3a; --page: #161616; --tint: #202326; --link: #6ab7ff }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
.lead { color: var(--muted); margin: 0 0 1.5rem } p { max-width: 44rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .42rem .9rem .42rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600; color: var(--muted); font-size: .85rem } td.number { white-space: nowrap }
figure { margin: 1.4rem 0 2rem }
figure img { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px }
figcaption { color: var(--muted); font-size: .9rem; max-width: 44rem; margin-top: .4rem }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; font-size: .85rem }
code { font-family: ui-monospace, monospace; font-size: .92em } li { max-width: 44rem; margin: .25rem 0 }
details { margin-top: 1.5rem } summary { cursor: pointer; color: var(--link) }
"""


def page(document: dict[str, Any], folder: Path) -> str:
    """The whole page as one string, pictures included."""
    body = [
        f"<h1>{html.escape(document['title'])}</h1>",
        f'<p class="lead">{html.escape(lead(document))}</p>',
        *([bullets(document["findings"])] if document["findings"] else []),
        *measures(document),
        *(part for table in document["tables"] for part in plain_table(table)),
        *(figure(folder / f["file"], f["caption"]) for f in document["figures"]),
        "<h2>What this is</h2>",
        *(f"<p>{inline(paragraph)}</p>" for paragraph in document["about"].split("\n\n")),
        *(["<h2>What differs from the publication</h2>", bullets(document["differs"])] if document["differs"] else []),
        "<h2>How to get it again</h2>",
        f"<pre>{html.escape(document['command'])}</pre>",
        f'<p class="lead">{html.escape(machine(document))}</p>',
        "<details><summary>Every number behind this page (JSON)</summary>",
        f"<pre>{html.escape(json.dumps(document['raw']))}</pre></details>",
    ]
    title = html.escape(document["title"])
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    joined = "\n".join(body)
    opening = f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head><body><main>'
    return f"{opening}\n{joined}\n</main></body></html>\n"


def lead(document: dict[str, Any]) -> str:
    count = len(document["seeds"])
    return f"Budget {document['budget']}, {plural(count, 'seed')}, {minutes(document['seconds'])} of work."


def minutes(seconds: float) -> str:
    return plural(seconds, "second") if seconds < 100 else plural(seconds / 60, "minute")


def plural(number: float, what: str) -> str:
    return f"{number:.0f} {what}{'' if round(number) == 1 else 's'}"


def machine(document: dict[str, Any]) -> str:
    env = document["environment"]
    return (
        f"{env['processor']}, {plural(env['threads'], 'thread')}, {env['device']}; capsnet {env['capsnet']}, "
        f"torch {env['torch']}, Python {env['python']}; {env['started']}"
    )


def measures(document: dict[str, Any]) -> list[str]:
    rows = [read_measure(values) for values in document["measures"]]
    if not rows:
        return []
    cells = [[m.name + (f" ({m.note})" if m.note else ""), m.shown(), m.published] for m in rows]
    return ["<h2>Ours beside the published figure</h2>", grid(["", "ours", "published"], cells)]


def plain_table(table: dict[str, Any]) -> list[str]:
    return [f"<h2>{html.escape(table['title'])}</h2>", grid(table["columns"], table["rows"])]


def grid(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    lines = [
        "<tr>"
        + "".join(f'<td class="{"number" if n else ""}">{html.escape(str(c))}</td>' for n, c in enumerate(row))
        + "</tr>"
        for row in rows
    ]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def bullets(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{inline(sentence)}</li>" for sentence in sentences) + "</ul>"


def figure(path: Path, caption: str) -> str:
    kind = "gif" if path.suffix == ".gif" else "png"
    encoded = base64.b64encode(path.read_bytes()).decode()
    words = html.escape(caption)
    return (
        f'<figure><img alt="{words}" src="data:image/{kind};base64,{encoded}"><figcaption>{words}</figcaption></figure>'
    )


def inline(text: str) -> str:
    """Our docstrings' two kinds of marks: `code` and *emphasis*."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])", r"<em>\1</em>", escaped)
