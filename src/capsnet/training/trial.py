"""Training that is scored on the validation split, for comparing settings.

The test split is not opened: a test score that was used to choose settings does not estimate the error on new images.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from capsnet import data
from capsnet.data import Dataset
from capsnet.inference import pick_device
from capsnet.training.board import Board
from capsnet.training.checkpoint import new_state
from capsnet.training.config import TrainConfig, check_config
from capsnet.training.learning import NEVER
from capsnet.training.loop import Interrupted, fit, stop_politely
from capsnet.training.precision import check_precision, settle_precision
from capsnet.training.prepare import build, first, recorded
from capsnet.training.run import ENV, RESULTS, environment, open_run


class Tried(NamedTuple):
    """The validation accuracy of the epoch that a run would keep, and that epoch."""

    score: float
    epoch: int


def try_out(
    config: TrainConfig,
    out: str | Path,
    *,
    device: str = "auto",
    on_epoch: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Tried:
    """Train in the new folder ``out`` and return the validation accuracy.

    ``on_epoch`` gets each epoch's line of ``metrics.jsonl``; what it raises ends the training. Writes configuration,
    environment and metrics, but no weights and no figures.
    """
    config = check_config(dataclasses.asdict(recorded(config)))
    training, validation = load_to_choose(config)
    chosen_device = pick_device(device)
    check_precision(config, chosen_device)
    model = build(config, training).to(chosen_device)
    run = open_run(config, out, "no")
    with run.lock():  # an interrupted trial starts again
        state = new_state(dataclasses.replace(config, checkpoint_every=NEVER), model)
        run.write(ENV, environment(chosen_device) | {"precision": settle_precision(state, training, run)})
        try:
            with stop_politely() as stopped:
                fit(state, training, validation, run, Board(), stopped, on_epoch)
            if stopped():  # after the last step
                raise Interrupted(run.folder)
        finally:
            run.checkpoint.unlink(missing_ok=True)
        tried = judge(config, run.records("epoch"))
        run.write(RESULTS, {"split": "validation", "epoch": tried.epoch, "accuracy": {"value": tried.score}})
    return tried


def load_to_choose(config: TrainConfig) -> tuple[Dataset, Dataset]:
    """The training and the validation split, with the configuration's limits."""
    if config.train_on != "train":
        raise ValueError(
            f"train_on={config.train_on} leaves no validation split to choose by: settings are compared with "
            "train_on=train"
        )
    training, validation = data.load(config.data, "train"), data.load(config.data, "validation")
    return first(training, config.limit), first(validation, config.eval_limit)


def judge(config: TrainConfig, epochs: list[dict[str, Any]]) -> Tried:
    """The epoch that a run would keep: the last of the best ones, or the last of all."""
    scores = [(line["val_accuracy"], line["epoch"]) for line in epochs]
    return Tried(*(max(scores) if config.keep == "best" else scores[-1]))
