"""The same trained network with another routing, sharing its weights.

Several callers may use one model at the same time, each with another routing. So the model is not changed: a caller
gets a shallow copy whose capsule layers are shallow copies with another ``routing``.
"""

import copy
from typing import Any

from torch import nn

from capsnet.models.base import Model, build_routing
from capsnet.routing import Routing, get, list_routings, option_names


def replacements(model: Model) -> list[str]:
    """Names of the routings that ``reroute`` can use: those without learned tensors; none if the model has such."""
    layers = model.routed_layers().values()
    learned = any(len(getattr(layer, "routing_params", ())) for layer in layers)
    return [] if learned or not layers else [name for name in list_routings() if not get(name).param_shapes(2, 2, 2)]


def reroute(model: Model, routing_name: str | None = None, iterations: int | None = None) -> Model:
    """A copy of the model with another routing or number of iterations; the model itself if neither is given."""
    if routing_name is None and iterations is None:
        return model
    layers = model.routed_layers()
    if not layers:
        raise ValueError("this model has no routing that could be replaced")
    result = copy.copy(model)
    result._modules = dict(model._modules)  # copy.copy shares it
    for name, layer in layers.items():
        layer_copy: Any = copy.copy(layer)
        layer_copy.routing = _other_routing(model, layer_copy.routing, routing_name, iterations)
        _replace(result, name.split("."), layer_copy)
    return result


def _replace(module: nn.Module, path: list[str], layer: nn.Module) -> None:
    """Put ``layer`` at ``path``, copying the modules above it."""
    name, *rest = path
    if not rest:
        module._modules[name] = layer
        return
    inner = copy.copy(module._modules[name])
    assert inner is not None
    inner._modules = dict(inner._modules)
    module._modules[name] = inner
    _replace(inner, rest, layer)


def _other_routing(model: Model, routing: Routing, name: str | None, iterations: int | None) -> Routing:
    name = name or routing.name
    if name != routing.name and name not in (known := replacements(model)):
        hint = f"choose one of {', '.join(known)}" if known else "its own has learned tensors that no other knows"
        raise ValueError(f"the routing {name[:40]!r} cannot take the place of {routing.name} in this model: {hint}")
    if name != routing.name:
        if iterations is not None and "iterations" not in option_names(name):
            raise ValueError(f"{name} routing has no iterations to choose")
        return build_routing(name, iterations, model.config.get("squash"))
    if iterations is None:
        return routing
    if not routing.iterates:
        raise ValueError(f"{name} routing has no iterations to choose")
    return get(routing, iterations=iterations)
