"""The models of the page, each with its gallery and the profile of its capsules."""

import logging
import threading
from collections.abc import Mapping

import numpy as np
import torch

from capsnet.explorer._gallery import Gallery
from capsnet.explorer._seen import see
from capsnet.inference import evaluating, profiles
from capsnet.inference.profiles import Profile
from capsnet.models import Model
from capsnet.serving.service import Service

log = logging.getLogger(__name__)
MEASURED = 1000  # examples that the profile of a model that is not bundled is measured on


class Exhibit:
    """One model under its public name, with the profile of its capsules once there is one."""

    def __init__(self, name: str, model: Model) -> None:
        self.name, self.model, self.profile = name, model, _profile(name, model)
        self.gallery = Gallery(model)
        self.prepared = False


class Studio(Service):
    """The service of the page. Models without a profile are measured in the background while it serves."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        super().__init__(models)
        self.exhibits = {name: Exhibit(name, model) for name, model in self.models.items()}
        self._preparing: threading.Thread | None = None
        self._closing = threading.Event()

    def find(self, name: str) -> Exhibit:
        """The exhibit of that name."""
        return self.exhibits[self.check(name)]

    def open(self) -> None:
        """Start to warm up the models and to measure those without a profile."""
        if not all(exhibit.prepared for exhibit in self.exhibits.values()):
            self._closing.clear()
            self._preparing = threading.Thread(target=self._prepare, name="capsnet-profiles", daemon=True)
            self._preparing.start()

    def close(self) -> None:
        self._closing.set()
        super().close()
        if self._preparing is not None:
            self._preparing.join(timeout=5)
        self._preparing = None

    def _prepare(self) -> None:
        torch.set_num_threads(1)
        waiting = [exhibit for exhibit in self.exhibits.values() if not exhibit.prepared]
        for exhibit in waiting:
            if not self._closing.is_set():
                _warm_up(exhibit.model)
        for exhibit in waiting:
            if not self._closing.is_set():
                exhibit.profile = exhibit.profile or self._measure(exhibit)
                exhibit.prepared = not self._closing.is_set()

    def _measure(self, exhibit: Exhibit) -> Profile | None:
        try:
            dataset = exhibit.gallery.measured_on()
            stop = self._closing.is_set
            return profiles.measure(exhibit.model, dataset, limit=MEASURED, batch_size=50, stop=stop)
        except (ValueError, LookupError, OSError) as error:
            log.debug("no profile of %s: %s", exhibit.name, error)
            return None


def _profile(name: str, model: Model) -> Profile | None:
    """The profile that is bundled under this name, if it fits the model."""
    profile = profiles.read(name)
    return profile if profile is None or len(profile.ranges or ()) in (0, model.num_classes) else None


def _warm_up(model: Model) -> None:
    """A first call allocates, transforms weights and imports: do it before the first request."""
    with evaluating(model):
        model(torch.zeros(1, model.in_channels, *model.image_size))
    stroke = np.zeros((64, 64, 1), dtype=np.uint8)
    stroke[12:52, 28:34] = 255
    see(stroke, model, centre=True)
