"""A training that is judged by the validation split alone: what choices between settings are made by.

The test split is not even opened. A number that somebody has looked at a hundred times to choose the best of a hundred
settings says nothing any more about images that nobody has seen.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from capsnet import data
from capsnet.data import Dataset
from capsnet.inference import pick_device
from capsnet.training import run
from capsnet.training.board import Board
from capsnet.training.checkpoint import new_state
from capsnet.training.config import TrainConfig, check_config
from capsnet.training.loop import Interrupted, fit, stop_politely
from capsnet.training.prepare import build, first, recorded

NEVER = 10**9  # steps between checkpoints: what was cut short is tried from the start


class Tried(NamedTuple):
    """What came out: the validation accuracy of the epoch that would be kept, and which epoch that is."""

    score: float
    epoch: int


def try_out(
    config: TrainConfig,
    out: str | Path,
    *,
    device: str = "auto",
    on_epoch: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Tried:
    """Train in the new folder ``out`` and return how good it got on the validation split.

    ``on_epoch`` gets each epoch's line as it stands in ``metrics.jsonl``; what it raises ends the training. Leaves
    configuration, environment and metrics, but no weights and no figures: of a hundred settings that were tried, these
    are what one goes back to.
    """
    config = check_config(dataclasses.asdict(recorded(config)))
    training, validation = load_to_choose(config)
    where = pick_device(device)
    model = build(config, training).to(where)
    here = run.open_run(config, out, "no")
    with here.lock():
        here.write(run.ENV, run.environment(where))
        try:
            once = dataclasses.replace(config, checkpoint_every=NEVER)
            with stop_politely() as stopped:
                fit(once, new_state(config, model), training, validation, here, Board(), stopped, on_epoch)
            if stopped():  # after the last step
                raise Interrupted(here.folder)
        finally:
            here.checkpoint.unlink(missing_ok=True)
        tried = judge(config, here.records("epoch"))
        here.write(run.RESULTS, {"split": "validation", "epoch": tried.epoch, "accuracy": {"value": tried.score}})
    return tried


def load_to_choose(config: TrainConfig) -> tuple[Dataset, Dataset]:
    """The training and the validation split, as far as the configuration wants them."""
    if config.train_on != "train":
        raise ValueError(
            f"train_on={config.train_on} leaves no validation split to choose by: settings are compared with "
            "train_on=train"
        )
    training, validation = data.load(config.data, "train"), data.load(config.data, "validation")
    return first(training, config.limit), first(validation, config.eval_limit)


def judge(config: TrainConfig, epochs: list[dict[str, Any]]) -> Tried:
    """The epoch that a run would keep: the first of the best ones, or the last."""
    scores = [(line["val_accuracy"], line["epoch"]) for line in epochs]
    return Tried(*(max(scores, key=lambda pair: (pair[0], -pair[1])) if config.keep == "best" else scores[-1]))
