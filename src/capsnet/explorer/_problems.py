"""Whatever goes wrong becomes one readable sentence: ``{"error": ...}`` with a 4xx."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from capsnet.explorer._gallery import Missing
from capsnet.explorer._pictures import Unsupported

log = logging.getLogger(__name__)


def explain_problems(app: FastAPI) -> None:
    """Register the handlers. Library code says what is wrong with a value by a ValueError: that is the sentence."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(422, sentence(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        said = {404: f"there is nothing at {request.url.path[:100]}", 405: f"{request.method} is not possible here"}
        detail = str(error.detail)
        known = detail in ("Not Found", "Method Not Allowed")
        return problem(error.status_code, said[error.status_code] if known else detail, dict(error.headers or {}))

    @app.exception_handler(Missing)
    async def missing(_: Request, error: Missing) -> JSONResponse:
        return problem(404, str(error))

    @app.exception_handler(Unsupported)
    async def unsupported(_: Request, error: Unsupported) -> JSONResponse:
        return problem(415, str(error))

    @app.exception_handler(ValueError)
    async def wrong(_: Request, error: ValueError) -> JSONResponse:
        return problem(422, " ".join(str(error).split()))

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return problem(500, f"the explorer failed, which is a bug in it ({type(error).__name__})")


def problem(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status, headers=headers)


def sentence(error: dict[str, Any]) -> str:
    """A validation error as a sentence that names the field and, if it is short, what was there."""
    where = ".".join(str(part) for part in error["loc"][1:])  # the first says body, query or path
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']} at character {where}"
    text = error["msg"][0].lower() + error["msg"][1:]
    got = error.get("input")
    shown = f", got {got!r}" if isinstance(got, bool | int | float | str) and len(str(got)[:61]) <= 60 else ""
    return f"{where or 'the body'}: {text}{shown}"
