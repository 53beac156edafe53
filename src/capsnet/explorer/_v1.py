"""The stable interface for programs: ``POST /api/v1/predict``, an image in, classes, lengths and poses out.

What the page asks may change with the page; this does not. docs/serving.md describes it.
"""

from typing import Annotated, Any

import torch
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from torch import Tensor

from capsnet.explorer._batching import Batcher, Busy, Limits
from capsnet.explorer._pictures import open_picture, to_bytes
from capsnet.explorer._studio import Exhibit, Studio, write
from capsnet.explorer._wire import Answer, Pixels, Problem
from capsnet.inference import PRESENT, preprocessing_of

PREPARING = 2  # threads that decode and frame pictures
RETRY = "1"  # seconds
FILES = ("image/", "application/octet-stream")


class Predicted(Answer):
    """One picture's answer. ``lengths`` and ``poses`` are in the order of ``class_names``.

    ``classes``: those whose capsule reaches the threshold, longest first; empty means none of them. ``best``: the
    longest capsule's class, whatever its length. ``poses`` is null for a network without capsules.
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


def add_v1(app: FastAPI, studio: Studio, limits: Limits | None = None) -> None:
    """Add the route. ``app.state.batchers`` holds what is collected, by the name of the model."""
    limits = limits or Limits()
    batchers: dict[str, Batcher[Tensor, tuple[list[float], Any]]] = {
        name: Batcher(_computing(exhibit), lambda: studio._lane("batches", 1), limits)
        for name, exhibit in studio.exhibits.items()
    }
    app.state.batchers = batchers
    default = next(iter(studio.exhibits))

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
        exhibit = studio.find(model)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        content = await request.body()
        if kind != "application/json" and not kind.startswith(FILES):
            raise HTTPException(415, f"the content type must be image/* or application/json, got {kind[:60] or 'none'}")
        try:
            lengths, poses = await batchers[model].ask(
                lambda: _prepared(content, kind, exhibit), studio._lane("pictures", PREPARING)
            )
        except Busy:
            raise HTTPException(
                503, "too many pictures are waiting: try again in a second", {"Retry-After": RETRY}
            ) from None
        return _told(exhibit, lengths, poses, threshold)


def _computing(exhibit: Exhibit) -> Any:
    """What computes a batch of pictures (C, H, W): to each its lengths and poses as plain numbers."""

    def compute(images: list[Tensor]) -> list[tuple[list[float], Any]]:
        with torch.inference_mode():
            output = exhibit.model(torch.stack(images))
        nothing = [None] * len(images)
        poses = nothing if output.poses is None else output.poses.tolist()
        return list(zip(output.lengths.tolist(), poses, strict=True))

    return compute


def _prepared(content: bytes, kind: str, exhibit: Exhibit) -> Tensor:
    """A stranger's picture as the network takes it, as ``capsnet.predict`` prepares it."""
    prepare = preprocessing_of(exhibit.model)
    if kind != "application/json":
        with open_picture(content) as image:
            return prepare(image)
    try:
        pixels = Pixels.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise ValueError(f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        raise RequestValidationError([first | {"loc": ("body", *first["loc"])}]) from None
    return prepare(to_bytes(pixels, "image"))


def _told(exhibit: Exhibit, lengths: list[float], poses: Any, threshold: float) -> Response:
    names = exhibit.model.class_names
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    return write(
        {
            "model": exhibit.name,
            "classes": [names[k] for k in order if lengths[k] >= threshold],
            "best": names[order[0]],
            "class_names": list(names),
            "lengths": lengths,
            "poses": poses,
        }
    )
