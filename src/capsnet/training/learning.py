"""Training in memory, without a run folder: what an estimator needs."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from capsnet.data import Dataset
from capsnet.inference import pick_device
from capsnet.models import Model
from capsnet.training.board import Board
from capsnet.training.checkpoint import new_state
from capsnet.training.config import TrainConfig
from capsnet.training.loop import fit
from capsnet.training.prepare import build
from capsnet.training.run import Run

NEVER = 10**9  # steps between checkpoints


class Learned(NamedTuple):
    """The trained model, the number of epochs, and the validation accuracy after each."""

    model: Model
    epochs: int
    scores: list[float]


class _Enough(Exception):
    """The validation accuracy has not grown for a while."""


def learn(
    config: TrainConfig,
    training: Dataset,
    validation: Dataset | None = None,
    *,
    weights: Tensor | None = None,
    patience: int | None = None,
    device: str = "auto",
) -> Learned:
    """Train the network of a configuration on these data sets; nothing is written.

    Args:
        weights: those of the classes in the loss, (J,).
        patience: stop after this many epochs without a better validation accuracy.
    """
    if patience is not None and patience < 1:
        raise ValueError(f"patience must be at least 1 epoch, got {patience}")
    scores: list[float] = []

    def on_epoch(line: dict[str, Any]) -> None:
        if "val_accuracy" in line:
            scores.append(line["val_accuracy"])
            if patience is not None and len(scores) - 1 - scores.index(max(scores)) >= patience:
                raise _Enough

    with torch.random.fork_rng():
        torch.manual_seed(config.seed)  # of dropout; all else is keyed
        silent = dataclasses.replace(config, checkpoint_every=NEVER)
        state = new_state(silent, build(config, training).to(pick_device(device)))
        with contextlib.suppress(_Enough):
            fit(state, training, validation, Run(Path(), writes=False), Board(), lambda: False, on_epoch, weights)
    if state.best_weights is not None:
        state.tested.load_state_dict(state.best_weights)
    return Learned(state.tested.eval(), state.epoch, scores)
