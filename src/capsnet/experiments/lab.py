"""The lab: where an experiment gets its trained networks and stores what it has measured.

Everything that takes time is stored in files as soon as it is done: a training run under the fingerprint of its
configuration, a measurement under its name and its inputs. An interrupted experiment therefore continues where it
stopped, and experiments that need the same network train it once.
"""

import dataclasses
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch

from capsnet import _version
from capsnet._files import write_atomically
from capsnet.inference import pick_device
from capsnet.models import Model, list_models, model_options
from capsnet.training import Run, TrainConfig, read_config, recorded, train
from capsnet.training.run import CONFIG, ENV, RESULTS, WEIGHTS
from capsnet.weights import list_weights, load, read_metadata, resolve

Budget = Literal["smoke", "quick", "shipped", "day", "paper"]
T = TypeVar("T")
log = logging.getLogger("capsnet")


class Trained(NamedTuple):
    """A finished run: its model, its test metrics (measured once, when it ended) and where it is."""

    model: Model
    test: dict[str, Any]
    validation: float | None  # accuracy at the epoch whose weights these are; choices are made on it
    folder: Path
    processor: float | None = None  # seconds of processor time that its training took, of all threads

    @property
    def error(self) -> float:
        """Test error in percent: of exact matches where there are several labels."""
        return 100 * (1 - main_metric(self.test)["value"])


def main_metric(metrics: dict[str, Any]) -> dict[str, Any]:
    """Accuracy, or exact match where an example has several labels."""
    return metrics.get("accuracy") or metrics["exact_match"]


class Lab:
    """One experiment's folder ``OUT/BUDGET/NAME``, and the runs of all experiments in ``OUT/BUDGET/runs``."""

    def __init__(
        self,
        name: str,
        budget: Budget,
        seeds: int,
        out: str | Path,
        *,
        device: str = "auto",
        fresh: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.options = options or {}  # of this experiment alone: see its documentation
        self.name, self.budget, self.device = name, budget, device
        self.seeds = range(seeds)
        self.folder = Path(out) / budget / name
        self.runs = Path(out) / budget / "runs"
        self.seconds = 0.0  # of everything this experiment used, also where it was done earlier
        self._now = 0.0  # how much of that was done in this process
        self.machines: set[str] = set()  # what the networks were trained on
        self.bundled: dict[str, str] = {}  # which bundled networks were used, with the fingerprint of their weights
        self.fresh = fresh
        self._cleared: set[Path] = set()

    def open(self) -> "Lab":
        """Make the folders; with ``fresh``, delete what was in them."""
        if self.fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "figures").mkdir(parents=True, exist_ok=True)
        (self.folder / "steps").mkdir(exist_ok=True)
        return self

    def pick(self, smoke: T, quick: T, paper: T, *day: T) -> T:
        """The value for this budget; networks of the budgets shipped and day (unless it is given) are measured as
        thoroughly as the paper's."""
        return {"smoke": smoke, "quick": quick, "shipped": paper, "day": (*day, paper)[0], "paper": paper}[self.budget]

    def figure(self, name: str) -> Path:
        """The path of a figure."""
        return self.folder / "figures" / name

    def where(self, config: TrainConfig) -> Path:
        """The folder of a run, named by the settings that decide its result."""
        return self.runs / f"{config.recipe}-{fingerprint(resolved(config))}"

    def train(self, config: TrainConfig, *, figures: bool = True) -> Trained:
        """The network of this configuration: loaded if its run is finished, else trained or resumed.

        ``figures``: whether its run folder has figures, which take seconds (never with the smoke budget).
        """
        if self.budget == "shipped":
            return self._load_bundled(config)
        config = resolved(config)
        folder = self.where(config)
        if self.fresh and folder not in self._cleared:
            shutil.rmtree(folder, ignore_errors=True)
        self._cleared.add(folder)
        if not Run(folder).finished:
            log.info("training %s on %s, seed %d", config.recipe, config.data, config.seed)
            spent, clocks = folder / "seconds.json", {"seconds": time.perf_counter, "processor": time.process_time}
            before = _read(spent) if spent.is_file() else {}  # an interrupted run is continued
            started = {name: clock() for name, clock in clocks.items()}
            try:
                train(config, out=folder, resume="auto", device=self.device, figures=figures and self.budget != "smoke")
            finally:
                took = {name: clock() - started[name] for name, clock in clocks.items()}
                self._now += took["seconds"]
                if folder.is_dir():
                    total = {name: round(before.get(name, 0.0) + took[name], 2) for name in clocks}
                    write_atomically(spent, json.dumps(total) + "\n")
        assert read_config(folder / CONFIG) == config
        took = _read(folder / "seconds.json")
        self.seconds += took["seconds"]
        self.machines.add(machine(_read(folder / ENV)))
        results = _read(folder / RESULTS)
        epochs = [line for line in Run(folder).records("epoch") if line["epoch"] == results["epoch"]]
        validation = epochs[-1].get("val_accuracy")
        return Trained(self._load(folder / WEIGHTS), results, validation, folder, took.get("processor"))

    def keep(self, folders: Iterable[Path]) -> None:
        """Use these runs, which are new, also with ``fresh``."""
        self._cleared.update(folders)

    def _load(self, source: str | Path) -> Model:
        return load(source).to(pick_device(self.device))

    def _load_bundled(self, config: TrainConfig) -> Trained:
        """The bundled network for this task; its test metrics are those of its card."""
        name = bundled_for(config)
        model = self._load(name)
        card = model.card
        self.bundled[name] = identity(resolve(name))
        self.machines.add(machine(card["origin"] | {"device": "cpu"}))
        return Trained(model, {"accuracy": card["tests"][config.data], **card}, None, resolve(name))

    def remember(self, what: str, make: Callable[[], dict[str, Any]], **inputs: Any) -> dict[str, Any]:
        """A measurement: read if it was made before with the same inputs, else made and stored.

        The result must be JSON. ``inputs`` are whatever decides it: a run's folder, a number of examples.
        """
        words = {key: identity(value) if isinstance(value, Path) else value for key, value in inputs.items()}
        words["version"] = _version.__version__
        path = self.folder / "steps" / f"{what}-{fingerprint(words)}.json"
        if not path.is_file():
            started = time.perf_counter()
            value = make()
            took = time.perf_counter() - started
            self._now += took
            write_atomically(path, json.dumps({"inputs": words, "seconds": took, "value": value}, indent=1) + "\n")
        stored = _read(path)
        self.seconds += stored["seconds"]
        return stored["value"]

    def total_seconds(self, elapsed: float) -> float:
        """All the work, after ``elapsed`` seconds in this process; what was read counts as long as it once took."""
        return self.seconds + max(0.0, elapsed - self._now)


