"""The web application: routes, nothing else. What they compute is in ``_answers``, ``_routing_view``, ``_gallery``."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from starlette.types import ASGIApp

from capsnet._version import __version__
from capsnet.explorer import _answers, _routing_view, _wire
from capsnet.explorer._assets import Assets
from capsnet.explorer._gallery import NUMBERS
from capsnet.explorer._pictures import read_upload, to_wire
from capsnet.explorer._problems import explain_problems
from capsnet.explorer._safety import Safety, check_names
from capsnet.explorer._studio import Studio
from capsnet.explorer._v1 import add_v1
from capsnet.models import Model

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": _wire.Problem} for code in (400, 401, 403, 404, 405, 413, 415, 422, 503)
}
ANY_FILE = {"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}
ModelName = Annotated[str, Query(min_length=1, max_length=200)]
Index = Annotated[int, Query(ge=0, le=10**9)]


def require_json(request: Request) -> None:
    """A form or a plain text of another page needs no permission to be sent here; JSON does."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"the content type must be application/json, got {kind[:60] or 'none'}")


class Guarded(FastAPI):
    """FastAPI with the safety around everything. As a middleware it would be within the one that answers for bugs, and
    a 500 would go out without its headers."""

    def __init__(self, *, host: str, token: str | None, names: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._host, self._token, self._names = host, token, check_names(names)

    def build_middleware_stack(self) -> ASGIApp:
        return Safety(super().build_middleware_stack(), host=self._host, token=self._token, names=self._names)


def create_app(
    models: Mapping[str, Model], *, token: str | None = None, host: str = "127.0.0.1", names: Sequence[str] = ()
) -> FastAPI:
    """The application for models by public name; ``host`` is where it listens, ``token`` what visitors must bring,
    ``names`` what a proxy in front of it is called."""
    studio = Studio(models)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        studio.open()
        yield
        studio.close()

    app = Guarded(
        host=host,
        token=token,
        names=names,
        title="capsnet explorer",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its pages would load scripts from other hosts
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=PROBLEMS,
    )
    app.state.studio = studio
    explain_problems(app)
    _add_questions(app, studio)
    _add_pictures(app, studio)
    add_v1(app, studio)
    assets = Assets()
    app.mount("/static", assets, name="static")

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return await assets.get_response("index.html", request.scope)

    return app


def _add_questions(app: FastAPI, studio: Studio) -> None:
    """What is asked of a network."""
    json = [Depends(require_json)]

    @app.get("/api/models", response_model=_wire.Models)
    async def models() -> Response:
        return await studio.answer(_answers.list_models, studio)

    @app.post("/api/see", response_model=_wire.Seen, dependencies=json)
    async def see(ask: _wire.See) -> Response:
        return await studio.answer(_answers.look, studio.find(ask.model), ask)

    @app.post("/api/classify", response_model=_wire.Classified, dependencies=json)
    async def classify(ask: _wire.Question) -> Response:
        return await studio.answer(_answers.classify, studio.find(ask.model), ask)

    @app.post("/api/decode", response_model=_wire.Decoded, dependencies=json)
    async def decode(ask: _wire.Decode) -> Response:
        return await studio.answer(_answers.decode, studio.find(ask.model), ask, lane="quick")

    @app.post("/api/sweep", response_model=_wire.Swept, dependencies=json)
    async def sweep(ask: _wire.Sweep) -> Response:
        return await studio.answer(_answers.sweep, studio.find(ask.model), ask)

    @app.post("/api/trace", response_model=_wire.Traced, dependencies=json)
    async def trace(ask: _wire.Question) -> Response:
        return await studio.answer(_routing_view.trace, studio.find(ask.model), ask)

    @app.post("/api/votes", response_model=_wire.Voted, dependencies=json)
    async def votes(ask: _wire.VotesQuestion) -> Response:
        return await studio.answer(_routing_view.votes, studio.find(ask.model), ask)

    @app.post("/api/pair", response_model=_wire.Paired, dependencies=json)
    async def pair(ask: _wire.Pair) -> Response:
        return await studio.answer(_answers.pair, studio.find(ask.model), ask)


def _add_pictures(app: FastAPI, studio: Studio) -> None:
    """Where pictures come from."""

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
