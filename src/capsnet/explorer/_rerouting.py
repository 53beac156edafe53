"""The same trained network with another routing, for one call: weights shared, nothing of the original touched.

Many visitors ask one model at the same time, each with the routing of their choice. So nothing is set on the shared
model: a call gets a shallow copy whose capsule layers are shallow copies with another ``routing``.
"""

import copy
from functools import lru_cache
from typing import Any, cast

from torch import Tensor, nn

from capsnet.layers import ClassCaps, DenseCaps
from capsnet.models import Model
from capsnet.models.base import build_routing
from capsnet.routing import Routed, Routing, get, list_routings, option_names


def routed_layers(model: Model) -> dict[str, nn.Module]:
    """The layers of a model that route, by name."""
    return {name: layer for name, layer in model.named_children() if isinstance(_routing(layer), Routing)}


def routing_of(model: Model) -> Routing | None:
    """The routing of the class capsules, or None where nothing is routed."""
    return next((_routing(layer) for layer in reversed(routed_layers(model).values())), None)


@lru_cache(maxsize=1)
def _without_tensors() -> tuple[str, ...]:
    return tuple(name for name in list_routings() if not get(name).param_shapes(2, 2, 2))


def replacements(model: Model) -> list[str]:
    """Names of the routings that may stand in: those without learned tensors, in a model that learned none."""
    layers = routed_layers(model).values()
    learned = any(len(getattr(layer, "routing_params", ())) for layer in layers)
    return [] if learned or not layers else list(_without_tensors())


def reroute(model: Model, name: str | None, iterations: int | None) -> Model:
    """The model with another routing or number of iterations; the model itself if neither is asked for."""
    if name is None and iterations is None:
        return model
    layers = routed_layers(model)
    if not layers:
        raise ValueError("this model has no routing that could be replaced")
    return _with_layers(model, {key: _twin(layer, model, name, iterations) for key, layer in layers.items()})


def listening(model: Model, heard: list[tuple[Tensor, Tensor | None]]) -> Model:
    """The model, telling ``heard`` the children and their activations that its class capsules get."""
    return _with_layers(model, {"classes": _Listening(class_layer(model), heard)})


def class_layer(model: Model) -> DenseCaps | ClassCaps:
    """The class capsules whose routing can be looked at: their children are a list (B, I, K) or a grid."""
    layer = getattr(model, "classes", None)
    if not isinstance(layer, DenseCaps | ClassCaps):
        raise ValueError("this model has no layer of class capsules to look into")
    return layer


class _Listening(nn.Module):
    def __init__(self, layer: DenseCaps | ClassCaps, heard: list[tuple[Tensor, Tensor | None]]) -> None:
        super().__init__()
        self.layer, self.heard = layer, heard

    def forward(self, u: Tensor, act: Tensor | None = None, **options: Any) -> Routed:
        self.heard.append((u, act))
        return cast(Routed, self.layer(u, act, **options))


def _routing(layer: nn.Module) -> Routing | None:
    return getattr(layer, "routing", None)


def _twin(layer: nn.Module, model: Model, name: str | None, iterations: int | None) -> nn.Module:
    own = _routing(layer)
    assert own is not None
    name = name or own.name
    if name != own.name and name not in (known := replacements(model)):
        there = f"choose one of {', '.join(known)}" if known else "its own has learned tensors that no other knows"
        raise ValueError(f"the routing {name[:40]!r} cannot take the place of {own.name} in this model: {there}")
    if iterations is not None and "iterations" not in option_names(name):
        raise ValueError(f"{name} routing has no iterations to choose")
    if name != own.name:
        routing = build_routing(name, iterations, model.config.get("squash"))
    else:
        routing = own if iterations is None else get(own, iterations=iterations)
    twin = copy.copy(layer)
    twin.routing = routing  # type: ignore[assignment]  # of the copy
    return twin


def _with_layers(model: Model, layers: dict[str, nn.Module]) -> Model:
    twin = copy.copy(model)
    twin._modules = {**model._modules, **layers}  # a dictionary of its own: the copy's was the original's
    return twin
