"""Every command that the documentation shows is understood."""

import shlex
from pathlib import Path

import pytest

import capsnet
from capsnet import cli, experiments, explorer, export, search
from tests.cli.commands import exit_code


def documented_commands() -> list[str]:
    """Every `capsnet ...` line of an indented block in the README and the guides."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines() if line.startswith("    capsnet ")]
    return list(dict.fromkeys(line.split("  #")[0].strip() for line in lines))


class BegunError(Exception):
    """A verb has begun its work."""


@pytest.mark.parametrize("line", documented_commands())
def test_documented_command_is_understood(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Verbs that only tell something run; the others are parsed for real and stop where their work would begin."""
    words = shlex.split(line)[1:]
    if words[0] == "--tyro-write-completion":
        words[-1] = str(tmp_path / "completion")
    if (
        words[0] in ("list", "help", "info")
        or words[0].startswith("-")
        or {"--list", "--spaces", "--help"} & set(words)
    ):
        assert exit_code(*words) == 0
        return

    def begin(*arguments: object, **more: object) -> None:
        raise BegunError

    for verb in ("train", "cross_validate", "evaluate", "explain", "load", "ensemble", "push"):
        monkeypatch.setattr(capsnet, verb, begin)
    for verb in ("explore", "write_static"):
        monkeypatch.setattr(explorer, verb, begin)
    for room, verb in ((experiments, "reproduce"), (search, "search"), (export, "export")):
        monkeypatch.setattr(room, verb, begin)
    with pytest.raises(BegunError):
        cli.main(words)
