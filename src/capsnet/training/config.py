"""What a run is: one typed, flat description that the command line, Python and ``config.json`` share."""

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pydantic

from capsnet._names import check_name
from capsnet.data import Augment


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides the outcome of a run. Two runs with equal configs on one machine give equal weights."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(extra="forbid")

    recipe: str = "custom"
    """Name of the recipe this configuration started from."""
    model: str = "capsnet-small"
    """Which network: see `capsnet list models`."""
    routing: str | None = None
    """Routing algorithm (see `capsnet list routings`); None leaves the network's own."""
    iterations: int | None = None
    """Routing iterations; None leaves the routing's own default."""
    decoder: bool | None = None
    """Whether to reconstruct the input from the capsules; None leaves the network's own default."""
    model_options: dict[str, Any] = field(default_factory=dict)
    """The network's other options, as in create_model."""
    init: str | None = None
    """Trained weights to start from (a shipped name, a file or a run folder): fine-tuning on few images."""
    data: str = "mnist"
    """Data set, as NAME or NAME:PATH: see `capsnet list datasets`."""
    train_on: Literal["train", "train+validation"] = "train"
    """Which split to learn from. With train+validation nothing is left to choose an epoch by: for final runs."""
    limit: int | None = None
    """Learn from so many examples only (the first of the split; per epoch, where examples are made anew); None: all."""
    eval_limit: int | None = None
    """Validate and test on this many examples only (the first ones): for trying things out. None takes all."""
    augment: Augment = field(default_factory=Augment)
    """How training images are moved and bent."""
    class_weights: bool = False
    """Let rare classes count more: each class weighs the same in the loss, however few images it has."""
    epochs: int = 10
    """Passes over the training data."""
    stop_at: float | None = None
    """End after the first epoch whose validation accuracy reaches this, e.g. 0.992; None runs all epochs."""
    batch_size: int = 128
    """Images per step, over all processes together: more processes do not change what is learnt, only how fast."""
    accumulate: int = 1
    """Compute each step in so many parts, one after another, to fit the memory; the batch stays what it is."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Numbers to compute the network with while training; weights, losses and tests stay fp32."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Adam as in the paper, or with decoupled weight decay."""
    lr: float = 1e-3
    """Learning rate: the first one of the paper's schedule, the highest one of one-cycle."""
    weight_decay: float = 0.0
    """Pull of the weights towards zero."""
    schedule: Literal["paper", "one-cycle", "constant"] = "paper"
    """paper: x 0.96 every 2000 steps. one-cycle: up, then down to nothing."""
    warm_up: float = 0.25
    """Share of a one-cycle schedule that goes up."""
    clip: float | None = None
    """Largest gradient norm; None does not clip."""
    ema: float | None = None
    """Decay of an average of the weights, e.g. 0.999 (shorter at first): that is what gets tested. None: no average."""
    keep: Literal["best", "last"] = "best"
    """Which epoch's weights to keep: the best on the validation split, or the last."""
    seed: int = 0
    """Decides initial weights, order and augmentation."""
    checkpoint_every: int = 200
    """Steps between checkpoints; one is written after each epoch as well, unless epochs are shorter than that."""
    tensorboard: bool = True
    """Write curves, reconstructions and the computation graph for TensorBoard."""

    def __post_init__(self) -> None:
        try:  # as it comes back from config.json, so that a configuration equals its own file
            object.__setattr__(self, "model_options", json.loads(json.dumps(self.model_options)))
        except TypeError as error:
            raise ValueError(f"model_options must be what JSON can hold: {error}") from None
        if not re.fullmatch(r"[\w.-]+", self.recipe) or self.recipe.startswith("."):
            raise ValueError(f"a recipe's name is letters, digits, '-', '_' and '.', got {self.recipe!r}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie between 0 and 2^32 - 1, got {self.seed}")
        for name in ("epochs", "batch_size", "accumulate", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.accumulate > self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} cannot be computed in {self.accumulate} parts")
        if not 0 < self.lr < 10:
            raise ValueError(f"lr must lie between 0 and 10, got {self.lr}")
        if not 0 <= self.warm_up < 1:
            raise ValueError(f"warm_up must be at least 0 and below 1, got {self.warm_up}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be a number of at least 0, got {self.weight_decay}")
        for name in ("limit", "eval_limit"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ValueError(f"clip must be positive and finite, got {self.clip}")
        if self.stop_at is not None:
            if not 0 < self.stop_at <= 1:
                raise ValueError(f"stop_at must lie between 0 and 1, got {self.stop_at}")
            if self.train_on != "train" or self.keep != "best":
                raise ValueError("stop_at needs a validation split and the best epoch: train_on=train and keep=best")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must lie between 0 and 1, got {self.ema}")

    def create_options(self) -> dict[str, Any]:
        """The options for ``create_model`` that this configuration states."""
        for key in ("image_size", "in_channels", "num_classes"):
            if key in self.model_options:
                raise ValueError(f"model_options must not set {key}: it comes from the data")
        named = {"routing": self.routing, "iterations": self.iterations, "decoder": self.decoder}
        return self.model_options | {key: value for key, value in named.items() if value is not None}

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def read_config(path: str | Path) -> TrainConfig:
    """Read a ``config.json`` strictly: an unknown key or a value of the wrong kind is an error that names it."""
    path = Path(path)
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no configuration {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(values).__name__}")
    try:
        return check_config(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_config(values: dict[str, Any]) -> TrainConfig:
    """A configuration from plain values, or one sentence about the first that is wrong."""
    _check_keys(values, TrainConfig)
    try:
        return pydantic.TypeAdapter(TrainConfig).validate_python(values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "configuration"
        raise ValueError(f"{where}: {first['msg']}, got {first['input']!r}") from None


def _check_keys(values: dict[str, Any], kind: type) -> None:
    known = {f.name: f for f in dataclasses.fields(kind)}
    for key, value in values.items():
        check_name("key", key, known)
        if isinstance(value, dict) and dataclasses.is_dataclass(known[key].type):
            _check_keys(value, known[key].type)  # type: ignore[arg-type]
