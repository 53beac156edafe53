"""TensorBoard: curves, reconstructions and the computation graph."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsnet.data import Dataset
from capsnet.inference import evaluating
from capsnet.models import Model, Output
from capsnet.training import distributed
from capsnet.training.checkpoint import State
from capsnet.training.config import TrainConfig

SHOWN = 16  # pictures per epoch


class Board:
    """Writes nothing: for runs without TensorBoard, and for processes other than the main one."""

    def scalars(self, group: str, values: dict[str, float], step: int) -> None: ...

    def epoch(self, line: dict[str, Any], state: State, shown: Dataset | None) -> None: ...

    def close(self) -> None: ...


class TensorBoard(Board):
    """Writes event files below the run's folder: ``tensorboard --logdir runs``."""

    def __init__(self, folder: Path, state: State, training: Dataset) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter  # slow to import, and only needed here

        place = folder / "tensorboard"
        resumed = place.is_dir() and any(place.iterdir())
        # steps after the checkpoint will be logged again, those up to it will not
        self.writer = SummaryWriter(str(place), purge_step=state.step + 1 if resumed else None)
        if not resumed:
            add_graph(self.writer, state.model, training.batch([0]).images)

    def scalars(self, group: str, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def epoch(self, line: dict[str, Any], state: State, shown: Dataset | None) -> None:
        numbers = {k: v for k, v in line.items() if k not in ("kind", "step", "epoch")}
        self.scalars("epoch", numbers, line["step"])
        if shown is not None:
            images = shown.batch(range(min(SHOWN, len(shown)))).images.to(next(state.tested.parameters()).device)
            with evaluating(state.tested):
                drawn = state.tested(images).reconstruction
            if drawn is not None:
                pairs = torch.stack([images, drawn], dim=1).flatten(0, 1)  # original, reconstruction, original, ...
                self.writer.add_images("reconstructions", pairs.clamp(0, 1), line["step"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class _Traced(nn.Module):
    """The graph tracer takes tensors only, so the parts of the output that are absent are left out."""

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


def open_board(folder: Path, state: State, config: TrainConfig, training: Dataset) -> Board:
    return TensorBoard(folder, state, training) if config.tensorboard and distributed.is_main() else Board()
