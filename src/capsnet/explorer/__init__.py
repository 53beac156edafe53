"""The explorer: a page on which a person draws a digit and turns the knobs of its capsules.

    from capsnet.explorer import explore
    explore(["capsnet-small-mnist", "runs/mine"])
    write_static("site")  # the page as a folder that needs no server

FastAPI and uvicorn are an extra and are imported only when the explorer is used.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capsnet.models import Model

if TYPE_CHECKING:
    from fastapi import FastAPI

    from capsnet.explorer._static import Written

__all__ = ["create_app", "explore", "write_static"]

log = logging.getLogger(__name__)


def explore(
    models: Sequence[str | Path] = (),
    *,
    data: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    token: str | None = None,
    names: Sequence[str] = (),
    say: Callable[[str], object] = log.info,
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        models: names of bundled models, weight files or run folders; none means all bundled models of images.
        data: the data set whose test pictures the gallery shows for models whose own is not bundled, for example
            ``"folder:photos"``. The server opens no data set of its own accord.
        host: where to listen. Beyond this machine, or with ``names``, a token is needed; a random one is made if
            ``token`` is None.
        port: None takes the first free port from 8028 on.
        browser: whether to open the page in a browser.
        token: what visitors must send, in ``?token=`` once or as a bearer token.
        names: further names that the server answers to, for example a proxy's: ``caps.example.org``.
        say: gets the address as text.
    """
    _need_extra()
    from capsnet.explorer.app import create_app as create
    from capsnet.serving.server import serve

    app = partial(create, models, data=data)
    serve(app, title="the explorer", host=host, port=port, browser=browser, token=token, names=names, say=say)


def create_app(
    models: Mapping[str, Model] | Sequence[str | Path],
    *,
    data: str | None = None,
    token: str | None = None,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
) -> "FastAPI":
    """The explorer as an ASGI application. The arguments are those of ``explore``; ``models`` may also be a mapping of
    public names to models. Without a token everyone who can reach the server is admitted."""
    _need_extra()
    from capsnet.explorer.app import create_app as create

    return create(models, data=data, token=token, host=host, names=names)


def write_static(
    folder: str | Path,
    models: Mapping[str, Model] | Sequence[str | Path] = (),
    *,
    data: str | None = None,
    runtime: str | Path | None = None,
    routings: Sequence[str] | None = None,
    say: Callable[[str], object] = log.info,
) -> "Written":
    """Write the page as a folder that any web server serves, at any address: the networks run in the visitor's browser.

    They are ONNX graphs in onnxruntime-web, which is put beside them: the page loads nothing from elsewhere. The npm
    package is fetched once, by npm, and then found in the cache. Needs ``capsnet[explorer,export]``.

    Args:
        folder: a new or empty folder, or one that was written here before, which is replaced.
        models: names of bundled models, weight files or run folders, or a mapping of public names to models; none means
            the smallest bundled one of each kind.
        data: as in ``explore``; some of its test pictures are put into the folder.
        runtime: an unpacked npm package onnxruntime-web, to be used instead.
        routings: names of the routings to choose from; None offers all that ONNX can express.
        say: gets what is being done as text: it takes some minutes.
    """
    _need_extra()
    from capsnet.explorer._static import write_static as write

    return write(folder, models, data=data, runtime=runtime, routings=routings, say=say)


def _need_extra() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"the explorer needs {error.name}: pip install 'capsnet[explorer]'") from None
