"""Where numbers go while a run trains: TensorBoard (with reconstructions and the computation graph) and trackers."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsnet.data import Dataset
from capsnet.inference import evaluating
from capsnet.models import Model, Output
from capsnet.training import distributed
from capsnet.training.checkpoint import State
from capsnet.training.tracking import Tracker

SHOWN = 16  # pictures per epoch


class Board:
    """Writes event files into the run's folder (``tensorboard --logdir runs``) and calls the trackers."""

    def __init__(self, writer: Any = None, trackers: Sequence[Tracker] = ()) -> None:
        self.writer, self.trackers = writer, trackers

    def scalars(self, group: str, values: dict[str, float], step: int) -> None:
        for name, value in values.items() if self.writer else ():
            self.writer.add_scalar(f"{group}/{name}", value, step)
        for tracker in self.trackers:
            tracker.log(group, dict(values), step)

    def epoch(self, line: dict[str, Any], state: State, shown: Dataset | None) -> None:
        self.scalars("epoch", {k: v for k, v in line.items() if k not in ("kind", "step", "epoch")}, line["step"])
        if self.writer is None:
            return
        if shown is not None and state.tested.draws:
            images = shown.batch(range(min(SHOWN, len(shown)))).images.to(state.device)
            with evaluating(state.tested):
                drawn = state.tested(images).reconstruction
            pairs = torch.stack([images, drawn], dim=1).flatten(0, 1)  # original, reconstruction, original, ...
            self.writer.add_images("reconstructions", pairs.clamp(0, 1), line["step"])
        self.writer.flush()

    def close(self, results: dict[str, Any] | None) -> None:
        """``results`` are the test metrics, or None if the run did not finish."""
        if self.writer is not None:
            self.writer.close()
        for tracker in self.trackers:
            tracker.end(results)


class _Traced(nn.Module):
    """The model's output as a tuple of tensors, for the graph tracer."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output: Output = self.model(images)
        return tuple(part for part in output[:4] if part is not None)


def add_graph(writer: Any, model: Model, images: Tensor) -> None:
    """Draw the computation graph for such images, layers as named boxes."""
    images = images.to(next(model.parameters()).device)
    with evaluating(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer warns that Python sizes become constants, as they should
        writer.add_graph(_Traced(model), images)


def open_board(
    folder: Path, state: State, training: Dataset, tensorboard: bool, trackers: Sequence[Tracker] = ()
) -> Board:
    """The board of a run, with the computation graph; empty if this is not rank 0."""
    if not distributed.is_main():
        return Board()
    for tracker in trackers:
        tracker.begin(dataclasses.asdict(state.config), folder)
    if not tensorboard:
        return Board(None, trackers)
    from torch.utils.tensorboard.writer import SummaryWriter  # slow to import

    place = folder / "tensorboard"
    resumed = place.is_dir() and any(place.iterdir())
    # steps after the checkpoint will be logged again, those up to it will not
    writer = SummaryWriter(str(place), purge_step=state.step + 1 if resumed else None)
    if not resumed:
        add_graph(writer, state.model, training.batch([0]).images)
    return Board(writer, trackers)
