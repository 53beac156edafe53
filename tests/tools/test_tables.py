"""Tables of the documentation agree with the registries."""

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
