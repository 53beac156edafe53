"""The documentation as a site: made pages, links, formulas, the check of the result, and pages that quote others."""

import ast
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
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    (tmp_path / "x.css").write_text(
        '@import "https://example.org/x.css"; a { background: url(data:image/png;base64,) }'
    )
    assert check.problems(tmp_path) == [
        "a.html: fetches https://example.org/x.js from another host",
        "a.html: b.html#gone has no anchor gone",
        "a.html: c.html does not exist",
        "a.html: b.png does not exist",
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


def test_numbers_of_when_are_those_of_the_results() -> None:
    """Every number with a point in docs/when.md stands in the pages that it is from, or small-data quotes it."""
    texts = [(ROOT / "docs" / name).read_text() for name in ("RESULTS.md", "weights.md")]
    known = set(re.findall(r"\d+\.\d+", " ".join([*texts, *small_data.PUBLISHED.values()])))
    named = set(re.findall(r"\d+\.\d+", (ROOT / "docs" / "when.md").read_text()))
    assert len(named) > 50
    assert named - known == set(), "write docs/when.md anew from docs/RESULTS.md"


@pytest.mark.slow
def test_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<math" in (tmp_path / "explained.html").read_text()