def bundled_for(config: TrainConfig) -> str:
    """The bundled model for a task: trained and tested on its data, with or without capsules as its network; that
    network first."""
    routes = {name: "routing" in model_options(name) for name in list_models()}
    about = {name: read_metadata(resolve(name)) for name in list_weights()}
    networks = {name: one["config"]["name"] for name, one in about.items() if is_for(config.data, one["card"])}
    networks = {name: one for name, one in networks.items() if routes[one] == routes[config.model]}
    if not networks:
        raise ValueError(f"no bundled model is like {config.model}, and trained and tested on {config.data}")
    return min(networks, key=lambda name: networks[name] != config.model)


def is_for(spec: str, card: dict[str, Any]) -> bool:
    """Whether a network was trained and tested on a data set; it may also have been tested on others."""
    return spec in card.get("tests", {}) and card["trained_on"]["data"] == spec


def resolved(config: TrainConfig) -> TrainConfig:
    """The configuration as a run records it, so that its fingerprint is that of its file."""
    return dataclasses.replace(recorded(config), tensorboard=False)


def fingerprint(values: TrainConfig | dict[str, Any]) -> str:
    """A short name for what decides a result.

    Settings at their defaults are left out, so that a setting added in a later version does not change the name.
    """
    usual = dataclasses.asdict(TrainConfig())
    plain = _changed(dataclasses.asdict(values), usual) if isinstance(values, TrainConfig) else values
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:10]


def _changed(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """What differs from the defaults, in nested dictionaries."""
    return {
        key: _changed(value, usual[key]) if isinstance(value, dict) and key in usual else value
        for key, value in values.items()
        if key not in usual or value != usual[key]
    }


def identity(run: Path) -> str:
    """A run (or a weights file) by its name and by a hash of its weights; the card does not count."""
    weights = run if run.is_file() else run / WEIGHTS
    if not weights.is_file():
        return run.name
    content = weights.read_bytes()
    header = int.from_bytes(content[:8], "little")  # safetensors: its length, the header, the numbers
    return f"{run.name}-{hashlib.sha256(content[8 + header :]).hexdigest()[:10]}"


def machine(env: dict[str, Any]) -> str:
    return (
        f"{env['processor']}, {env['threads']} threads, {env['device']}; capsnet {env['capsnet']}, torch {env['torch']}"
    )


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device
