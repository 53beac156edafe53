"""The loaded models and the threads that compute for visitors, off the event loop."""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi import HTTPException, Response

from capsnet import weights
from capsnet.explorer._gallery import Gallery, Missing
from capsnet.explorer._pictures import see
from capsnet.inference import evaluating, profiles
from capsnet.inference.profiles import Profile
from capsnet.models import Model

log = logging.getLogger(__name__)
WAITING = {"slow": 256, "quick": 256, "upload": 32}  # questions of each lane at most: beyond, come back later
NOT_A_NUMBER = "the network's answer is not a number"
FIRST = "capsnet-mnist"  # of the shipped models, what a visitor who names none is shown
MEASURED = 1000  # examples that the profile of somebody's own model is made from


class Exhibit:
    """One model under its public name, with the profile of its capsules once there is one."""

    def __init__(self, name: str, model: Model, profile: Profile | None = None) -> None:
        self.name, self.model, self.profile = name, model, profile
        self.gallery = Gallery(model)
        self.prepared = False


class Studio:
    """All exhibits, the first being the default, and a few worker threads.

    Each worker computes with one thread: a picture is too little work to be divided, and ten visitors at once are
    served better by two workers than one visitor by two threads.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        if not models:
            raise ValueError("the explorer needs at least one model")
        self.exhibits = {
            name: Exhibit(name, _checked(name, model).eval(), _profile(name, model)) for name, model in models.items()
        }
        self._workers: dict[str, ThreadPoolExecutor] = {}
        self._inside = dict.fromkeys(WAITING, 0)  # questions that wait or are being answered, by lane
        self._preparing: threading.Thread | None = None
        self._closing = threading.Event()

    def find(self, name: str) -> Exhibit:
        """The exhibit of that name; visitors name models, never files."""
        if name not in self.exhibits:
            raise Missing(f"there is no model {name[:60]!r} here; there are {', '.join(self.exhibits)}")
        return self.exhibits[name]

    async def answer(self, compute: Callable[..., dict[str, Any]], *arguments: Any, lane: str = "slow") -> Response:
        """Compute an answer and write it as JSON, both in a worker.

        What is "quick" has a worker of its own, so that a slider never waits for other people's strokes; an "upload"
        too, because a large picture takes much memory while it is decoded: one at a time.
        """
        if self._inside[lane] >= WAITING[lane]:
            raise HTTPException(503, "too many questions are waiting: try again in a second", {"Retry-After": "1"})
        workers = self._lane(lane, max(2, min(4, os.cpu_count() or 2)) if lane == "slow" else 1)
        self._inside[lane] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(workers, _respond, compute, arguments)
        finally:
            self._inside[lane] -= 1

    def _lane(self, name: str, size: int) -> ThreadPoolExecutor:
        if name not in self._workers:  # only the event loop asks, so nobody else is making it
            prefix = f"capsnet-explorer-{name}"
            self._workers[name] = ThreadPoolExecutor(size, prefix, initializer=torch.set_num_threads, initargs=(1,))
        return self._workers[name]

    def open(self) -> None:
        """Begin to warm up and to measure what has no profile, while visitors are served already."""
        if not all(exhibit.prepared for exhibit in self.exhibits.values()):
            self._closing.clear()
            self._preparing = threading.Thread(target=self._prepare, name="capsnet-profiles", daemon=True)
            self._preparing.start()

    def close(self) -> None:
        """Let go of the threads; opened again, it works again."""
        self._closing.set()
        for workers in self._workers.values():
            workers.shutdown(wait=False, cancel_futures=True)
        if self._preparing is not None:
            self._preparing.join(timeout=5)
        self._workers, self._preparing = {}, None

    def _prepare(self) -> None:
        torch.set_num_threads(1)
        waiting = [exhibit for exhibit in self.exhibits.values() if not exhibit.prepared]
        for exhibit in waiting:
            if not self._closing.is_set():
                _warm_up(exhibit.model)
        for exhibit in waiting:
            if not self._closing.is_set():
                exhibit.profile = exhibit.profile or self._measured(exhibit)
                exhibit.prepared = not self._closing.is_set()

    def _measured(self, exhibit: Exhibit) -> Profile | None:
        try:
            dataset = exhibit.gallery.measured_on()
            stop = self._closing.is_set
            return profiles.measure(exhibit.model, dataset, limit=MEASURED, batch_size=50, stop=stop)
        except (ValueError, LookupError, OSError) as error:
            log.debug("no profile of %s: %s", exhibit.name, error)
            return None


def load_models(sources: Sequence[str | Path] = ()) -> dict[str, Model]:
    """Models by public name: of a shipped one its own, of a file or run folder the last part of its path.

    Nothing named means all shipped models that take pictures.
    """
    shipped = weights.list_weights()
    if not sources:
        loaded = {name: weights.load(name) for name in sorted(shipped, key=lambda name: name != FIRST)}
        return {name: model for name, model in loaded.items() if not model.takes_texts}
    models: dict[str, Model] = {}
    for source in map(str, sources):
        model = _checked(source, weights.load(source))
        name = source if source in shipped else _unique(_stem(Path(source)), {*models, *shipped})
        models[name] = model
    return models


def _stem(path: Path) -> str:
    """A run is called by its folder, another file by its name without the ending."""
    whole = path.expanduser().resolve()
    run = whole.is_file() and whole.name == "model.safetensors"
    return (whole.parent.name if run else whole.name if whole.is_dir() else whole.stem) or "model"


def _unique(base: str, taken: Collection[str]) -> str:
    """The name, numbered if it is taken: a shipped model's name always is, because its profile goes by it."""
    names = (base if number == 1 else f"{base}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _profile(name: str, model: Model) -> Profile | None:
    """The profile that ships under this name, if it is one of such a model."""
    profile = profiles.read(name)
    return profile if profile is None or len(profile.ranges or ()) in (0, model.num_classes) else None


def _checked(name: str, model: Model) -> Model:
    if model.takes_texts:
        raise ValueError(f"{name} takes texts: the explorer shows models of pictures")
    if model.in_channels not in (1, 3):
        raise ValueError(f"{name} takes {model.in_channels} channels: no picture has that many")
    return model


def _warm_up(model: Model) -> None:
    """A first call allocates, transforms weights and imports: let it not be a visitor's."""
    with evaluating(model):
        model(torch.zeros(1, model.in_channels, *model.image_size))
    stroke = np.zeros((64, 64, 1), dtype=np.uint8)
    stroke[12:52, 28:34] = 255
    see(stroke, model, centre=True)


def _respond(compute: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> Response:
    try:
        with torch.inference_mode():
            answer = compute(*arguments)
    except np.linalg.LinAlgError:  # of the plane of the votes
        raise ValueError(NOT_A_NUMBER) from None
    return write(answer)


def write(answer: dict[str, Any]) -> Response:
    """An answer as JSON, which knows no NaN: a network whose training went wrong answers nothing else."""
    try:
        text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise ValueError(NOT_A_NUMBER) from None
    return Response(text, media_type="application/json")
