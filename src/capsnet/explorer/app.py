"""The page's routes, on top of the API for programs; ``_answers``, ``_routing_view`` and ``_gallery`` compute."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response

from capsnet.explorer import _answers, _routing_view, _wire
from capsnet.explorer._assets import FOLDER, Assets
from capsnet.explorer._first_pair import first_pair
from capsnet.explorer._gallery import NUMBERS
from capsnet.explorer._seen import read_upload
from capsnet.explorer._service import ExplorerService
from capsnet.serving import app as serving
from capsnet.serving.images import to_wire
from capsnet.serving.service import Models

ANY_FILE = {"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}
ModelName = Annotated[str, Query(min_length=1, max_length=200)]
Index = Annotated[int, Query(ge=0, le=10**9)]


def require_json(request: Request) -> None:
    """Another page may send a form or plain text without permission; JSON needs permission."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"the content type must be application/json, got {kind[:60] or 'none'}")


def create_app(models: Models, *, data: str | None = None, **options: Any) -> FastAPI:
    """The explorer as an application; see ``capsnet.explorer.create_app``."""
    service = ExplorerService(models, data)
    app = serving.create_app(service, title="capsnet explorer", **options)
    _add_questions(app, service)
    _add_pictures(app, service)
    assets = Assets(directory=FOLDER, check_dir=False)
    app.mount("/static", assets, name="static")

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await assets.get_response("index.html", request.scope)

    return app


def _add_questions(app: FastAPI, service: ExplorerService) -> None:
    """Requests for a network's answer."""

    @app.get("/api/models", response_model=_wire.Models)
    async def models() -> Response:
        return await service.answer(_answers.list_models, service)

    def add(path: str, body: Any, answer: Any, compute: Callable[..., dict[str, Any]], lane: str = "slow") -> None:
        async def endpoint(ask: Any) -> Response:
            return await service.answer(compute, service.find(ask.model), ask, lane=lane)

        endpoint.__annotations__["ask"] = body
        app.post(f"/api/{path}", response_model=answer, dependencies=[Depends(require_json)], name=path)(endpoint)

    @app.post("/api/toy/route", response_model=_wire.ToyRouted, dependencies=[Depends(require_json)])
    async def toy(ask: _wire.ToyQuestion) -> Response:
        return await service.answer(_routing_view.toy, ask, lane="quick")

    add("see", _wire.See, _wire.Seen, _answers.look)
    add("classify", _wire.Question, _wire.Classified, _answers.classify)
    add("decode", _wire.Decode, _wire.Decoded, _answers.decode, lane="quick")
    add("sweep", _wire.Sweep, _wire.Swept, _answers.sweep)
    add("trace", _wire.TraceQuestion, _wire.Traced, _routing_view.trace)
    add("pair", _wire.Pair, _wire.Paired, _answers.pair)


def _add_pictures(app: FastAPI, service: ExplorerService) -> None:
    """Requests for pictures."""

    @app.post("/api/upload", response_model=_wire.Seen, openapi_extra=ANY_FILE)
    async def upload(request: Request, model: ModelName, centre: bool = True) -> Response:
        entry, content = service.find(model), await request.body()
        return await service.answer(lambda: {"seen": to_wire(read_upload(content, entry.model, centre))}, lane="upload")

    @app.get("/api/gallery", response_model=_wire.GalleryPage)
    async def gallery(
        model: ModelName, kind: Annotated[str, Query(max_length=20)] = "any", page: Index = 0
    ) -> Response:
        entry = service.find(model)
        return await service.answer(entry.gallery.page, kind, page, entry.profile)

    @app.get("/api/digit/{index}", response_model=_wire.Digit)
    async def digit(index: Annotated[int, Path(ge=0, le=10**9)], model: ModelName) -> Response:
        return await service.answer(service.find(model).gallery.one, index)

    @app.get("/api/pair/random", response_model=_wire.RandomPair)
    async def random_pair(model: ModelName, number: Annotated[int | None, Query(ge=0, lt=NUMBERS)] = None) -> Response:
        """The pair of a number; without one, the first that the network and those for pairs read."""
        entry = service.find(model)
        first = partial(first_pair, entry, service.entries.values())
        return await service.answer(lambda: entry.gallery.pair(first() if number is None else number))
