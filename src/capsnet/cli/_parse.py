"""From words to a verb: tyro makes the command line from the verbs' dataclasses.

A verb is a dataclass: its docstring is the help, its fields are the flags, the string below a field is that flag's
help, and ``run`` does the work. No verb's module imports PyTorch before ``run``, so that help is quick.
"""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import io
import itertools
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from capsnet._names import check_name

NUMBERS = {int: ("N", "a whole number"), float: ("X", "a number")}
METAVARS = {  # of flags whose value is not called as the flag is
    "images": "IMAGE...",
    "init": "MODEL",
    "models": "MODEL...",
    "out": "FOLDER",
    "routings": "ROUTING...",
    "save_reconstructions": "FOLDER",
    "set": "KEY=VALUE",
}
INLINE = {"inline": True}  # metadata of a field that holds a dataclass, whose fields are flags of the verb itself
RENAMED = {"--output": "--out"}  # old spellings of flags, which work until the next version


class Verb(Protocol):
    """What the command line can do."""

    def run(self, arguments: Sequence[str]) -> None:
        """Do it. ``arguments`` are the words as they were typed, for messages that repeat them."""


@dataclasses.dataclass
class Leaf:
    """A command whose name is listed, but which is not the one that was typed: its flags do not matter."""


def command(name: str, verb: Any, summary: str | None = None, default: Any = None) -> Any:
    """A subcommand for ``choice``. Without a summary its whole docstring is shown."""
    more = {} if default is None else {"default": default}
    if isinstance(verb, type):
        return Annotated[verb, tyro.conf.subcommand(name, description=summary, **more)]
    return Annotated[Any, tyro.conf.subcommand(name, description=summary, constructor_factory=lambda: verb)]


def choice(commands: Sequence[Any]) -> Any:
    return Union[tuple(commands)]  # noqa: UP007 - made at run time


def modern(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments with today's spellings of the flags, and the old spellings among them."""
    words, old = [], []
    for word in arguments:
        flag, equals, value = word.partition("=")
        if flag in RENAMED:
            old.append(flag)
        words.append(RENAMED.get(flag, flag) + equals + value)
    return words, old


def parse(commands: Any, arguments: Sequence[str], description: str = "") -> Verb:
    """The verb that the arguments ask for; ``ValueError`` with one sentence if they are wrong."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), one_line_per_row(arguments):
            return tyro.cli(commands, prog="capsnet", args=arguments, description=description, registry=registry)
    except SystemExit as stop:
        if stop.code in (None, 0):
            raise
        raise ValueError(sentence(errors.getvalue(), commands, arguments)) from None


@contextlib.contextmanager
def one_line_per_row(arguments: Sequence[str]) -> Iterator[None]:
    """Let tyro print errors without line breaks; only help is printed for the width of the terminal."""
    if {"-h", "--help"} & set(arguments):
        yield
        return
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def sentence(box: str, commands: Any, arguments: Sequence[str]) -> str:
    """The error that tyro shows in a box, as one sentence."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip("│ ") for line in box.splitlines()]
    rows = [row for row in lines[1:] if row]  # without the title
    parts = [list(part) for rule, part in itertools.groupby(rows, lambda row: not row.strip("─-")) if not rule]
    text = " ".join(" ".join(parts[0]).split()) if parts else ""
    if match := re.match(r"Missing from (.+?):", text):
        return f"`{match[1]}` needs {parts[0][1]}: see `{match[1]} --help`"
    if match := re.match(r"Missing value for argument '(.+?)'", text):
        return f"{match[1]} needs a value"
    if match := re.match(r"invalid choice '(.*)' for argument '(.+?)'. Expected one of (\(.*\))", text):
        return unknown(match[2], match[1], ast.literal_eval(match[3]))
    if match := re.match(r"Unrecognized.*? options: (\S+?),?( |$)", text):
        return unrecognized(match[1], commands, arguments)
    if match := re.match(r"Error parsing ([^-].*?: |)(.*)", text):  # the names of flags stay, those of dataclasses go
        return match[2]
    return text or "the arguments are wrong: see `capsnet help`"


def unknown(what: str, value: str, known: Sequence[str]) -> str:
    try:
        return check_name(what, value, known)
    except ValueError as error:
        return str(error)


def unrecognized(word: str, commands: Any, arguments: Sequence[str]) -> str:
    """Which flag was probably meant: the verb's help knows them all."""
    names = list(arguments[: next((n for n, w in enumerate(arguments) if w.startswith("-")), len(arguments))])
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit, ValueError):
        parse(commands, [*names[:2], "--help"])
    command = (re.search(r"usage: (.*?) \[-h\]", shown.getvalue()) or ["", "capsnet"])[1]
    if not word.startswith("-"):
        return f"`{command}` does not take {word!r}: see `{command} --help`"
    flag = word.partition("=")[0]
    close = difflib.get_close_matches(flag.replace("_", "-"), re.findall(r"--[a-z][\w.-]*", shown.getvalue()), n=1)
    return f"`{command}` has no flag {flag}." + (f" Did you mean {close[0]}?" if close else f" See `{command} --help`")


registry = ConstructorRegistry()


@registry.primitive_rule
def text_or_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Texts and numbers, or None: with metavars for people and one style of error."""
    kinds = set(get_args(info.type)) if get_origin(info.type) in (Union, UnionType) else {info.type}
    plain = {getattr(kind, "__origin__", kind) for kind in kinds - {NoneType}}
    if len(plain) != 1 or (kind := plain.pop()) not in (str, int, float):
        return None
    metavar, expected = NUMBERS.get(kind, ("TEXT", "a text"))

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
    """The fields of a dataclass as flags. A text's metavar is the name of its field, if ``METAVARS`` has no other."""
    if not dataclasses.is_dataclass(info.type) or info.type.__module__.partition(".")[0] != "capsnet":
        return None  # tyro has dataclasses of its own
    hints, helps = get_type_hints(info.type, include_extras=True), field_docstrings(info.type)
    specs = []
    for field in dataclasses.fields(info.type):
        value = getattr(info.default, field.name) if isinstance(info.default, info.type) else initial(field)
        kind = hints[field.name]
        if field.metadata.get("inline"):
            kind = Annotated[type(value), tyro.conf.arg(name="")]
        elif not dataclasses.is_dataclass(value):
            metavar = field.metadata.get("metavar") or METAVARS.get(field.name)
            if metavar is None and get_origin(kind) is not dict and "str" in re.findall(r"\w+", str(kind)):
                metavar = field.name.upper()
            kind = Annotated[kind, tyro.conf.arg(metavar=metavar, help_behavior_hint=default_hint)]
        specs.append(StructFieldSpec(field.name, kind, value, helps.get(field.name)))  # type: ignore[arg-type]
    return StructConstructorSpec(info.type, tuple(specs))


def initial(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING_NONPROP if field.default is dataclasses.MISSING else field.default


def default_hint(default: str) -> str:
    return "" if default in ("None", "") else f"(default: {default})"


def field_docstrings(kind: type) -> Mapping[str, str]:
    """The strings below the fields of a dataclass and of those it inherits from."""
    found: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        except OSError:  # installed without sources
            continue
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[field.target.id] = " ".join(below.value.value.split())  # type: ignore[attr-defined]
    return found
