"""The explorer: a page on which a person draws a digit and turns the knobs of its capsules.

    from capsnet.explorer import explore
    explore(["capsnet-small-mnist", "runs/mine"])

FastAPI and uvicorn are an extra and are imported only when somebody explores.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capsnet.models import Model

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["create_app", "explore"]

log = logging.getLogger(__name__)


def explore(
    models: Sequence[str | Path] = (),
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
    token: str | None = None,
    names: Sequence[str] = (),
    say: Callable[[str], object] = log.info,
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        models: shipped names, files of weights or run folders; none of them means all shipped models of pictures.
        host: where to listen. Beyond this machine, or with ``names``, a token is needed; a random one is made if none
            is given.
        port: None takes the first free one from 8028 on.
        browser: whether to open the page in one.
        token: what visitors have to bring, in ``?token=`` once or as a bearer token.
        names: what else the server answers to, because a proxy in front of it is called so: ``caps.example.org``.
        say: who is told the address.
    """
    _need_extra()
    from capsnet.explorer._serve import serve

    serve(models, host=host, port=port, browser=browser, token=token, names=names, say=say)


def create_app(
    models: Mapping[str, Model], *, token: str | None = None, host: str = "127.0.0.1", names: Sequence[str] = ()
) -> "FastAPI":
    """The explorer as an ASGI application, for models by the names that visitors see.

    Args:
        models: by public name.
        token: what visitors have to bring; None lets in all who reach it.
        host: where your server listens, so that it answers to that name too; ``0.0.0.0`` and ``::`` stand for all
            addresses of this machine.
        names: further names that it answers to, that of a proxy in front: ``caps.example.org``.
    """
    _need_extra()
    from capsnet.explorer.app import create_app as create

    return create(models, token=token, host=host, names=names)


def _need_extra() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"the explorer needs {error.name}: pip install 'capsnet[explorer]'") from None
