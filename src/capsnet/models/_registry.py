"""The names of the models, and how to build one."""

import inspect
from typing import Any, NamedTuple

from capsnet._limits import LONGEST, MOST_PIXELS
from capsnet._names import check_name, check_value
from capsnet.models._outline import check_memory, is_outlining
from capsnet.models.base import Model


class Entry(NamedTuple):
    """A registered model: the class, changes of its defaults, and a description in one line."""

    build: type[Model]
    defaults: dict[str, Any]
    summary: str


_MODELS: dict[str, Entry] = {}
ENSEMBLE = "ensemble"  # the name in a config that has members instead of options


def register(name: str, build: type[Model], summary: str, **defaults: Any) -> None:
    """Register a class under a name, with other defaults if given."""
    if name in (*_MODELS, ENSEMBLE):
        raise ValueError(f"a model named {name!r} is registered already")
    _MODELS[name] = Entry(build, defaults, summary)


def list_models() -> list[str]:
    """The names that ``create_model`` knows."""
    return sorted(_MODELS)


def describe(name: str) -> str:
    """One line about a model."""
    return "several trained networks as one model" if name == ENSEMBLE else _find(name).summary


def model_options(name: str) -> dict[str, Any]:
    """What ``create_model(name)`` takes, with the default values."""
    entry = _find(name)
    parameters = inspect.signature(entry.build.__init__).parameters
    return {k: p.default for k, p in parameters.items() if k != "self"} | entry.defaults


def create_model(name: str, **options: Any) -> Model:
    """Build a registered model: ``create_model("capsnet", image_size=(28, 28), iterations=3)``.

    ``model.config`` holds every option, defaults included, so that the weights can be loaded after a default has
    changed.
    """
    known = model_options(name)
    for option in options:
        check_name(f"option of {name}", option, known)
    build = _find(name).build
    kinds = inspect.signature(build.__init__, eval_str=True).parameters
    config = {}
    for key, value in (known | options).items():
        value = tuple(value) if isinstance(value, list) else value  # as they come from JSON
        if isinstance(value, tuple) and len(value) > LONGEST:
            raise ValueError(f"option {key!r} of {name} has {len(value):,} values, at most {LONGEST} are taken")
        config[key] = check_value(f"option {key!r} of {name}", value, kinds[key].annotation, known[key])
    height, width = config.get("image_size", (1, 1))
    if height * width > MOST_PIXELS:
        raise ValueError(f"{name} takes at most {MOST_PIXELS:,} pixels, got {height} x {width}")
    if not is_outlining():
        check_memory(name, lambda: build(**config))
    model = build(**config)
    model.config = {"name": name, **config}
    return model


def _find(name: str) -> Entry:
    return _MODELS[check_name("model", name, list_models())]
