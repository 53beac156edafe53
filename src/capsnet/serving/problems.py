"""Errors become one readable sentence: ``{"error": ...}`` with a 4xx status."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from capsnet.data import NotAnImage

log = logging.getLogger("capsnet")


class Missing(LookupError):
    """There is nothing of that name or number: 404."""


class Busy(HTTPException):
    """Too much is waiting: 503."""

    def __init__(self, what: str) -> None:
        super().__init__(503, f"too many {what} are waiting: try again in a second", {"Retry-After": "1"})


def add_handlers(app: FastAPI) -> None:
    """Register the handlers. Library code describes a wrong value by a ValueError: its text is the sentence."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(422, sentence(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        default = {
            "Not Found": f"there is nothing at {request.url.path[:100]}",
            "Method Not Allowed": f"{request.method} is not possible for this address",
        }
        return problem(error.status_code, default.get(str(error.detail), str(error.detail)), dict(error.headers or {}))

    def handle(kind: type[Exception], status: int) -> None:
        @app.exception_handler(kind)
        async def handler(_: Request, error: Exception) -> JSONResponse:
            return problem(status, " ".join(str(error).split()))

    for kind, status in ((Missing, 404), (NotAnImage, 415), (ValueError, 422)):
        handle(kind, status)

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> JSONResponse:
        log.info("a client left before its request was complete: %s %s", request.method, request.url.path[:100])
        return problem(400, "the request is not complete")  # which nobody reads

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return problem(500, f"the server failed, which is a bug in it ({type(error).__name__})")


def problem(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status, headers=headers)


def sentence(error: dict[str, Any]) -> str:
    """A validation error as a sentence that names the field and, if it is short, its value."""
    where = ".".join(str(part) for part in error["loc"][1:])  # the first part is body, query or path
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']} at character {where}"
    text = error["msg"][0].lower() + error["msg"][1:]
    value = error.get("input")
    shown = f", got {value!r}" if isinstance(value, bool | int | float | str) and len(str(value)[:61]) <= 60 else ""
    return f"{where or 'the body'}: {text}{shown}"
