"""The documentation as a site: made pages, links, formulas, the check of the result, and pages that quote others."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from capsnet import cli
from capsnet.experiments import small_data
from tools.site import check, pages

ROOT = pages.ROOT
EXPLAINED = ROOT / "docs" / "explained.md"
LINE = re.compile(r"\]\(\.\./(src/[\w/]+\.py)#([\w.]+)\)")


def test_check_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">right</a><a href="b.html#gone">x</a><a href="c.html">x</a><a href="https://example.org">x</a>'
        '<script src="https://example.org/x.js"></script><img src="b.png">'
    )
    (tmp_path / "b.html").write_text(
        '<link rel="canonical" href="https://example.org/b"><h1 id="there">b</h1><a data-md-component="source" href="https://example.org">x</a>'
    )
    (tmp_path / "404.html").write_text('<a href="/site/b.html#there">right</a><a href="/b.html">x</a>')
    (tmp_path / "x.css").write_text(
        '@import "https://example.org/x.css"; a { background: url(data:image/png;base64,) }'
    )
    assert check.problems(tmp_path, base="/site/") == [
        "404.html: /b.html does not exist",
        "a.html: fetches https://example.org/x.js from another host",
        "a.html: b.html#gone has no anchor gone",
        "a.html: c.html does not exist",
        "a.html: b.png does not exist",
        "b.html: fetches numbers of the repository from another host",
        "x.css: fetches https://example.org/x.css from another host",
    ]


def test_every_command_is_on_the_page() -> None:
    page = pages.commands()
    for verb in cli.VERBS:
        assert f"## capsnet {verb}\n" in page
        assert f"usage: capsnet {verb} " in page
    assert "--augment.rotate" in page
    assert "\x1b" not in page


def test_help_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="printed no help but 'capsnet "):
        pages.help_text("-V")


def test_every_public_module_has_a_page() -> None:
    assert {"data", "functional", "layers", "routing", "models"} <= set(pages.rooms())
    assert "cli" not in pages.rooms()
    assert "::: capsnet.routing\n" in pages.reference("routing")
    assert "::: capsnet.routing.steps\n" in pages.reference("routing")


@pytest.mark.parametrize("room", pages.rooms())
def test_page_of_a_module_has_something_to_show(room: str) -> None:
    shown = [f"capsnet.{room}", *(f"capsnet.{room}.{name}" for name in pages.MODULES.get(room, ()))]
    parts = [importlib.import_module(name) for name in shown]
    own = [
        name
        for part in parts
        for name, value in vars(part).items()
        if getattr(value, "__module__", "") == part.__name__
    ]
    assert [*getattr(parts[0], "__all__", ()), *(name for name in own if not name.startswith("_"))]


def test_definition_is_found_and_a_wrong_name_is_not() -> None:
    path = ROOT / "src/capsnet/routing/dynamic.py"
    assert path.read_text().splitlines()[pages.line_of(path, "Dynamic.plain") - 1].startswith("    def plain(")
    with pytest.raises(ValueError, match=r"src/capsnet/routing/dynamic.py has no Dynamic.plane"):
        pages.line_of(path, "Dynamic.plane")


def test_links_and_formulas_become_those_of_the_site() -> None:
    hooks = pytest.importorskip("tools.site.hooks", reason="the extra `docs` is not installed")
    assert hooks.led("../CONTRIBUTING.md#glossary", "explained.md") == "contributing.md#glossary"
    assert hooks.led("docs/images/sweep.png", "index.md") == "images/sweep.png"
    assert hooks.led("../docs/data.md", "tutorials/01-first.md") == "../data.md"
    assert hooks.led("https://arxiv.org", "index.md") == "https://arxiv.org"
    led = hooks.led("../src/capsnet/functional.py#squash", "explained.md")
    line = pages.line_of(ROOT / "src/capsnet/functional.py", "squash")
    assert led == f"source/functional.md#__codelineno-0-{line}"
    assert "*" not in hooks.literal(hooks.convert("c^*_{ij}"))


@pytest.mark.parametrize("has_explorer", [True, False])
def test_explorer_is_a_page_of_the_navigation(
    has_explorer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site of two pages with the hooks that place the explorer, here a folder with one page."""
    hooks = pytest.importorskip("tools.site.hooks", reason="the extra `docs` is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    (tmp_path / "explorer").mkdir()
    (tmp_path / "explorer" / "index.html").write_text("<h1>explorer</h1>")
    monkeypatch.setattr(hooks, "EXPLORER", str(tmp_path / "explorer") if has_explorer else None)
    (tmp_path / "docs" / "below").mkdir(parents=True)
    for page in ("index.md", "below/other.md"):
        (tmp_path / "docs" / page).write_text("# A page\n")
    (tmp_path / "hooks.py").write_text("from tools.site.hooks import on_nav, on_post_build\n")
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: x\nstrict: true\nuse_directory_urls: false\nhooks: [hooks.py]\nplugins: []\n"
        "theme: {name: material, font: false}\nnav: [{Home: index.md}, {Other: below/other.md}]\n"
    )
    build(load_config(str(tmp_path / "mkdocs.yml")))  # on_post_build looks for broken links
    for page, link in (("index.html", "try/index.html"), ("below/other.html", "../try/index.html")):
        entry = rf'<a href="{re.escape(link)}" class="md-nav__link">'
        assert bool(re.search(entry, (tmp_path / "site" / page).read_text())) == has_explorer
    assert (tmp_path / "site" / "try" / "index.html").exists() == has_explorer


