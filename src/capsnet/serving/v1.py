"""The stable interface for programs: ``POST /api/v1/predict``, images in, classes, lengths and poses out.

The requests of the page may change with the page; this one does not. docs/serving.md describes it.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import torch
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from torch import Tensor

from capsnet.data import open_image
from capsnet.inference import PRESENT, preprocessing_of
from capsnet.models import Model
from capsnet.serving.batching import Batcher, Limits
from capsnet.serving.images import to_array
from capsnet.serving.service import Service
from capsnet.serving.wire import Answer, Pixels, Problem, Wire, write

PREPARING = 2  # threads that decode and frame images
MANY = 64  # images of one request
FILES = ("image/", "application/octet-stream")
ORDER = dict.fromkeys(("model", "classes", "best", "class_names", "lengths", "poses"))  # of the fields of one answer
SEVERAL_KEY = re.compile(rb'^\s*\{\s*"images"\s*:')  # a request of several images, which have no other field
W = TypeVar("W", bound=Wire)


class Pictures(Wire):
    """Several images in one request."""

    images: Annotated[list[Pixels], Field(min_length=1, max_length=MANY)]


class Found(Answer):
    """What was found in one image. ``lengths`` and ``poses`` are in the order of ``class_names``.

    ``classes``: those whose capsule reaches the threshold, longest first; may be empty. ``best``: the class of the
    longest capsule, whatever its length. ``poses`` is null for a network without capsules.
    """

    classes: list[str]
    best: str
    lengths: list[float]
    poses: list[list[float]] | None


class Predicted(Found):
    """One image's answer."""

    model: str
    class_names: list[str]


class PredictedAll(Answer):
    """The answers to several images, in their order."""

    model: str
    class_names: list[str]
    answers: list[Found]


PIXELS = Pixels.model_json_schema()
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {
                "schema": {
                    "anyOf": [
                        PIXELS,
                        {
                            "type": "object",
                            "properties": {
                                "images": {"type": "array", "items": PIXELS, "minItems": 1, "maxItems": MANY}
                            },
                            "required": ["images"],
                        },
                    ]
                }
            },
        },
    }
}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the route. ``app.state.batchers`` holds the batcher of each model by its name."""
    limits = Limits()
    batchers: dict[str, Batcher[Tensor, tuple[list[float], Any]]] = {
        name: Batcher(partial(_compute, model), lambda: service.lane("batches", 1), limits)
        for name, model in service.models.items()
    }
    app.state.batchers = batchers
    default = next(iter(service.models))

    @app.post(
        "/api/v1/predict",
        response_model=Predicted | PredictedAll,
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
        several = kind == "application/json" and SEVERAL_KEY.search(content, 0, 200) is not None
        prepare = partial(_prepare_all if several else _prepare_one, content, kind, network)
        found = await batchers[model].ask_all(prepare, service.lane("images", PREPARING))
        names = network.class_names
        answers = [_describe(lengths, poses, names, threshold) for lengths, poses in found]
        about = {"model": model, "class_names": list(names)}
        return write(about | {"answers": answers} if several else ORDER | about | answers[0])


def _describe(lengths: list[float], poses: Any, names: Sequence[str], threshold: float) -> dict[str, Any]:
    """The fields of ``Found``."""
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    classes = [names[k] for k in order if lengths[k] >= threshold]
    return {"classes": classes, "best": names[order[0]], "lengths": lengths, "poses": poses}


def _compute(model: Model, images: list[Tensor]) -> list[tuple[list[float], Any]]:
    """The lengths and poses of each of a batch of images (C, H, W) as plain numbers."""
    with torch.inference_mode():
        output = model(torch.stack(images))
    poses = [None] * len(images) if output.poses is None else output.poses.tolist()
    return list(zip(output.lengths.tolist(), poses, strict=True))


def _prepare_one(content: bytes, kind: str, model: Model) -> list[Tensor]:
    """A client's image as the network's input, prepared as ``capsnet.predict`` does it."""
    prepare = preprocessing_of(model)
    if kind == "application/json":
        return [prepare(to_array(_read(content, Pixels), "image"))]
    with open_image(content) as image:
        return [prepare(image)]


def _prepare_all(content: bytes, kind: str, model: Model) -> list[Tensor]:
    """The same for several images."""
    prepare, inputs = preprocessing_of(model), []
    for number, pixels in enumerate(_read(content, Pictures).images):
        try:
            inputs.append(prepare(to_array(pixels, f"images.{number}")))
        except ValueError as error:
            text = str(error)
            raise ValueError(text if text.startswith("images.") else f"images.{number}: {text}") from error
    return inputs


def _read(content: bytes, wanted: type[W]) -> W:
    """A JSON body, or the error of a wrong one."""
    try:
        return wanted.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise ValueError(f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        raise RequestValidationError([first | {"loc": ("body", *first["loc"])}]) from None
