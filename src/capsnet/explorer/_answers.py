"""The answers to the page's questions: functions of an entry, run in a worker thread."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsnet import routing
from capsnet.explorer._seen import place, preparation, see, tiled, to_input
from capsnet.explorer._service import ExplorerService, ModelEntry
from capsnet.explorer._wire import Decode, Pair, Question, RoutingInfo, See, Sweep
from capsnet.inference import OFFSETS, sweep_dimensions
from capsnet.models import Model, describe, replacements, reroute
from capsnet.oscillators import phase_colours
from capsnet.routing import Routing
from capsnet.serving.images import Bytes, quantise, to_array, to_wire


def introduce(entry: ModelEntry) -> dict[str, Any]:
    """What the page needs to know about a model."""
    model, card, profile = entry.model, entry.model.card, entry.profile
    accuracy = card.get("test_accuracy")
    kind = model.config.get("name", type(model).__name__)
    summary = str(card.get("summary", "")) or (describe(kind) if model.config else kind)
    return {
        "name": entry.name,
        "title": str(card.get("title", entry.name)),
        "summary": summary,
        "purpose": str(card.get("purpose", "")) or (profile.purpose if profile else "") or capitalised(summary),
        "parameters": model.num_parameters(),
        "image_size": list(model.image_size),
        "channels": model.in_channels,
        "style": preparation(model, centre=True).style,
        "classes": list(model.class_names),
        "dims": model.pose_dim,
        "decoder": model.draws,
        "routing": describe_routing(own) if (own := model.class_routing) else None,
        "routings": replacements(model),
        "grid": list(model.grid) if model.grid else None,
        "multi": entry.multi,
        "test_accuracy": accuracy.get("value") if isinstance(accuracy, dict) else accuracy,
        "ranges": profile.model_dump()["ranges"] if profile else None,
        "means": profile.means if profile else None,
        "names": profile.names if profile else None,
        "margins": model.margins._asdict() if model.margins else None,
        "receptive": model.receptive_field._asdict() if model.receptive_field else None,
        "gallery": entry.gallery.exists(),
        "pairs": entry.gallery.has_pairs(),
    }


def capitalised(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def describe_routing(own: Routing) -> dict[str, Any]:
    """What a routing says about itself."""
    declared = own.formula._asdict()  # coupling and presence
    return declared | {name: getattr(own, name, None) for name in RoutingInfo.model_fields if name not in declared}


def list_models(service: ExplorerService) -> dict[str, Any]:
    """The models, and every registered routing and form: asked at each request, so that none is missed."""
    return {
        "models": [introduce(entry) for entry in service.entries.values()],
        "routings": [describe_routing(routing.get(name)) | {"name": name} for name in routing.list_forms()],
    }


def look(entry: ModelEntry, ask: See) -> dict[str, Any]:
    return {"seen": to_wire(see(to_array(ask.image, "image"), entry.model, ask.centre))}


def classify(entry: ModelEntry, ask: Question) -> dict[str, Any]:
    model = reroute(entry.model, ask.routing, ask.iterations)
    images = to_input(ask.seen, entry.model)
    output, took = entry.features.run(model, images)
    lengths, drawn = output.lengths[0], output.reconstruction
    return {
        "lengths": lengths.tolist(),
        "poses": None if output.poses is None else output.poses[0].tolist(),
        "order": lengths.argsort(descending=True, stable=True).tolist(),
        "reconstruction": None if drawn is None else to_wire(quantise(drawn[0])),
        "phases": None if output.phases is None else to_wire(_coloured(images[0], output.phases[0])),
        "milliseconds": round(1e3 * took, 3),
        "parameters": model.num_parameters(),
    }


def _coloured(image: Tensor, phases: Tensor) -> Bytes:
    """Ink (C, H, W) in the hues of its phases (oscillators, n, H, W)."""
    ink = image.amax(dim=0)
    return quantise(phase_colours(phases.flatten(0, 1).movedim(0, -1), ink).movedim(-1, 0))


def decode(entry: ModelEntry, ask: Decode) -> dict[str, Any]:
    """Pictures of poses: only the decoder runs."""
    model = entry.model
    if len(ask.poses) != len(ask.classes):
        raise ValueError(f"{len(ask.poses)} poses need as many classes, got {len(ask.classes)}")
    poses = torch.stack([_capsules(model, pose, j) for pose, j in zip(ask.poses, ask.classes, strict=True)])
    return {"pictures": [to_wire(p) for p in quantise(model.decode(poses, torch.tensor(ask.classes)))]}


def sweep(entry: ModelEntry, ask: Sweep) -> dict[str, Any]:
    pictures = sweep_dimensions(entry.model, _capsules(entry.model, ask.pose, ask.klass), ask.klass)
    return {"offsets": list(OFFSETS), "pictures": to_wire(tiled(quantise(pictures)))}


def pair(entry: ModelEntry, ask: Pair) -> dict[str, Any]:
    """Two pictures moved, added and clipped, as MultiMNIST is made."""
    model = entry.model
    alone = []
    for what, pixels, (down, right) in zip(("first", "second"), (ask.first, ask.second), ask.offsets, strict=True):
        height, width = model.image_size
        if pixels.height > height or pixels.width > width or pixels.channels != model.in_channels:
            raise ValueError(
                f"{what} must fit into the model's {width} x {height} with {model.in_channels} channels, "
                f"got {pixels.width} x {pixels.height} with {pixels.channels}"
            )
        alone.append(place(to_array(pixels, what), model.image_size, (down, right)))
    return {"seen": to_wire(added(alone)), "alone": [to_wire(picture) for picture in alone]}


def added(alone: list[Bytes]) -> Bytes:
    """Two pictures (H, W, C) in one."""
    return np.minimum(alone[0].astype(np.uint16) + alone[1], 255).astype(np.uint8)


def _capsules(model: Model, pose: list[float], j: int) -> torch.Tensor:
    """Class capsules (J, D), all zero but the j-th."""
    dims = model.pose_dim
    if dims is None or not model.draws:
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
