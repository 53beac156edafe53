"""From words to a verb: tyro makes the command line from the verbs' dataclasses.

A verb is a dataclass: its docstring is the help, its fields are the flags, the string below a field is that flag's
help, and ``run(arguments)`` does the work; ``arguments`` are the words as they were typed, for messages that repeat
them. No verb's module imports PyTorch before ``run``, so that help is quick.
"""

import ast
import contextlib
import dataclasses
import difflib
import io
import itertools
import os
import re
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import tyro
from tyro.conf import HelptextFromCommentsOff
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from capsnet._names import check_name

KINDS = {int: ("N", "a whole number"), float: ("X", "a number"), str: ("TEXT", "a text")}
METAVARS = {  # of flags whose value is not called as the flag is
    "images": "IMAGE...",
    "init": "MODEL",
    "teacher": "MODEL",
    "models": "MODEL...",
    "out": "FOLDER",
    "routings": "ROUTING...",
    "save_reconstructions": "FOLDER",
    "set": "KEY=VALUE",
}
Device = Annotated[str, tyro.conf.arg(help="Where to compute: auto, cpu, cuda or mps.")]
registry = ConstructorRegistry()


def parse(commands: Sequence[Any], arguments: Sequence[str], description: str = "") -> Any:
    """The one of the commands that the arguments ask for; ``ValueError`` with one sentence if they are wrong."""
    choice: Any = Union[tuple(commands)]  # noqa: UP007 - made at run time
    errors, before = io.StringIO(), dict(os.environ)
    if not {"-h", "--help"} & set(arguments):
        os.environ["COLUMNS"] = "100000"  # errors are printed without line breaks, help for the width of the terminal
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(choice, prog="capsnet", args=arguments, description=description, registry=registry)
    except SystemExit as stop:
        if stop.code in (None, 0):
            raise
        raise ValueError(sentence(errors.getvalue(), commands, arguments)) from None
    finally:
        os.environ.pop("COLUMNS", None)
        os.environ.update(before)


def sentence(box: str, commands: Sequence[Any], arguments: Sequence[str]) -> str:
    """The error that tyro shows in a box, as one sentence. tyro has no public hook for errors."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip("│ ") for line in box.splitlines()]
    rows = [row for row in lines[1:] if row]  # without the title
    parts = [list(part) for rule, part in itertools.groupby(rows, lambda row: not row.strip("─-")) if not rule]
    text = " ".join(" ".join(parts[0]).split()) if parts else ""
    if match := re.match(r"Missing from (.+?):", text):
        return f"`{match[1]}` needs {parts[0][1]}: see `{match[1]} --help`"
    if match := re.match(r"Missing value for argument '(.+?)'", text):
        return f"{match[1]} needs a value"
    if match := re.match(r"invalid choice '(.*)' for argument '(.+?)'. Expected one of (\(.*\))", text):
        return check_name(match[2], match[1], ast.literal_eval(match[3]))  # which raises the sentence
    if match := re.match(r"Unrecognized.*? options: (\S+?),?( |$)", text):
        return unrecognized(match[1], commands, arguments)
    if match := re.match(r"Error parsing ([^-].*?: |)(.*)", text):  # the names of flags stay, those of dataclasses go
        return match[2]
    return text or "the arguments are wrong: see `capsnet help`"


def unrecognized(word: str, commands: Sequence[Any], arguments: Sequence[str]) -> str:
    """Which flag was probably meant: the verb's help knows them all."""
    names = itertools.takewhile(lambda word: not word.startswith("-"), arguments[:2])
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit, ValueError):
        parse(commands, [*names, "--help"])
    command = (re.search(r"usage: (.*?) \[-h\]", shown.getvalue()) or ["", "capsnet"])[1]
    if not word.startswith("-"):
        return f"`{command}` does not take {word!r}: see `{command} --help`"
    flag = word.partition("=")[0]
    close = difflib.get_close_matches(flag.replace("_", "-"), re.findall(r"--[a-z][\w.-]*", shown.getvalue()), n=1)
    return f"`{command}` has no flag {flag}." + (f" Did you mean {close[0]}?" if close else f" See `{command} --help`")


@registry.primitive_rule
def text_or_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Texts and numbers, or None: with metavars for people and one style of error."""
    kinds = set(get_args(info.type)) if get_origin(info.type) in (Union, UnionType) else {info.type}
    plain = {getattr(kind, "__origin__", kind) for kind in kinds - {NoneType}}
    if len(plain) != 1 or (kind := plain.pop()) not in KINDS:
        return None
    metavar, expected = KINDS[kind]

    def convert(words: list[str]) -> Any:
        if NoneType in kinds and words[0] == "None":
            return None
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"expected {expected}, got {words[0]!r}") from None

    def fits(value: Any) -> bool:
        return (value is None and NoneType in kinds) or isinstance(value, (int, float) if kind is float else kind)

    return PrimitiveConstructorSpec(1, metavar, convert, fits, lambda value: [str(value)])


@registry.struct_rule
def flags(info: StructTypeInfo) -> StructConstructorSpec | None:
    """The fields of a dataclass as tyro finds them, with metavars for people and without defaults that say nothing."""
    if not dataclasses.is_dataclass(info.type) or HelptextFromCommentsOff in info.markers:
        return None  # with the marker it is the turn of tyro's own rule
    own = dataclasses.replace(info, markers=(*info.markers, HelptextFromCommentsOff))
    spec = ConstructorRegistry.get_struct_spec(own)
    assert isinstance(spec, StructConstructorSpec)
    return dataclasses.replace(spec, fields=tuple(map(for_people, spec.fields)))


def for_people(field: StructFieldSpec) -> StructFieldSpec:
    """A flag with a metavar, which is a text's name, and its help in one line; its own annotations come last."""
    kind, *annotations = get_args(field.type) if get_origin(field.type) is Annotated else [field.type]
    metavar = METAVARS.get(field.name) or (field.name.upper() if kind in (str, str | None) else None)
    kind = type(field.default) if kind is Any else kind
    kind = Annotated[(kind, tyro.conf.arg(metavar=metavar, help_behavior_hint=default_hint), *annotations)]
    text = field.helptext() if callable(field.helptext) else field.helptext
    return dataclasses.replace(field, type=kind, helptext=text and " ".join(text.split()))


def default_hint(default: str) -> str:
    return "" if default in ("None", "") else f"(default: {default})"
