"""Unusual machines: other locales, narrow terminals, no home directory, a cache that cannot be written."""

import ast
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import capsnet
from capsnet import _files, cli, data
from capsnet.cli._talk import say, write_in_any_locale

SOURCE = Path(capsnet.__file__).parent


def unsaid(tree: ast.AST) -> Iterator[str]:
    """Calls that read or write text in the encoding of the locale."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        called = ast.unparse(node.func)
        name, words = called.rpartition(".")[2], [keyword.arg for keyword in node.keywords]
        if name in ("read_text", "write_text") or (called.startswith("subprocess.") and "text" in words):
            yield ast.unparse(node)
        modes = [
            part.value for part in (*node.args[1:], *(k.value for k in node.keywords)) if isinstance(part, ast.Constant)
        ]
        if called in ("open", "os.fdopen", "gzip.open") and not any("b" in str(mode) for mode in modes):
            yield ast.unparse(node)


def test_text_has_an_encoding_of_its_own() -> None:
    """In a locale that is not UTF-8 a file would be read, or written, otherwise."""
    found = {
        f"{path.relative_to(SOURCE)}: {call}"
        for path in SOURCE.rglob("*.py")
        for call in unsaid(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_output_of_a_terminal_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--help"])  # its lists have bullets
    assert stopped.value.code in (None, 0)
    write_in_any_locale()
    say("\u00fc \udcfc.png")  # the second is a byte of a name that is not UTF-8
    assert written.getvalue().endswith(b"? \xfc.png\n")


def test_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit):
        cli.main(["predict", "--help"])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    tables = shown[shown.index("positional arguments") :].splitlines()  # the terminal breaks the paragraphs before
    assert max(map(len, tables)) <= 40
    assert any("--model" in line for line in tables)


def test_no_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOME", "CAPSNET_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is for a user who is not in the list of users
    monkeypatch.setattr(sys, "platform", "linux")
    assert _files.cache_dir() == Path("/nonexistent/.cache/capsnet")


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "file" / "cache"))  # also root cannot
    assert not _files.store(_files.cache_dir() / "mnist" / "x", b"x")
    assert len(data.load("mnist", "test")) == 10_000
    with pytest.raises(FileNotFoundError, match=r"cifar10: .* could not be downloaded \(.*Not a directory"):
        data.load("cifar10", "test")
