"""The application: access control around everything, errors as sentences, the API for programs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from capsnet._version import __version__
from capsnet.models import Model
from capsnet.serving import v1
from capsnet.serving.access import AccessControl, check_names
from capsnet.serving.problems import add_handlers
from capsnet.serving.service import Service
from capsnet.serving.wire import Problem

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (400, 401, 403, 404, 405, 413, 415, 422, 503)
}


class GuardedApp(FastAPI):
    """FastAPI inside the access control. As a middleware it would be inside the handler of bugs, and a 500 would go
    out without its headers."""

    def __init__(self, *, host: str, token: str | None, names: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._host, self._token, self._names = host, token, check_names(names)

    def build_middleware_stack(self) -> ASGIApp:
        return AccessControl(super().build_middleware_stack(), host=self._host, token=self._token, names=self._names)


def create_app(
    models: Mapping[str, Model] | Service,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    title: str = "capsnet",
) -> FastAPI:
    """The API for programs as an ASGI application.

    Args:
        models: models by public name, or a service that has them loaded.
        token: what clients must send; None admits everyone who can reach the server.
        host: where the server listens, so that it answers to that name too; ``0.0.0.0`` and ``::`` stand for all
            addresses of this machine.
        names: further names that the server answers to, for example a proxy's: ``caps.example.org``.
        title: of the OpenAPI document at ``/api/openapi.json``.
    """
    service = models if isinstance(models, Service) else Service(models)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.open()
        yield
        service.close()

    app = GuardedApp(
        host=host,
        token=token,
        names=names,
        title=title,
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # its pages would load scripts from other hosts
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=PROBLEMS,
    )
    app.state.service = service
    add_handlers(app)
    v1.add_routes(app, service)
    return app
