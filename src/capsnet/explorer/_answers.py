"""What each question of the page is answered with: functions of an exhibit, run in a worker thread."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from capsnet.explorer._rerouting import replacements, reroute, routing_of
from capsnet.explorer._seen import place, preparation, see, tiled, to_input
from capsnet.explorer._studio import Exhibit, Studio
from capsnet.explorer._wire import Decode, Pair, Question, See, Sweep
from capsnet.inference import OFFSETS, sweep_dimensions
from capsnet.layers import ClassCaps, ConvCaps, DenseCaps, PrimaryCaps
from capsnet.models import Model, describe
from capsnet.models._decoding import DecodingModel
from capsnet.models.efficient import EfficientCapsNet
from capsnet.routing import Routing
from capsnet.serving.images import quantise, to_array, to_wire

MARGINS = {"present": 0.9, "absent": 0.1}  # of the margin loss [Eq. 4]


def introduce(exhibit: Exhibit) -> dict[str, Any]:
    """All that the page has to know about a model before it asks it anything."""
    model, card, profile = exhibit.model, exhibit.model.card, exhibit.profile
    accuracy = card.get("test_accuracy")
    kind = model.config.get("name", type(model).__name__)
    return {
        "name": exhibit.name,
        "title": str(card.get("title", exhibit.name)),
        "summary": str(card.get("summary", "")) or (describe(kind) if model.config else kind),
        "parameters": model.num_parameters(),
        "image_size": list(model.image_size),
        "channels": model.in_channels,
        "style": preparation(model, centre=True).style,
        "classes": list(model.class_names),
        "dims": pose_dims(model),
        "decoder": getattr(model, "decoder", None) is not None,
        "routing": name_routing(routing) if (routing := routing_of(model)) else None,
        "routings": replacements(model),
        "grid": list(grid) if (grid := grid_of(model)) else None,
        "multi": str(card.get("data", "")).partition(":")[0] == "multimnist",
        "test_accuracy": accuracy.get("value") if isinstance(accuracy, dict) else accuracy,
        "ranges": profile.model_dump()["ranges"] if profile else None,
        "means": profile.means if profile else None,
        "names": profile.names if profile else None,
        "margins": MARGINS if isinstance(model, DecodingModel) else None,  # others have other losses
        "receptive": receptive_of(model),
        "gallery": exhibit.gallery.exists(),
    }


def name_routing(routing: Routing) -> dict[str, Any]:
    covariance = getattr(routing, "covariance", None)
    return {
        "name": routing.name,
        "iterations": getattr(routing, "iterations", None),
        "activation": getattr(routing, "squash", f"em-{covariance}" if covariance else None),
    }


def grid_of(model: Model) -> tuple[int, int, int] | None:
    """How the children of the class capsules lie in the picture, (H, W, types); None where they do not."""
    return getattr(model, "grid", None) if isinstance(getattr(model, "classes", None), DenseCaps | ClassCaps) else None


def receptive_of(model: Model) -> dict[str, int] | None:
    """The square of pixels that a child at row y and column x sees, on both axes alike: ``size`` of them from
    ``start + stride * y`` (or x) on. None where the way from the picture to the children is not known to be made of
    plain square windows. Children that compete for what they see also hear of what their neighbours make of it.
    """
    size, stride = 1, 1
    for window, step in (windows := _windows(model)):
        size, stride = size + (window - 1) * stride, stride * step
    return {"size": size, "stride": stride, "start": 0} if windows else None


def _windows(model: Model) -> list[tuple[int, int]]:
    """Size and stride of each window between picture and children, all of them square and unpadded."""
    conv, primary = getattr(model, "conv", None), getattr(model, "primary", None)
    if isinstance(model, EfficientCapsNet):
        convolutions = [layer for layer in (*model.features, model.depthwise) if isinstance(layer, nn.Conv2d)]
        square = model.image_size[0] == model.image_size[1]
        return [(layer.kernel_size[0], layer.stride[0]) for layer in convolutions] if square else []
    if grid_of(model) is None or not isinstance(conv, nn.Conv2d):
        return []
    first = (conv.kernel_size[0], conv.stride[0])
    if isinstance(primary, PrimaryCaps):
        return [first, (primary.conv.kernel_size[0], primary.conv.stride[0])]
    capsules = [layer for layer in model.children() if isinstance(layer, ConvCaps)]
    return [first, *((layer.kernel_size, layer.stride) for layer in capsules)] if capsules else []


def pose_dims(model: Model) -> int | None:
    """How many numbers a class capsule's pose has."""
    layer = getattr(model, "classes", None)
    if isinstance(layer, DenseCaps):
        return layer.weight.shape[2]
    return 16 if routing_of(model) else None  # matrix capsules: 4 x 4


