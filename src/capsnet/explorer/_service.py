"""The models of the page, each with its gallery and the profile of its capsules."""

import logging
import threading

import numpy as np
import torch

from capsnet.explorer._features import Features
from capsnet.explorer._gallery import Gallery, read_examples
from capsnet.explorer._seen import see
from capsnet.inference import evaluating, profiles
from capsnet.inference.profiles import Profile
from capsnet.models import Model
from capsnet.serving.service import Models, Service

log = logging.getLogger(__name__)
MEASURED = 1000  # examples that the profile of a model that is not bundled is measured on


class ModelEntry:
    """One model under its public name, with the profile of its capsules once there is one."""

    def __init__(self, name: str, model: Model, given: str | None = None) -> None:
        self.name, self.model, self.gallery, self.prepared = name, model, Gallery(model, given), False
        self.features = Features(model)
        profile = profiles.read(name)  # the one that is bundled under this name, if it fits the model
        self.first_pair: int | None = None  # the number of the pair to begin with, once it was searched for
        self.profile = profile if profile and len(profile.ranges or ()) in (0, model.num_classes) else None

    @property
    def multi(self) -> bool:
        """Whether it was trained on pictures of several objects."""
        info = self.gallery.info
        return bool(info and info.objects and info.objects > 1)


class ExplorerService(Service):
    """The service of the page. Models without a profile are measured in the background while it serves."""

    def __init__(self, models: Models, pictures: str | None = None) -> None:
        super().__init__(models)
        if pictures is not None:
            read_examples(pictures)  # a wrong name is an error now, not an empty gallery
        self.entries = {name: ModelEntry(name, model, pictures) for name, model in self.models.items()}
        self._preparing: threading.Thread | None = None
        self._closing = threading.Event()

    def find(self, name: str) -> ModelEntry:
        """The entry of that name."""
        return self.entries[self.check(name)]

    def open(self) -> None:
        """Start to warm up the models and to measure those without a profile."""
        if not all(entry.prepared for entry in self.entries.values()):
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
        waiting = [entry for entry in self.entries.values() if not entry.prepared]
        for entry in waiting:
            if not self._closing.is_set():
                _warm_up(entry.model)
        for entry in waiting:
            if not self._closing.is_set():
                entry.profile = entry.profile or self.measure(entry)
                entry.prepared = not self._closing.is_set()

    def measure(self, entry: ModelEntry) -> Profile | None:
        """The profile of its capsules on some examples, or None where there are none."""
        try:
            dataset = entry.gallery.measured_on()
            stop = self._closing.is_set
            return profiles.measure(entry.model, dataset, limit=MEASURED, batch_size=50, stop=stop)
        except (ValueError, LookupError, OSError) as error:
            log.debug("no profile of %s: %s", entry.name, error)
            return None


def _warm_up(model: Model) -> None:
    """A first call allocates, transforms weights and imports: do it before the first request."""
    with evaluating(model):
        model(torch.zeros(1, model.in_channels, *model.image_size))
    stroke = np.zeros((64, 64, 1), dtype=np.uint8)
    stroke[12:52, 28:34] = 255
    see(stroke, model, centre=True)
