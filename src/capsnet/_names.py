"""Names and values that users type: find them, or say in one sentence what is wrong."""

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def check_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return ``name`` if it is known; else say which ones are, and which was probably meant."""
    options = list(known)
    if name in options:
        return name
    close = difflib.get_close_matches(str(name), options, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown {what} {name!r}.{hint} Known: {', '.join(options) or 'none'}")


def describe_error(error: "ValidationError", what: str = "") -> str:
    """The first problem of a pydantic error as one sentence: ``epochs must be at least 1, got 0``."""
    first = error.errors()[0]
    name = ".".join([what] * bool(what) + [str(part) for part in first["loc"]]) or "the value"
    if first["type"] == "value_error":  # the type's own sentence, which names the value
        return f"{name}: {first['ctx']['error']}"
    subject, should, rule = first["msg"].partition(" should ")
    rule = rule.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    sentence = f"{name} must {rule}" if should and len(subject.split()) == 1 else f"{name}: {first['msg']}"
    return sentence if first["type"] == "missing" else f"{sentence}, got {first['input']!r}"
