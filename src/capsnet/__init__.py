"""Capsule networks you can run, look into, extend and use.

    import capsnet
    model = capsnet.create_model("capsnet", iterations=3)
    result = capsnet.train(capsnet.recipes.get("demo"))

The names in ``__all__`` are the public interface, and so are the names that ``capsnet.experiments``,
``explorer``, ``export``, ``inference``, ``oscillators``, ``search`` and ``sklearn`` list in theirs, and
``capsnet.serving.app.create_app``. Everything else is private and may change.

A name is imported when it is first used (PEP 562), so that ``import capsnet`` does not import PyTorch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from capsnet._version import __version__

if TYPE_CHECKING:
    from capsnet import data, functional, kernels, layers, metrics, models, recipes, routing
    from capsnet._allocator import keep_freed_memory
    from capsnet.inference import Evaluation, Explanation, Prediction, evaluate, explain, predict
    from capsnet.models import Model, Output, create_model, list_models
    from capsnet.training import TrainConfig, cross_validate, read_config, train
    from capsnet.weights import ensemble, list_weights, load, push, save

_NAMES = {  # where the public names are defined; the others are modules
    "capsnet._allocator": ("keep_freed_memory",),
    "capsnet.inference": ("Evaluation", "Explanation", "Prediction", "evaluate", "explain", "predict"),
    "capsnet.models": ("Model", "Output", "create_model", "list_models"),
    "capsnet.training": ("TrainConfig", "cross_validate", "read_config", "train"),
    "capsnet.weights": ("ensemble", "list_weights", "load", "push", "save"),
}

__all__ = [
    "Evaluation",
    "Explanation",
    "Model",
    "Output",
    "Prediction",
    "TrainConfig",
    "__version__",
    "create_model",
    "cross_validate",
    "data",
    "ensemble",
    "evaluate",
    "explain",
    "functional",
    "keep_freed_memory",
    "kernels",
    "layers",
    "list_models",
    "list_weights",
    "load",
    "metrics",
    "models",
    "predict",
    "push",
    "read_config",
    "recipes",
    "routing",
    "save",
    "train",
]

if not TYPE_CHECKING:  # type checkers know the names from above, and report the others

    def __getattr__(name: str) -> Any:
        """Import a public name or a module of the package when it is first used."""
        for module, names in _NAMES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(module), name)
                return value
        if not name.startswith("_") and find_spec(f"capsnet.{name}"):
            return import_module(f"capsnet.{name}")  # which becomes an attribute of the package by being imported
        raise AttributeError(f"module 'capsnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
