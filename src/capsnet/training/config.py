"""The configuration of a run: one flat dataclass for the command line, Python and ``config.json``."""

import dataclasses
import functools
import json
import logging
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import pydantic
from pydantic import Field

from capsnet._limits import MOST, MOST_ITERATIONS
from capsnet._names import check_depth, check_name, describe_error
from capsnet.data.augment import Augment

Count: TypeAlias = Annotated[int, Field(ge=1, le=MOST)]
Many: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]
Name: TypeAlias = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]

log = logging.getLogger("capsnet")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides the outcome of a run. Two runs with equal configs on one machine give equal weights.

    The annotations state each value's range; a value outside it raises ``ValueError``.
    """

    recipe: Name = "custom"
    """Name of the recipe this configuration started from."""
    model: str = "capsnet-small"
    """Which network: see `capsnet list models`."""
    routing: str | None = None
    """Routing algorithm (see `capsnet list routings`); None leaves the network's own."""
    iterations: Annotated[int, Field(ge=1, le=MOST_ITERATIONS)] | None = None
    """Routing iterations; None leaves the routing's own default."""
    decoder: bool | None = None
    """Whether to reconstruct the input from the capsules; None leaves the network's own default."""
    model_options: dict[str, Any] = field(default_factory=dict)
    """The network's other options, as in create_model."""
    init: str | None = None
    """Trained weights to start from (a bundled name, a file, a run folder or hf:user/name), for fine-tuning."""
    teacher: str | None = None
    """A trained model or ensemble whose capsule lengths are learned besides the labels (distillation)."""
    teacher_weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Weight of the squared distance to the teacher's lengths."""
    data: str = "mnist"
    """Data set, as NAME or NAME:PATH: see `capsnet list datasets`."""
    train_on: Literal["train", "train+validation"] = "train"
    """Which split to train on; train+validation is for final runs, without a validation split to choose an epoch by."""
    limit: Many | None = None
    """Train on the first so many examples only (per epoch, if each epoch has new ones); None: all."""
    eval_limit: Many | None = None
    """Validate and test on the first so many examples only; None: all."""
    augment: Augment = field(default_factory=Augment)
    """How training images are augmented."""
    class_weights: bool = False
    """Give rare classes larger weights: each class has the same total weight in the loss."""
    epochs: Count = 10
    """Passes over the training data."""
    stop_at: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """End after the first epoch whose validation accuracy reaches this, e.g. 0.992; None runs all epochs."""
    batch_size: Count = 128
    """Images per step, over all processes together."""
    accumulate: Count = 1
    """Compute each step in so many parts, one after another, to save memory; the batch size stays the same."""
    precision: Literal["fp32", "bf16", "fp16", "auto"] = "fp32"
    """Precision of the network's products in training; weights, losses and tests stay fp32. auto: bf16 where the
    processor has it and the first steps are faster in it, else fp32."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Adam as in the paper, or with decoupled weight decay."""
    lr: Annotated[float, Field(gt=0, lt=10, allow_inf_nan=False)] = 1e-3
    """Learning rate: the first one of the paper's schedule, the highest one of one-cycle."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Weight decay of the optimizer."""
    schedule: Literal["paper", "one-cycle", "constant"] = "paper"
    """paper: x 0.96 every 2000 steps. one-cycle: up, then down to nearly zero."""
    warm_up: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.25
    """Fraction of a one-cycle schedule that goes up."""
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Largest gradient norm; None does not clip."""
    ema: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = None
    """Decay of an average of the weights, e.g. 0.999 (shorter at first), which is tested and saved; None: none."""
    keep: Literal["best", "last"] = "best"
    """Which epoch's weights to keep: the best on the validation split (of equally good ones the last), or the last."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Of initial weights, order and augmentation."""
    checkpoint_every: Many = 200
    """Steps between checkpoints; one is also written after each epoch, unless epochs are shorter."""
    tensorboard: bool = True
    """Write curves, reconstructions and the computation graph for TensorBoard."""

    def __post_init__(self) -> None:
        for name, adapter in _adapters().items():
            try:  # lists become tuples and a dictionary becomes Augment, as they come from JSON
                value = getattr(self, name)
                if isinstance(value, Integral) and not isinstance(value, int):
                    value = int(value)  # a number of NumPy, as a grid search gives
                value = adapter.validate_python(value, strict=name != "augment")
            except pydantic.ValidationError as error:
                raise ValueError(describe_error(error, name)) from None
            object.__setattr__(self, name, value)
        try:  # as read from config.json, so that a configuration equals its file
            object.__setattr__(self, "model_options", json.loads(json.dumps(self.model_options)))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"model_options must be what JSON can hold: {error}") from None
        check_depth("model_options", self.model_options)
        if self.accumulate > self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} cannot be computed in {self.accumulate} parts")
        if self.stop_at is not None and (self.train_on != "train" or self.keep != "best"):
            raise ValueError("stop_at needs a validation split and the best epoch: train_on=train and keep=best")

    def create_options(self) -> dict[str, Any]:
        """The options for ``create_model`` that this configuration states."""
        if "name" in self.model_options:
            raise ValueError(f"model_options must not set name: the network is model={self.model}")
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
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no configuration {path}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as error:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(values).__name__}")
    try:
        config = check_config(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if values.get("recipe") and "model" not in values:
        log.warning(
            "%s has no model: it gets %s, and the defaults of all other settings that are left out, not those of the "
            "recipe %s. `capsnet train %s --help` shows them",
            path, config.model, config.recipe, config.recipe,
        )  # fmt: skip
    return config


def check_config(values: dict[str, Any]) -> TrainConfig:
    """A configuration from plain values, or one sentence about the first that is wrong."""
    _check_keys(values, TrainConfig)
    return TrainConfig(**values)


@functools.cache
def _adapters() -> dict[str, pydantic.TypeAdapter]:
    hints = get_type_hints(TrainConfig, include_extras=True)
    return {field.name: pydantic.TypeAdapter(hints[field.name]) for field in dataclasses.fields(TrainConfig)}


def _check_keys(values: dict[str, Any], kind: type) -> None:
    known = {f.name: f for f in dataclasses.fields(kind)}
    for key, value in values.items():
        check_name("key", key, known)
        if isinstance(value, dict) and dataclasses.is_dataclass(known[key].type):
            _check_keys(value, known[key].type)  # type: ignore[arg-type]