def list_models(studio: Studio) -> dict[str, Any]:
    return {"models": [introduce(exhibit) for exhibit in studio.exhibits.values()]}


def look(exhibit: Exhibit, ask: See) -> dict[str, Any]:
    picture, empty = see(to_array(ask.image, "image"), exhibit.model, ask.centre)
    return {"seen": to_wire(picture), "empty": empty}


def classify(exhibit: Exhibit, ask: Question) -> dict[str, Any]:
    image = to_input(ask.seen, exhibit.model)
    model = reroute(exhibit.model, ask.routing, ask.iterations)
    start = time.perf_counter()
    output = model(image)
    took = time.perf_counter() - start
    lengths = output.lengths[0]
    drawn = output.reconstruction
    return {
        "lengths": lengths.tolist(),
        "poses": None if output.poses is None else output.poses[0].tolist(),
        "order": lengths.argsort(descending=True, stable=True).tolist(),
        "reconstruction": None if drawn is None else to_wire(quantise(drawn[0])),
        "milliseconds": round(1e3 * took, 3),
        "parameters": model.num_parameters(),
    }


def decode(exhibit: Exhibit, ask: Decode) -> dict[str, Any]:
    """The slider's call: only the decoder runs."""
    model = exhibit.model
    if len(ask.poses) != len(ask.classes):
        raise ValueError(f"{len(ask.poses)} poses need as many classes, got {len(ask.classes)}")
    poses = torch.stack([_capsules(model, pose, j) for pose, j in zip(ask.poses, ask.classes, strict=True)])
    return {"pictures": [to_wire(p) for p in quantise(model.decode(poses, torch.tensor(ask.classes)))]}


def sweep(exhibit: Exhibit, ask: Sweep) -> dict[str, Any]:
    pictures = sweep_dimensions(exhibit.model, _capsules(exhibit.model, ask.pose, ask.klass), ask.klass)
    return {"offsets": list(OFFSETS), "pictures": to_wire(tiled(quantise(pictures)))}


def pair(exhibit: Exhibit, ask: Pair) -> dict[str, Any]:
    """Two pictures moved, added and clipped, as MultiMNIST is made."""
    model = exhibit.model
    alone = []
    for what, pixels, (down, right) in zip(("first", "second"), (ask.first, ask.second), ask.offsets, strict=True):
        height, width = model.image_size
        if pixels.height > height or pixels.width > width or pixels.channels != model.in_channels:
            raise ValueError(
                f"{what} must fit into the model's {width} x {height} with {model.in_channels} channels, "
                f"got {pixels.width} x {pixels.height} with {pixels.channels}"
            )
        alone.append(place(to_array(pixels, what), model.image_size, (down, right)))
    both = np.minimum(alone[0].astype(np.uint16) + alone[1], 255).astype(np.uint8)
    return {"seen": to_wire(both), "alone": [to_wire(picture) for picture in alone]}


def _capsules(model: Model, pose: list[float], j: int) -> torch.Tensor:
    """Class capsules (J, D) of which only the j-th is there."""
    dims = pose_dims(model)
    if dims is None or getattr(model, "decoder", None) is None:
        raise ValueError("this model has no decoder: its poses cannot be drawn")
    check_class(model, j)
    if len(pose) != dims:
        raise ValueError(f"a pose of this model has {dims} numbers, got {len(pose)}")
    capsules = torch.zeros(model.num_classes, dims)
    capsules[j] = torch.tensor(pose)
    return capsules


def check_class(model: Model, j: int) -> None:
    if j >= model.num_classes:
        raise ValueError(f"class must be from 0 to {model.num_classes - 1}, got {j}")
