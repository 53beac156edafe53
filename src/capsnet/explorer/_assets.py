"""The page's own files, with types that do not depend on the machine's table and a cache that nearly always asks."""

import os
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/vnd.microsoft.icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}


class Assets(StaticFiles):
    """Files below ``static/``: a registry that calls scripts plain text would leave the page without any."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER, check_dir=False)

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        name = Path(full_path)
        response.headers["content-type"] = TYPES.get(name.suffix.lower(), "application/octet-stream")
        # a browser asks for the icon anew whenever the address changes, which here is with every stroke
        response.headers["cache-control"] = "max-age=86400" if name.stem == "icon" else "no-cache"
        return response
