"""The walk-through of docs/synchrony-walkthrough.md runs, cell by cell in one session, and its assertions hold."""

from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "synchrony-walkthrough.md"


def cells() -> list[tuple[str, str]]:
    """(title, code) of each section with a cell, in the order of the page."""
    found = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        assert body.count("```python\n") == 1, f"one cell in each section, also in {title!r}"
        found.append((title, body.split("```python\n")[1].split("```")[0]))
    return found


def test_walkthrough_runs(capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, Any] = {}
    for title, code in cells():
        assert "assert " in code
        exec(compile(code, f"{PAGE.name}: {title}", "exec"), session)
        assert capsys.readouterr().out, f"{title} shows something"
    assert session["score"] > 0.75


def test_walkthrough_goes_from_metronomes_to_phase_clusters() -> None:
    assert [title.split(". ")[0] for title, _ in cells()] == ["1", "2", "3", "4", "5"]
    assert PAGE.name in (PAGE.parent / "synchrony.md").read_text()
