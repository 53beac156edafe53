"""How the command line talks to people: results to standard output, problems to standard error."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn


def say(text: str) -> None:
    print(text, flush=True)


def print_table(names: Any, describe: Callable[[str], str]) -> None:
    names = list(names)
    width = max(map(len, names), default=0)
    for name in names:
        say(f"  {name:<{width}}  {describe(name)}")


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        say("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def program(name: str) -> str:
    """How to call a command of this environment from where the user is: by its path unless it is found without."""
    here = Path(sys.executable).parent / name
    if not here.exists() or shutil.which(name) == str(here):
        return name
    return shlex.quote(os.path.relpath(here) if here.is_relative_to(os.getcwd()) else str(here))


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def complain(message: str, code: int) -> NoReturn:
    print(f"capsnet: {message}", file=sys.stderr)
    sys.exit(code)
