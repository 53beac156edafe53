"""The lab: where an experiment gets its trained networks and keeps what it has measured.

Everything that takes time is remembered in files as soon as it is done, under a name that says what it is: a training
run under the fingerprint of its configuration, a measurement under its name and its inputs. So an experiment that was
stopped goes on where it was, and experiments that need the same network train it once.
"""

import dataclasses
import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch

from capsnet import _version
from capsnet._files import write_atomically
from capsnet.models import Model
from capsnet.training import TrainConfig, read_config, train
from capsnet.training.prepare import recorded
from capsnet.training.run import CONFIG, ENV, RESULTS, WEIGHTS, Run
from capsnet.weights import load, resolve

Budget = Literal["smoke", "quick", "shipped", "paper"]
BOX = {  # data and network -> the trained model in the box
    ("mnist", "capsnet"): "capsnet-mnist",
    ("multimnist", "capsnet"): "capsnet-multimnist",
    ("expanded-mnist", "capsnet"): "capsnet-affine",
    ("expanded-mnist", "baseline-cnn"): "capsnet-affine-cnn",
}
T = TypeVar("T")
log = logging.getLogger("capsnet")


class Trained(NamedTuple):
    """A finished run: its model, its test metrics (measured once, when it ended) and where it is."""

    model: Model
    test: dict[str, Any]
    validation: float | None  # accuracy at the epoch that was kept, what choices are made on
    folder: Path

    @property
    def error(self) -> float:
        """Test error in percent: of exact matches where there are several labels."""
        return 100 * (1 - share(self.test)["value"])


def share(metrics: dict[str, Any]) -> dict[str, Any]:
    """The one number: accuracy, or exact match where an example has several labels."""
    return metrics.get("accuracy") or metrics["exact_match"]


class Lab:
    """One experiment's place to work: `OUT/BUDGET/NAME`, with the runs that all share in `OUT/BUDGET/runs`."""

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
        self.options = options or {}  # what this experiment was told besides: see its own documentation
        self.name, self.budget, self.device = name, budget, device
        self.seeds = range(seeds)
        self.folder = Path(out) / budget / name
        self.runs = Path(out) / budget / "runs"
        self.seconds = 0.0  # of everything this experiment used, in whichever sitting it was done
        self._now = 0.0  # how much of that was done in this one
        self.machines: set[str] = set()  # what the networks were trained on
        self.boxed: dict[str, str] = {}  # which networks of the box were used, with the weights they had
        self.fresh = fresh
        self._forgotten: set[Path] = set()

    def open(self) -> "Lab":
        """Make the folders, after throwing away what was in them if it is to start afresh."""
        if self.fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "figures").mkdir(parents=True, exist_ok=True)
        (self.folder / "steps").mkdir(exist_ok=True)
        return self

    def pick(self, smoke: T, quick: T, paper: T) -> T:
        """What this budget calls for; networks in the box are measured as thoroughly as the paper's."""
        return {"smoke": smoke, "quick": quick, "shipped": paper, "paper": paper}[self.budget]

    def figure(self, name: str) -> Path:
        """Where to draw."""
        return self.folder / "figures" / name

    def where(self, config: TrainConfig) -> Path:
        """The folder of a run, named by what decides its outcome."""
        return self.runs / f"{config.recipe}-{fingerprint(resolved(config))}"

    def train(self, config: TrainConfig) -> Trained:
        """The network of this configuration: from its folder if it is finished, else trained now (or on)."""
        if self.budget == "shipped":
            return self._from_the_box(config)
        config = resolved(config)
        folder = self.where(config)
        if self.fresh and folder not in self._forgotten:
            shutil.rmtree(folder, ignore_errors=True)
        self._forgotten.add(folder)
        if not Run(folder).finished:
            spent = folder / "seconds.json"
            log.info("training %s on %s, seed %d", config.recipe, config.data, config.seed)
            started = time.perf_counter()
            with self._timed(spent):
                train(config, out=folder, resume="auto", device=self.device, figures=self.budget != "smoke")
            self._now += time.perf_counter() - started
        assert read_config(folder / CONFIG) == config
        self.seconds += _read(folder / "seconds.json")["seconds"]
        self.machines.add(machine(_read(folder / ENV)))
        results = _read(folder / RESULTS)
        epochs = [line for line in Run(folder).records("epoch") if line["epoch"] == results["epoch"]]
        return Trained(load(folder / WEIGHTS), results, epochs[-1].get("val_accuracy"), folder)

    def _from_the_box(self, config: TrainConfig) -> Trained:
        """The shipped network for this task; its test metrics are those of its card."""
        name = BOX[config.data, config.model]
        model = load(name)
        card = model.card
        self.boxed[name] = identity(resolve(name))
        self.machines.add(machine(card["origin"] | {"device": "cpu"}))
        return Trained(model, {"accuracy": card["tests"][config.data], **card}, None, resolve(name))

    def remember(self, what: str, make: Callable[[], dict[str, Any]], **inputs: Any) -> dict[str, Any]:
        """A measurement: looked up if it was made before with the same inputs, else made and kept.

        The result must be what JSON can hold. `inputs` are whatever decides it: a run's folder, a number of examples.
        """
        words = {key: identity(value) if isinstance(value, Path) else value for key, value in inputs.items()}
        words["version"] = _version.__version__
        path = self.folder / "steps" / f"{what}-{fingerprint(words)}.json"
        if not path.is_file():
            started = time.perf_counter()
            value = make()
            took = time.perf_counter() - started
            self._now += took
            kept = {"inputs": words, "seconds": took, "value": value}
            write_atomically(path, json.dumps(kept, indent=1) + "\n")
        kept = _read(path)
        self.seconds += kept["seconds"]
        return kept["value"]

    def total_seconds(self, here: float) -> float:
        """All the work, after `here` seconds in this sitting; what was looked up counts as long as it once took."""
        return self.seconds + max(0.0, here - self._now)

    @contextmanager
    def _timed(self, path: Path) -> Iterator[None]:
        """Add up the time a run takes, however often it is stopped and picked up again."""
        before = _read(path)["seconds"] if path.is_file() else 0.0
        started = time.perf_counter()
        try:
            yield
        finally:
            if path.parent.is_dir():
                total = before + time.perf_counter() - started
                write_atomically(path, json.dumps({"seconds": round(total, 2)}) + "\n")


def resolved(config: TrainConfig) -> TrainConfig:
    """The configuration as a run records it, so that its fingerprint is that of its file."""
    return dataclasses.replace(recorded(config), tensorboard=False)


def fingerprint(values: TrainConfig | dict[str, Any]) -> str:
    """A short name for what decides a result. Settings at their defaults are left out, so that a setting which is
    added to the toolkit later does not make strangers of yesterday's runs."""
    plain = values
    if isinstance(values, TrainConfig):
        plain = _changed(dataclasses.asdict(values), dataclasses.asdict(TrainConfig()))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:10]


def _changed(values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """What is not as usual, in dictionaries of dictionaries."""
    return {
        key: _changed(value, usual[key]) if isinstance(value, dict) and key in usual else value
        for key, value in values.items()
        if key not in usual or value != usual[key]
    }


def identity(run: Path) -> str:
    """A run (or a file of weights) by its name and by the weights that are in it now, whatever its card says."""
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
    return json.loads(path.read_text())


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device
