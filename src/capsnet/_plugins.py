"""Load registrations from outside the package.

A plugin is a module that registers routings, models, data sets, recipes or experiments when it is imported. It is named
by an entry point of an installed package, in the group ``capsnet.plugins``, or by the environment variable
``CAPSNET_PLUGINS``: module names or paths of ``.py`` files, separated as in ``PATH``. The variable is inherited by the
processes that a command starts, so that a plugin also works in a search or under ``torchrun``.
"""

import importlib
import importlib.util
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

GROUP, VARIABLE = "capsnet.plugins", "CAPSNET_PLUGINS"


def load_plugins() -> list[str]:
    """Import all plugins and return their names. Importing one twice has no effect."""
    modules = [entry.value.partition(":")[0] for entry in entry_points(group=GROUP)]
    modules += [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    for name in modules:
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                importlib.import_module(name)
        except Exception as error:
            raise ValueError(f"the plugin {name!r} could not be loaded: {type(error).__name__}: {error}") from error
    return modules


def _import_file(path: Path) -> None:
    """Import a file as a top-level module of its name, so that its classes can be found and pickled."""
    module = sys.modules.get(path.stem)
    if module is not None:
        if Path(getattr(module, "__file__", None) or "") == path.resolve():
            return
        raise ImportError(f"a module named {path.stem!r} is imported already: rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
