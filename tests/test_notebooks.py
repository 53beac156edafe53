"""The notebooks run, small, cell by cell in one session; they are valid and have no outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from capsnet.routing import _registry

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPSNET_SMOKE", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(_registry, "_ROUTINGS", dict(_registry._ROUTINGS))  # a notebook registers one
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    session: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(cells(notebook, "code")):
        exec(compile(code, f"{notebook.name}, code cell {number}", "exec"), session)
        pyplot.close("all")
    assert session["SMOKE"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_and_without_outputs(notebook: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="install the extra `dev` anew")
    nbformat.validate(nbformat.read(notebook, as_version=4))
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_begins_with_a_title_and_installs_the_package(notebook: Path) -> None:
    assert cells(notebook, "markdown")[0].startswith("# ")
    assert 'find_spec("capsnet") is None' in cells(notebook, "code")[0]
    for line in "\n".join(cells(notebook, "code")).splitlines():
        assert not line.lstrip().startswith(("!", "%")), "plain Python, so that it runs without Jupyter"


def test_there_are_six() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]
