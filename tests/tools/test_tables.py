"""Tables of the documentation agree with the registries."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from capsnet import routing
from capsnet.routing import Routing, _registry
from tools import tables


@pytest.mark.parametrize("page", tables.PAGES)
def test_page_is_up_to_date(page: str) -> None:
    text = (tables.ROOT / page).read_text()
    assert "<!-- table: " in text
    assert tables.fill(text) == text, "run `python -m tools.tables`"


def test_table_lists_new_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_ROUTINGS", dict(_registry._ROUTINGS))

    @routing.register
    @dataclass(frozen=True, kw_only=True)
    class Other(Routing):
        """Another routing."""

        name: ClassVar[str] = "other"
        strength: float = 1.0

    assert "| `other` | Another routing. | strength | parents |" in tables.fill(
        "<!-- table: routings -->\n<!-- end -->"
    )


@pytest.mark.parametrize("name", ["tables", "export_table"])
def test_help_writes_nothing(name: str) -> None:
    before = [page.read_bytes() for page in sorted((tables.ROOT / "docs").glob("*.md"))]
    command = [sys.executable, "-m", f"tools.{name}", "--help"]
    done = subprocess.run(command, cwd=tables.ROOT, capture_output=True, text=True, check=True)
    assert f"usage: python -m tools.{name}" in done.stdout
    assert [page.read_bytes() for page in sorted((tables.ROOT / "docs").glob("*.md"))] == before