def quotes() -> list[tuple[str, str, str]]:
    """(file, name, code) of each block of Python in docs/explained.md; the last link before it says from where."""
    text, found = EXPLAINED.read_text(), []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        *_, (path, name) = LINE.findall(text[: match.start()])
        found.append((path, name, match[1]))
    return found


@pytest.mark.parametrize(("path", "name", "code"), quotes(), ids=lambda value: value if "\n" not in value else "")
def test_quoted_lines_are_in_the_source(path: str, name: str, code: str) -> None:
    node = pages.definition(ROOT / path, name)
    source = ast.get_source_segment((ROOT / path).read_text(), node) or ""
    lines = [line.strip() for line in source.splitlines()]
    for line in code.splitlines():
        assert line.strip() in lines, f"{path}: {name} does not have this line"


def test_every_linked_name_exists() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for path, name in LINE.findall(page.read_text()):
            pages.line_of(ROOT / path, name)


@pytest.mark.parametrize(("page", "least"), [("when.md", 50), ("explain.md", 40)])
def test_numbers_of_a_page_are_those_of_the_results(page: str, least: int) -> None:
    """Every number with a point stands in a section of the results that its own section links to; where that links to
    none, in one that the page links to. small-data also quotes published ones."""
    results = re.split(r"^## ", (ROOT / "docs/RESULTS.md").read_text(), flags=re.MULTILINE)
    measured = {section.partition("\n")[0]: decimals(section) for section in results}
    measured["weights"] |= decimals((ROOT / "docs/weights.md").read_text())
    measured["small-data"] |= decimals(" ".join(small_data.PUBLISHED.values()))
    text = (ROOT / "docs" / page).read_text()
    assert len(decimals(text)) > least
    linked = re.compile(r"RESULTS\.md#([\w-]+)")
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE):
        names = linked.findall(section) or linked.findall(text)
        known = set().union(*(measured[name] for name in names))
        assert decimals(section) <= known, f"docs/{page}: write '{section.partition(chr(10))[0]}' anew from RESULTS.md"


def decimals(text: str) -> set[str]:
    return set(re.findall(r"\d+\.\d+", text))


def test_measured_numbers_beside_published_ones_are_those_of_the_results() -> None:
    """Those in the last column of a table of docs/synchrony.md."""
    known = set(re.findall(r"\d+\.\d+", (ROOT / "docs" / "RESULTS.md").read_text()))
    table = (ROOT / "docs" / "synchrony.md").read_text().partition("| we measured |")[2].partition("\n\n")[0]
    named = {number for row in table.splitlines() for number in re.findall(r"\d+\.\d+", row.rpartition(" | ")[2])}
    assert len(named) > 10
    assert named - known == set(), "write the table anew from docs/RESULTS.md"


@pytest.mark.slow
def test_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<math" in (tmp_path / "explained.html").read_text()
