"""Names and values that users type: find them, or say in one sentence what is wrong."""

import difflib
from collections.abc import Iterable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from capsnet._limits import DEEPEST

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


def check_depth(what: str, value: Any) -> None:
    """Refuse lists and mappings inside each other beyond what any option has: functions that walk them would fail."""
    level, depth = [value], 0
    while level := [part for whole in level for part in _parts(whole)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"{what} is nested too deeply: more than {DEEPEST} levels")


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()


def check_value(what: str, value: Any, kind: Any, default: Any = None, *, strict: bool = True) -> Any:
    """Return ``value`` if it is of its ``kind``, an annotation; a text becomes what it stands for if not ``strict``.

    Without an annotation it must be of the type of the default. A kind that cannot be checked allows everything.
    """
    from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

    if kind is Parameter.empty:
        kind = Any if default is None or default is Parameter.empty else type(default)
    try:
        return TypeAdapter(kind).validate_python(value, strict=strict)
    except PydanticSchemaGenerationError:
        return value
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{_rule(what, first['msg'])}, got {shown(value)}") from None


def describe_error(error: "ValidationError", what: str = "") -> str:
    """The first problem of a pydantic error as one sentence: ``epochs must be at least 1, got 0``."""
    first = error.errors()[0]
    name = ".".join([what] * bool(what) + [str(part) for part in first["loc"]]) or "the value"
    if first["type"] == "value_error":  # the type's own sentence, which names the value
        return f"{name}: {first.get('ctx', {}).get('error')}"
    sentence = _rule(name, first["msg"])
    return sentence if first["type"] == "missing" else f"{sentence}, got {shown(first['input'])}"


def shown(value: Any) -> str:
    """A value in a message: not more of it than fits a line."""
    text = (
        repr(value) if not isinstance(value, int) or -(10**80) < value < 10**80 else "a number of more than 80 digits"
    )
    return text if len(text) <= 100 else f"{text[:97]}..."


def _rule(name: str, message: str) -> str:
    """``Input should be greater than or equal to 1`` as ``epochs must be at least 1``."""
    subject, should, rule = message.partition(" should ")
    rule = rule.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return f"{name} must {rule}" if should and len(subject.split()) == 1 else f"{name}: {message}"
