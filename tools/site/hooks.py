"""Hooks for MkDocs (named in mkdocs.yml): pages from other sources, links into the repository, formulas, a last check.

A link is written as it works in the repository (``../CONTRIBUTING.md``, ``../src/capsnet/functional.py#squash``) and
led to the page that shows that file. Formulas are written as GitHub renders them (```math blocks, and $`...`$ in a
line), and become MathML, which browsers draw without a script.
"""

import os
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Link, Navigation
from mkdocs.structure.pages import Page

from tools import metadata
from tools.site import check, pages

ROOT = pages.ROOT
FILES = {  # pages of files of the repository
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "licences.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "src/capsnet/data/mnist/ORIGIN.md": "licences.md",
}
MOVED = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
COPIED = {
    "CITATION.cff": "CITATION.cff",
    "favicon.svg": "src/capsnet/explorer/static/icon.svg",
    "site.css": "tools/site/site.css",
}
LINK = re.compile(r"(\]\(|src=\")([^)\s\"]+)")
BLOCK = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$`([^`]+)`\$")


# a folder that `capsnet explore --static` wrote: then the site has the explorer, too
EXPLORER = os.environ.get("CAPSNET_SITE_EXPLORER")
PAGE = "try/index.html"  # of the explorer, on the site
ADDRESSES = metadata.addresses(os.environ.get("GITHUB_REPOSITORY", ""))  # set where the site is published
TRY = f'<a class="md-button md-button--primary" href="{PAGE}">Try it here, in your browser</a>'


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections of the navigation that are made from what there is."""
    sections: dict[str, Any] = {title: entry for item in config.nav or [] for title, entry in item.items()}
    sections["Tutorials"] += [{pages.title(path): f"tutorials/{name}.md"} for name, path in pages.notebooks().items()]
    sections["Reference"] += [{"capsnet": "reference/capsnet.md"}]
    sections["Reference"] += [{f"capsnet.{room}": f"reference/{room}.md"} for room in pages.rooms()]
    named = set(re.findall(r"'([\w-]+\.md)'", str(config.nav)))
    sections["How-to"] += [page.name for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in named]
    # for the site map, and the links of the page that a server shows for wrong addresses. Not `repo_url`: with it every
    # page asks another host for the number of stars.
    config.site_url = ADDRESSES.get("Documentation", config.site_url)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = {
        "commands.md": pages.commands(),
        "licences.md": pages.licences(),
        "reference/capsnet.md": pages.reference(""),
    }
    made |= {FILES[name]: (ROOT / name).read_text() for name in MOVED}
    made |= {f"tutorials/{name}.md": pages.notebook_page(path) for name, path in pages.notebooks().items()}
    made |= {f"reference/{room}.md": pages.reference(room) for room in pages.rooms()}
    for name, path in linked_sources().items():
        made[name] = pages.linked_source(path)
    for name, content in made.items():
        page = File.generated(config, name, content=content)
        if name.startswith("source/"):  # reached by links only
            page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    for name, source in COPIED.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Add the explorer after the first entry, and the repository. They are not in mkdocs.yml: most builds lack them."""
    if EXPLORER:
        nav.items.insert(1, Link("Try it", PAGE))
    if ADDRESSES:
        nav.items.append(Link("Repository", ADDRESSES["Homepage"]))
    return nav


def linked_sources() -> dict[str, Path]:
    """Pages of the Python files to which a page of docs/ links."""
    found: dict[str, Path] = {}
    for page in (ROOT / "docs").glob("*.md"):
        for path in re.findall(r"\]\(\.\./(src/[\w/]+\.py)", page.read_text()):
            found[source_page(path)] = ROOT / path
    return found


def source_page(path: str) -> str:
    return "source/" + path.removeprefix("src/capsnet/").replace("/", "-").removesuffix(".py") + ".md"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    if uri == "explorer.md" and EXPLORER:
        markdown = markdown.replace("\n\n", f"\n\n{TRY}\n\n", 1)
    markdown = LINK.sub(lambda m: m[1] + led(m[2], uri), markdown)
    markdown = BLOCK.sub(lambda m: f'<div class="formula">{convert(m[1].strip(), display="block")}</div>\n', markdown)
    return INLINE.sub(lambda m: f"<span>{literal(convert(m[1]))}</span>", markdown)  # in a line, not a block


def literal(mathml: str) -> str:
    """MathML within a line of Markdown, where a star would begin an emphasis."""
    return mathml.replace("*", "&#42;").replace("_", "&#95;")


def led(link: str, page: str) -> str:
    """Where a link of a page leads on the site."""
    if re.match(r"[a-z]+:|#", link):
        return link
    path, _, fragment = link.partition("#")
    repository = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), path))
    if repository in FILES:
        target = FILES[repository]
    elif repository.startswith("docs/"):
        target = repository.removeprefix("docs/")
    elif repository.startswith("notebooks/"):
        target = f"tutorials/{posixpath.basename(repository).removesuffix('.ipynb')}.md"
    elif repository.endswith(".py"):
        target = source_page(repository)
        fragment = fragment and f"__codelineno-0-{pages.line_of(ROOT / repository, fragment)}"
    else:
        target = repository
    return posixpath.relpath(target, posixpath.dirname(page) or ".") + (f"#{fragment}" if fragment else "")


def source_of(page: str) -> str:
    """The file of the repository that a page is made of, for its links."""
    back = {target: name for name, target in FILES.items() if target != "licences.md"}
    if page.startswith("tutorials/"):
        return f"notebooks/{posixpath.basename(page)}"
    return back.get(page, f"docs/{page}")


def on_post_build(config: MkDocsConfig) -> None:
    if EXPLORER:
        shutil.copytree(EXPLORER, (Path(config.site_dir) / PAGE).parent)
    problems = check.problems(Path(config.site_dir), base=urlsplit(config.site_url or "").path or "/")
    if problems:
        raise PluginError(f"{len(problems)} problems in the built site:\n" + "\n".join(problems[:40]))
