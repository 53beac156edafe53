"""The stable interface for programs: ``POST /api/v1/predict``, an image in, classes, lengths and poses out.

The requests of the page may change with the page; this one does not. docs/serving.md describes it.
"""

from functools import partial
from typing import Annotated, Any

import torch
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from torch import Tensor

from capsnet.inference import PRESENT, preprocessing_of
from capsnet.models import Model
from capsnet.serving.batching import Batcher, Limits
from capsnet.serving.images import open_image, to_array
from capsnet.serving.service import Service
from capsnet.serving.wire import Answer, Pixels, Problem, write

PREPARING = 2  # threads that decode and frame images
FILES = ("image/", "application/octet-stream")


class Predicted(Answer):
    """One image's answer. ``lengths`` and ``poses`` are in the order of ``class_names``.

    ``classes``: those whose capsule reaches the threshold, longest first; may be empty. ``best``: the class of the
    longest capsule, whatever its length. ``poses`` is null for a network without capsules.
    """

    model: str
    classes: list[str]
    best: str
    class_names: list[str]
    lengths: list[float]
    poses: list[list[float]] | None


BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": Pixels.model_json_schema()},
        },
    }
}


def add_routes(app: FastAPI, service: Service, limits: Limits | None = None) -> None:
    """Add the route. ``app.state.batchers`` holds the batcher of each model by its name."""
    limits = limits or Limits()
    batchers: dict[str, Batcher[Tensor, tuple[list[float], Any]]] = {
        name: Batcher(partial(_compute, model), lambda: service.lane("batches", 1), limits)
        for name, model in service.models.items()
    }
    app.state.batchers = batchers
    default = next(iter(service.models))

    @app.post(
        "/api/v1/predict",
        response_model=Predicted,
        openapi_extra=BODY,
        responses={503: {"model": Problem, "description": "overloaded: try again after Retry-After seconds"}},
    )
    async def predict(
        request: Request,
        model: Annotated[str, Query(min_length=1, max_length=200)] = default,
        threshold: Annotated[float, Query(ge=0, le=1, allow_inf_nan=False)] = PRESENT,
    ) -> Response:
        network = service.models[service.check(model)]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        content = await request.body()
        if kind != "application/json" and not kind.startswith(FILES):
            raise HTTPException(415, f"the content type must be image/* or application/json, got {kind[:60] or 'none'}")
        prepare = partial(_prepare, content, kind, network)
        lengths, poses = await batchers[model].ask(prepare, service.lane("images", PREPARING))
        names = network.class_names
        order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
        return write(
            {
                "model": model,
                "classes": [names[k] for k in order if lengths[k] >= threshold],
                "best": names[order[0]],
                "class_names": list(names),
                "lengths": lengths,
                "poses": poses,
            }
        )


def _compute(model: Model, images: list[Tensor]) -> list[tuple[list[float], Any]]:
    """The lengths and poses of each of a batch of images (C, H, W) as plain numbers."""
    with torch.inference_mode():
        output = model(torch.stack(images))
    poses = [None] * len(images) if output.poses is None else output.poses.tolist()
    return list(zip(output.lengths.tolist(), poses, strict=True))


def _prepare(content: bytes, kind: str, model: Model) -> Tensor:
    """A client's image as the network's input, prepared as ``capsnet.predict`` does it."""
    prepare = preprocessing_of(model)
    if kind != "application/json":
        with open_image(content) as image:
            return prepare(image)
    try:
        pixels = Pixels.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise ValueError(f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        raise RequestValidationError([first | {"loc": ("body", *first["loc"])}]) from None
    return prepare(to_array(pixels, "image"))
