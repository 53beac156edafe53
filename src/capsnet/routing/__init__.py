"""Routing algorithms: how children choose their parents. One algorithm, one file; ``get`` finds them by name."""

from capsnet.routing._registry import describe, get, list_routings, option_names, register
from capsnet.routing.base import Routed, Routing, Trace, couple
from capsnet.routing.dynamic import Dynamic

register(Dynamic)

__all__ = [
    "Dynamic",
    "Routed",
    "Routing",
    "Trace",
    "couple",
    "describe",
    "get",
    "list_routings",
    "option_names",
    "register",
]
