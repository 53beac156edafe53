"""The page's files, with content types that do not depend on the machine's table."""

import mimetypes
import os
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "static"
# some machines map .js to text/plain, which browsers refuse to run
for suffix, kind in (
    (".css", "text/css"),
    (".html", "text/html"),
    (".js", "text/javascript"),
    (".svg", "image/svg+xml"),
):
    mimetypes.add_type(kind, suffix)


class Assets(StaticFiles):
    """Files below ``static/``."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        # a browser requests the icon again whenever the address changes, which is after every stroke
        response.headers["cache-control"] = "max-age=86400" if Path(full_path).stem == "icon" else "no-cache"
        return response
