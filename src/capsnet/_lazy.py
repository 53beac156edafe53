"""Packages whose names are imported when the first of them is used (PEP 562): help is shown without PyTorch."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(package: str, modules: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package: the first name used of its ``__all__`` imports all the
    ``modules``, whose names are separated by blanks."""
    namespace = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        if name not in namespace["__all__"]:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        for module in modules.split():
            defined = vars(import_module(f"{package}.{module}"))
            for key in namespace["__all__"]:
                if key in defined:
                    namespace.setdefault(key, defined[key])
        return namespace[name]

    return getattribute, lambda: sorted({*namespace, *namespace["__all__"]})
