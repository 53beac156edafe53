"""Find a routing by name."""

import dataclasses

from capsnet._names import check_name
from capsnet.routing.base import Routing

_ROUTINGS: dict[str, type[Routing]] = {}


def register(routing: type[Routing]) -> type[Routing]:
    """Make a routing known under its ``name``. A new algorithm is one file and one call of this."""
    if not routing.name:
        raise ValueError(f"{routing.__name__} needs a class attribute `name` to be registered")
    if _ROUTINGS.get(routing.name, routing) is not routing:
        raise ValueError(f'a routing named "{routing.name}" is registered already')
    _ROUTINGS[routing.name] = routing
    return routing


def list_routings() -> list[str]:
    """The names that ``get`` knows."""
    return sorted(_ROUTINGS)


def option_names(name: str) -> list[str]:
    """The hyper-parameters a routing takes."""
    return [field.name for field in dataclasses.fields(_find(name))]


def describe(name: str) -> str:
    """The first line of the routing's documentation."""
    return (_find(name).__doc__ or "").strip().partition("\n")[0]


def get(name: str | Routing, **options: object) -> Routing:
    """The routing called ``name`` with the given hyper-parameters: ``get("dynamic", iterations=3)(votes)``.

    A routing object stands for itself, registered or not; options are changed in a copy of it.
    """
    routing = type(name) if isinstance(name, Routing) else _find(name)
    for option in options:
        check_name(f"option of {routing.name} routing", option, [field.name for field in dataclasses.fields(routing)])
    if isinstance(name, Routing):
        return dataclasses.replace(name, **options) if options else name
    return routing(**options)


def _find(name: str) -> type[Routing]:
    return _ROUTINGS[check_name("routing", name, list_routings())]
