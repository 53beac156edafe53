"""The files of the page."""

from tests.explorer.conftest import TestClient


def test_icon_is_cached_and_scripts_are_not(client: TestClient) -> None:
    """A browser requests the icon again when the address changes, which is after each stroke."""
    assert "max-age" in client.get("/static/icon.svg").headers["cache-control"]
    assert client.get("/static/js/app.js").headers["cache-control"] == "no-cache"


def test_files_outside_the_static_folder_are_not_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/static/js/app.js").headers["content-type"] == "text/javascript; charset=utf-8"
    for path in (
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "js/../../app.py",
        "/etc/passwd",
        "js",
        "",
        "%00",
        "js%00",
    ):
        assert client.get(f"/static/{path}").status_code in (404, 405, 422), path
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404
