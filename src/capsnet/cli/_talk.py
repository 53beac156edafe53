"""How the command line talks to people: results to standard output, problems and hints to standard error."""

import codecs
import io
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from capsnet._names import describe_error


def write_in_any_locale() -> None:
    """Let standard output replace what its encoding does not have, instead of failing: "?" in an ASCII terminal. Names
    of files that are not in the encoding are written as the bytes that they are."""
    codecs.register_error("capsnet", _substitute)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="capsnet")


def _substitute(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    codes = map(ord, error.object[error.start : error.end])
    return bytes(code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else ord("?") for code in codes), error.end


def say(text: str) -> None:
    print(text, flush=True)


def hint(text: str) -> None:
    """Something worth knowing that is no result: programs that read standard output do not see it."""
    print(f"capsnet: {text}", file=sys.stderr, flush=True)


def complain(message: str, code: int) -> NoReturn:
    hint(message)
    sys.exit(code)


def print_table(names: Iterable[str], describe: Callable[[str], str]) -> None:
    print_columns([(name, describe(name)) for name in names])


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def program(name: str) -> str:
    """How to call a command of this environment: by name if the shell finds it, else by its path."""
    path = Path(sys.executable).parent / name
    if not path.exists() or shutil.which(name) == str(path):
        return name
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(os.getcwd()) else str(path))


def relative(folder: Path) -> str:
    """A folder as a person would type it from the working directory."""
    return shlex.quote(os.path.relpath(folder) if folder.resolve().is_relative_to(os.getcwd()) else str(folder))


def one_line(error: Exception) -> str:
    if type(error).__name__ == "ValidationError" and hasattr(
        error, "errors"
    ):  # pydantic's own text is a page, with a URL
        return describe_error(error)  # type: ignore[arg-type]
    return " ".join(str(error).split()) or type(error).__name__
