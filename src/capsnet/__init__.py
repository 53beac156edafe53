"""Capsule networks you can run, look into, extend and use.

    import capsnet
    model = capsnet.create_model("capsnet", iterations=3)
    result = capsnet.train(capsnet.recipes.get("demo"))

What is named here is the public interface, and so is what `capsnet.experiments`, `explorer`, `search` and `export` name
(import them by name); everything else is private and may change.
"""

from capsnet import data, functional, kernels, layers, metrics, models, recipes, routing
from capsnet._version import __version__
from capsnet.inference import Evaluation, Prediction, evaluate, predict
from capsnet.models import Model, Output, create_model, list_models
from capsnet.training import TrainConfig, cross_validate, read_config, train
from capsnet.weights import ensemble, list_weights, load, save

__all__ = [
    "Evaluation",
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
    "functional",
    "kernels",
    "layers",
    "list_models",
    "list_weights",
    "load",
    "metrics",
    "models",
    "predict",
    "read_config",
    "recipes",
    "routing",
    "save",
    "train",
]
