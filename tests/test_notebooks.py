"""The notebooks run, small, cell by cell in one session; they are valid and have no outputs."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

import capsnet
from capsnet.routing import _registry

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


INSTALLATION = cells(NOTEBOOKS[0], "code")[0]


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


@pytest.mark.parametrize("checkout", [True, False])
def test_phases_of_pixels_are_those_of_the_stored_network_where_it_is(
    checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    if not checkout:
        monkeypatch.setattr(capsnet, "__file__", str(tmp_path / "lib" / "capsnet" / "__init__.py"))
    session: dict[str, Any] = {"Path": Path}
    _, imports, *_, pixels = cells(NOTEBOOKS[-1], "code")
    for code in (imports, pixels):
        exec(code, session)
    assert session["colours"].shape == (4, 24, 24, 3)
    assert (sum(session["scores"]) / 4 > 0.8) == checkout
    assert ("the network is untrained" in capsys.readouterr().out) != checkout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_and_without_outputs(notebook: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="install the extra `dev` anew")
    nbformat.validate(nbformat.read(notebook, as_version=4))
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_begins_with_a_title_and_the_installation(notebook: Path) -> None:
    assert cells(notebook, "markdown")[0].startswith("# ")
    assert cells(notebook, "code")[0] == INSTALLATION
    for line in "\n".join(cells(notebook, "code")).splitlines():
        assert not line.lstrip().startswith(("!", "%")), "plain Python, so that it runs without Jupyter"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Run the first cell in a folder; returns the commands that it would have started."""

    def run(folder: Path, *, spec: ModuleSpec | None = None, code: int = 0, source: str = "") -> list[list[str]]:
        commands: list[list[str]] = []

        def started(command: list[str]) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            return subprocess.CompletedProcess(command, code)

        monkeypatch.chdir(folder)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
        monkeypatch.setattr(subprocess, "run", started)
        assert 'SOURCE = ""' in INSTALLATION
        exec(INSTALLATION.replace('SOURCE = ""', f"SOURCE = {source!r}"), {})
        return commands

    return run


def test_first_cell_installs_the_checkout_around_it(install: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    (tmp_path / "work" / "capsnet" / "src" / "capsnet").mkdir(parents=True)
    (tmp_path / "work" / "capsnet" / "notebooks").mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    checkout = [[*pip, f"{tmp_path}/work/capsnet[all]"]]
    assert install(tmp_path / "work" / "capsnet" / "notebooks") == checkout
    assert install(tmp_path / "work" / "capsnet") == checkout
    assert install(tmp_path / "work") == checkout  # where it was cloned
    assert install(tmp_path / "work", spec=ModuleSpec("capsnet", None)) == checkout  # the clone's folder, no package
    address = "capsnet[all] @ git+https://example.org/capsnet"
    assert install(tmp_path / "work", source=address) == checkout
    assert install(tmp_path, source=address) == [[*pip, address]]


def test_first_cell_installs_nothing_by_name_before_a_release(
    install: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    """A package of that name on PyPI may be somebody else's."""
    with pytest.raises(RuntimeError, match=r"no checkout of capsnet is around this notebook: .* or set SOURCE"):
        install(tmp_path)


def test_first_cell_does_nothing_where_the_package_is(install: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    assert install(tmp_path, spec=importlib.util.find_spec("capsnet")) == []


def test_first_cell_says_what_to_do_if_pip_fails(install: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"could not install capsnet\[all\]: get the repository and start"):
        install(tmp_path, code=1, source="capsnet[all]")


def test_there_are_six() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]
