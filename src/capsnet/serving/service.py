"""The loaded models and the worker threads that compute with them, off the event loop."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from fastapi import Response

from capsnet import weights
from capsnet.models import Model
from capsnet.serving.problems import Busy, Missing
from capsnet.serving.wire import NOT_A_NUMBER, write

WAITING = {"slow": 256, "quick": 256, "upload": 32}  # requests of each lane; beyond, 503
FIRST = "capsnet-mnist"  # of the bundled models, the default
Models: TypeAlias = Mapping[str, Model] | Sequence[str | Path]  # models by public name, or what ``load_models`` loads


class Service:
    """Models by public name, the first being the default, and worker threads in lanes.

    Each worker computes with one thread: one image is too little work to be divided, and ten users at once are served
    better by two workers than one user by two threads.
    """

    def __init__(self, models: Models) -> None:
        loaded = models if isinstance(models, Mapping) else load_models(models)
        if not loaded:
            raise ValueError("the server needs at least one model")
        self.models = {name: _checked(name, model).eval() for name, model in loaded.items()}
        self._workers: dict[str, ThreadPoolExecutor] = {}
        self.inside = dict.fromkeys(WAITING, 0)  # requests that wait or are being computed, by lane

    def check(self, name: str) -> str:
        """The name of a model, if there is one of that name. Clients name models, never files."""
        if name not in self.models:
            raise Missing(f"there is no model {name[:60]!r} here; there are {', '.join(self.models)}")
        return name

    async def answer(self, compute: Callable[..., dict[str, Any]], *arguments: Any, lane: str = "slow") -> Response:
        """Compute an answer and write it as JSON, both in a worker.

        The lane "quick" has a worker of its own, so that a slider never waits for other users' strokes; "upload" too,
        because a large image takes much memory while it is decoded: one at a time.
        """
        if self.inside[lane] >= WAITING[lane]:
            raise Busy("requests")
        workers = self.lane(lane, max(2, min(4, os.cpu_count() or 2)) if lane == "slow" else 1)
        self.inside[lane] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(workers, _respond, compute, arguments)
        finally:
            self.inside[lane] -= 1

    def lane(self, name: str, size: int) -> ThreadPoolExecutor:
        """The worker threads of a lane, started on first use. Only the event loop calls this: no lock."""
        if name not in self._workers:
            prefix = f"capsnet-{name}"
            self._workers[name] = ThreadPoolExecutor(size, prefix, initializer=torch.set_num_threads, initargs=(1,))
        return self._workers[name]

    def open(self) -> None:
        """Called when the server starts."""

    def close(self) -> None:
        """Stop the threads. The service works again when it is opened again."""
        for workers in self._workers.values():
            workers.shutdown(wait=False, cancel_futures=True)
        self._workers = {}


def load_models(sources: Sequence[str | Path] = ()) -> dict[str, Model]:
    """Models by public name: a bundled model's own, for a file or run folder the last part of its path.

    Without sources, all bundled models that take images.
    """
    bundled = weights.list_weights()
    if not sources:
        loaded = {name: weights.load(name) for name in sorted(bundled, key=lambda name: name != FIRST)}
        return {name: model for name, model in loaded.items() if not model.takes_texts}
    models: dict[str, Model] = {}
    for source in map(str, sources):
        model = _checked(source, weights.load(source))
        name = source if source in bundled else _unique(_stem(Path(source)), {*models, *bundled})
        models[name] = model
    return models


def _stem(path: Path) -> str:
    """A run is named by its folder, another file by its name without the extension."""
    whole = path.expanduser().resolve()
    run = whole.is_file() and whole.name == "model.safetensors"
    return (whole.parent.name if run else whole.name if whole.is_dir() else whole.stem) or "model"


def _unique(base: str, taken: Collection[str]) -> str:
    """The name, numbered if it is taken. Bundled names always are, because profiles are found by them."""
    names = (base if number == 1 else f"{base}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _checked(name: str, model: Model) -> Model:
    if model.takes_texts:
        raise ValueError(f"{name} takes texts: only models of images can be served")
    if model.in_channels not in (1, 3):
        raise ValueError(f"{name} takes {model.in_channels} channels: image files have 1 or 3")
    return model


def _respond(compute: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> Response:
    try:
        with torch.inference_mode():
            return write(compute(*arguments))
    except np.linalg.LinAlgError:  # an eigenvalue problem of NaN
        raise ValueError(NOT_A_NUMBER) from None
