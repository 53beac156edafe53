"""Find a routing by name."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

from capsnet._names import check_name, check_value
from capsnet.routing.base import Routing

_ROUTINGS: dict[str, type[Routing]] = {}


def register(routing: type[Routing]) -> type[Routing]:
    """Register a routing under its ``name``, and its ``forms`` under theirs."""
    if not routing.name:
        raise ValueError(f"{routing.__name__} needs a class attribute `name` to be registered")
    others = [name for name in list_forms() if _find(name)[0] is not routing]
    for name in (routing.name, *routing.forms):
        if name in others:
            raise ValueError(f'a routing named "{name}" is registered already')
    _ROUTINGS[routing.name] = routing
    return routing


def list_routings() -> list[str]:
    """The names of the registered routings."""
    return sorted(_ROUTINGS)


def list_forms() -> list[str]:
    """The names that ``get`` knows: each routing, followed by its named forms."""
    return [name for routing in list_routings() for name in (routing, *_ROUTINGS[routing].forms)]


def option_names(name: str) -> list[str]:
    """The hyper-parameters a routing takes."""
    return [field.name for field in dataclasses.fields(_find(name)[0])]


def describe(name: str) -> str:
    """The first line of the routing's documentation, and what a form sets."""
    routing, options = _find(name)
    line = (routing.__doc__ or "").strip().partition("\n")[0]
    settings = ", ".join(f"{option}={value}" for option, value in options.items())
    return f"{line.rstrip('.')}, with {settings}." if settings else line


def get(name: str | Routing, **options: object) -> Routing:
    """The routing or form called ``name`` with the given hyper-parameters: ``get("dynamic", iterations=3)(votes)``.

    A routing object is returned as it is, or as a copy with the options changed.
    """
    routing, preset = (type(name), {}) if isinstance(name, Routing) else _find(name)
    kinds = get_type_hints(routing, include_extras=True)
    for option, value in options.items():
        check_name(f"option of {routing.name} routing", option, [field.name for field in dataclasses.fields(routing)])
        check_value(f"option {option} of {routing.name} routing", value, kinds[option])
    if isinstance(name, Routing):
        return dataclasses.replace(name, **options) if options else name
    return routing(**{**preset, **options})


def _find(name: str) -> tuple[type[Routing], Mapping[str, Any]]:
    """The class that a routing or a form belongs to, and what the form sets."""
    check_name("routing", name, list_forms())
    if name in _ROUTINGS:
        return _ROUTINGS[name], {}
    return next((routing, routing.forms[name]) for routing in _ROUTINGS.values() if name in routing.forms)
