"""Pages of the site whose source is not in docs/: made when the site is built, so that none can go stale."""

import ast
import contextlib
import io
import json
import os
import re
from pathlib import Path

from capsnet import cli
from tools.release import EMPTY

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
WIDTH = 100  # of the help texts
PRIVATE_ROOMS = ("cli",)  # for the shell; `commands.md` has it
# public modules whose names their package does not re-export
MODULES = {"drawing": ("figures", "pictures", "plots"), "routing": ("steps",), "serving": ("app", "server")}


def commands() -> str:
    """What ``capsnet --help`` and ``capsnet VERB --help`` print, for all verbs, and all flags of one recipe."""
    page = [
        "# Every command",
        "",
        "What `capsnet --help` and `capsnet VERB --help` print. [The command line](cli.md) explains words in capitals,",
        "exit codes and environment variables.",
        "",
        help_text("--help"),
    ]
    for verb in cli.VERBS:
        page += [f"## capsnet {verb}", "", help_text(verb, "--help")]
    page += ["## capsnet train demo", "", "Every recipe has these flags; the defaults are the recipe's.", ""]
    page += [help_text("train", "demo", "--help")]
    return "\n".join(page)


def help_text(*words: str) -> str:
    """The help for some words as a block of plain text."""
    shown, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            cli.main(words)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue()).strip()
    if not text.startswith("usage: capsnet"):
        raise ValueError(f"`capsnet {' '.join(words)}` printed no help but {text[:80]!r}")
    return f"```text\n{text}\n```\n"


def notebooks() -> dict[str, Path]:
    """The tutorials in their order: name to file."""
    return {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def title(notebook: Path) -> str:
    """The heading of a notebook."""
    return notebook_page(notebook).partition("\n")[0].lstrip("# ")


def notebook_page(notebook: Path) -> str:
    """A notebook as Markdown: its texts, and its code in blocks."""
    parts, content = [], notebook.read_text()
    for cell in json.loads(content)["cells"]:
        text = "".join(cell["source"]).strip()
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    where = f"A notebook: `notebooks/{notebook.name}` in the repository."
    if EMPTY in content:
        where += " Start it in a checkout: there is no published address to install from yet."
    parts.insert(1, f"*{where}*")
    return "\n\n".join(parts) + "\n"


def rooms() -> list[str]:
    """The public modules and packages of ``capsnet``, by name."""
    found = [
        path.stem for path in (SOURCE / "capsnet").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    return sorted(name for name in found if not name.startswith("_") and name not in PRIVATE_ROOMS)


def reference(room: str) -> str:
    """The page of a room: mkdocstrings fills it from the docstrings."""
    module = f"capsnet.{room}" if room else "capsnet"
    page = [f"# {module}", f"::: {module}"]
    for name in MODULES.get(room, ()):
        page += [f"## {module}.{name}", f"::: {module}.{name}\n    options:\n      heading_level: 3"]
    return "\n\n".join(page) + "\n"


def linked_source(path: Path) -> str:
    """A Python file as a page with numbered lines."""
    name = path.relative_to(ROOT)
    return f'# {name}\n\n```python linenums="1"\n{path.read_text()}\n```\n'


def line_of(path: Path, name: str) -> int:
    """The line on which a name of a Python file is defined: ``Class.method``, ``function`` or a constant."""
    return definition(path, name).lineno


def definition(path: Path, name: str) -> ast.stmt:
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    found: ast.stmt | None = None
    for part in name.split("."):
        found = next((node for node in body if part in _names(node)), None)
        if found is None:
            raise ValueError(f"{path.relative_to(ROOT)} has no {name}")
        body = getattr(found, "body", [])
    assert found is not None
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def licences() -> str:
    """The licence of the code and that of the digits."""
    code = (ROOT / "LICENSE").read_text()
    digits = (SOURCE / "capsnet/data/mnist/ORIGIN.md").read_text().replace("# MNIST", "## MNIST", 1)
    return f"# Licences\n\n## The code\n\n```text\n{code}```\n\n{digits}"
