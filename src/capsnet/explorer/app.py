"""The page's routes, on top of the API for programs; ``_answers``, ``_routing_view`` and ``_gallery`` compute."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response

from capsnet.explorer import _answers, _routing_view, _wire
from capsnet.explorer._assets import Assets
from capsnet.explorer._gallery import NUMBERS
from capsnet.explorer._seen import read_upload
from capsnet.explorer._studio import Studio
from capsnet.models import Model
from capsnet.serving import app as serving
from capsnet.serving.images import to_wire

ANY_FILE = {"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}
ModelName = Annotated[str, Query(min_length=1, max_length=200)]
Index = Annotated[int, Query(ge=0, le=10**9)]


def require_json(request: Request) -> None:
    """Another page may send a form or plain text without permission; JSON needs permission."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"the content type must be application/json, got {kind[:60] or 'none'}")


def create_app(
    models: Mapping[str, Model], *, token: str | None = None, host: str = "127.0.0.1", names: Sequence[str] = ()
) -> FastAPI:
    """The explorer as an application; see ``capsnet.explorer.create_app``."""
    studio = Studio(models)
    app = serving.create_app(studio, token=token, host=host, names=names, title="capsnet explorer")
    _add_questions(app, studio)
    _add_pictures(app, studio)
    assets = Assets()
    app.mount("/static", assets, name="static")

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await assets.get_response("index.html", request.scope)

    return app


def _add_questions(app: FastAPI, studio: Studio) -> None:
    """Requests for a network's answer."""

    @app.get("/api/models", response_model=_wire.Models)
    async def models() -> Response:
        return await studio.answer(_answers.list_models, studio)

    def add(path: str, body: Any, answer: Any, compute: Callable[..., dict[str, Any]], lane: str = "slow") -> None:
        @app.post(f"/api/{path}", response_model=answer, dependencies=[Depends(require_json)], name=path)
        async def endpoint(ask: body) -> Response:
            return await studio.answer(compute, studio.find(ask.model), ask, lane=lane)

    @app.post("/api/toy/route", response_model=_wire.ToyRouted, dependencies=[Depends(require_json)])
    async def toy(ask: _wire.ToyQuestion) -> Response:
        return await studio.answer(_routing_view.toy, ask, lane="quick")

    add("see", _wire.See, _wire.Seen, _answers.look)
    add("classify", _wire.Question, _wire.Classified, _answers.classify)
    add("decode", _wire.Decode, _wire.Decoded, _answers.decode, lane="quick")
    add("sweep", _wire.Sweep, _wire.Swept, _answers.sweep)
    add("trace", _wire.TraceQuestion, _wire.Traced, _routing_view.trace)
    add("pair", _wire.Pair, _wire.Paired, _answers.pair)


def _add_pictures(app: FastAPI, studio: Studio) -> None:
    """Requests for pictures."""

    @app.post("/api/upload", response_model=_wire.Uploaded, openapi_extra=ANY_FILE)
    async def upload(request: Request, model: ModelName, centre: bool = True) -> Response:
        exhibit, content = studio.find(model), await request.body()
        return await studio.answer(
            lambda: {"seen": to_wire(read_upload(content, exhibit.model, centre))}, lane="upload"
        )

    @app.get("/api/gallery", response_model=_wire.GalleryPage)
    async def gallery(
        model: ModelName, kind: Annotated[str, Query(max_length=20)] = "any", page: Index = 0
    ) -> Response:
        exhibit = studio.find(model)
        return await studio.answer(exhibit.gallery.page, kind, page, exhibit.profile)

    @app.get("/api/digit/{index}", response_model=_wire.Digit)
    async def digit(index: Annotated[int, Path(ge=0, le=10**9)], model: ModelName) -> Response:
        return await studio.answer(studio.find(model).gallery.one, index)

    @app.get("/api/pair/random", response_model=_wire.RandomPair)
    async def random_pair(model: ModelName, number: Annotated[int, Query(ge=0, lt=NUMBERS)] = 0) -> Response:
        return await studio.answer(studio.find(model).gallery.pair, number)
