"""The table of docs/data.md is made from the registry."""

from pathlib import Path

from capsnet import data

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def table() -> str:
    rows = ["| name | what it is | source | path | options |", "|---|---|---|---|---|"]
    for name in data.list_datasets():
        info = data.info(name)
        options = [f"`{key}`" if value is None else f"`{key}={value}`" for key, value in info.options.items()]
        rows.append(f"| `{name}` | {info.description} | {info.source} | {info.path} | {', '.join(options)} |")
    return "\n".join(rows)


TABLE = table()  # while tests are collected: later, some of them register data sets of their own


def test_table_is_made_from_the_registry() -> None:
    assert TABLE in DOCS.read_text(), f"docs/data.md should have this table:\n{TABLE}"
