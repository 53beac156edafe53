"""The training loop: read it from top to bottom and you know what a run does."""

import dataclasses
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from capsnet import data
from capsnet.data import Batch, Dataset
from capsnet.inference import Evaluation
from capsnet.models import Model
from capsnet.training import board, distributed, run
from capsnet.training.balance import class_weights
from capsnet.training.checkpoint import (
    Diverged,
    State,
    check_finite,
    kept_checkpoint,
    load_checkpoint,
    new_state,
    save_checkpoint,
)
from capsnet.training.config import TrainConfig, check_config
from capsnet.training.distributed import evaluate
from capsnet.training.objective import Piece, backward, explained, own_piece
from capsnet.training.optim import learning_rate
from capsnet.training.prepare import build, first, load_splits, recorded
from capsnet.training.report import report

__all__ = ["Interrupted", "Result", "build", "first", "fit", "load_splits", "train", "train_step"]
log = logging.getLogger("capsnet")
RECORD_EVERY = 50  # steps between two lines of metrics.jsonl


class Interrupted(Exception):
    """The user stopped the run; a checkpoint is written, ``folder`` can be resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped; go on with --resume {folder}")
        self.folder = folder


class Result(NamedTuple):
    """What came out of a run."""

    model: Model
    folder: Path
    test: Evaluation


def train(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    resume: str | Path = "no",
    device: str = "auto",
    threads: int | None = None,
    compile: bool = False,
    figures: bool = True,
) -> Result:
    """Train a model, test it once, and leave a folder that tells the story.

    Under `torchrun` all its processes train this one model together; the first of them writes.

    Args:
        config: what to do; ``capsnet.recipes`` has complete ones.
        out: folder of the run; default ``runs/RECIPE/TIME-SEED``.
        resume: "no", "auto" (the newest unfinished run with an equal config) or a run folder.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves PyTorch's choice.
        compile: whether to let torch.compile translate the network; a minute at the start, quicker steps after it.
        figures: whether to draw at the end.
    """
    if threads is not None:
        most = 8 * (os.cpu_count() or 1)
        if not 1 <= threads <= most:
            raise ValueError(f"threads must lie between 1 and {most} on this machine, got {threads}")
        torch.set_num_threads(threads)
    config = check_config(dataclasses.asdict(recorded(config)))
    with distributed.joined(device) as where:
        log_processes(config)
        with distributed.in_turn():
            splits = load_splits(config)
        model = build(config, splits[0]).to(where)
        here = run.open_together(config, out, resume)
        with here.lock(), logging_redirect_tqdm():
            return train_in(here, config, new_state(config, model, compile), *splits, compile, figures)


def train_in(
    here: run.Run,
    config: TrainConfig,
    state: State,
    training: Dataset,
    validation: Dataset | None,
    test: Dataset,
    compiled: bool,
    figures: bool,
) -> Result:
    """A run from where its folder stands to its end."""
    state.examples = len(training)
    if distributed.told(here.checkpoint.is_file):
        load_checkpoint(state, here.checkpoint)
        log.info("resuming %s at step %d", here.folder, state.step)
    here.forget_after(state.step, state.epoch)
    here.record_environment(state.step, run.environment(state.device) | {"processes": distributed.world()})
    writer = board.open_board(here.folder, state, config, training)
    with stop_politely() as stopped, explained(compiled):
        fit(config, state, training, validation, here, writer, stopped)
    writer.close()
    if state.best_weights is not None:
        state.tested.load_state_dict(state.best_weights)
    tested = report(config, state, here, test, figures)
    if distributed.main():
        here.checkpoint.unlink(missing_ok=True)
        (here.folder / run.JOB).unlink(missing_ok=True)
    return Result(state.tested.eval(), here.folder, tested)


def log_processes(config: TrainConfig) -> None:
    """Refuse more processes than examples in a batch; say how it is shared."""
    world, size = distributed.world(), config.batch_size
    if world > size:
        raise ValueError(f"{world} processes cannot share a batch of {size}: start fewer, or set a larger --batch-size")
    if world > 1:
        each = f"{size // world}" if size % world == 0 else f"{size // world} or {size // world + 1}"
        rate = f"learning rate {config.lr:g} as given (not scaled)"
        log.info("%d processes, global batch %d = %s each, %s", world, size, each, rate)


def fit(
    config: TrainConfig,
    state: State,
    training: Dataset,
    validation: Dataset | None,
    here: run.Run,
    writer: board.Board,
    stopped: Callable[[], bool],
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """All epochs that are left, from wherever the state stands. Who takes each one's line shows the progress."""
    per_epoch = data.num_batches(training, config.batch_size)
    total = per_epoch * config.epochs
    done, quiet = state.epoch * len(training) + state.seen, None if distributed.main() and not on_epoch else True
    unit = " texts" if training.vocabulary else " images"
    with tqdm(total=config.epochs * len(training), initial=done, unit=unit, disable=quiet, dynamic_ncols=True) as bar:
        weights = class_weights(training) if config.class_weights else None
        while state.epoch < config.epochs and not good_enough(config, state):
            bar.set_description(f"epoch {state.epoch + 1}/{config.epochs}", refresh=False)
            since = time.perf_counter()
            order: dict[str, Any] = {"seed": config.seed, "epoch": state.epoch, "shuffle": True, "start": state.batch}
            for index in data.batch_indices(len(training), config.batch_size, **order):
                batch, piece = own_piece(config, training, index, state.epoch)
                losses = train_step(config, state, batch, weights, total, here, piece)
                bar.update(piece.whole)
                if state.step % RECORD_EVERY == 0:
                    here.record({"kind": "step", "step": state.step, "epoch": state.epoch + 1} | losses)
                    writer.scalars("step", losses, state.step)
                    bar.set_postfix(loss=f"{losses['loss']:.4f}", refresh=False)
                if state.step % config.checkpoint_every == 0 and state.batch < per_epoch:
                    since = state.spend(since)
                    save_checkpoint(state, here.checkpoint)
                if distributed.agreed(stopped(), state.device):
                    state.spend(since)
                    save_checkpoint(state, here.checkpoint)
                    raise Interrupted(here.folder)
            state.spend(since)
            line = end_epoch(config, state, validation, here, writer, total)
            if on_epoch is not None:
                on_epoch(line)


def good_enough(config: TrainConfig, state: State) -> bool:
    return config.stop_at is not None and state.best_score >= config.stop_at


def train_step(
    config: TrainConfig,
    state: State,
    batch: Batch,
    weights: Tensor | None,
    total: int,
    here: run.Run,
    piece: Piece | None = None,
) -> dict[str, float]:
    """One batch: forward, loss, backward, one step of the optimiser. Returns the losses.

    ``piece`` tells which part of the whole batch this process has; None: all of it.
    """
    piece = piece or Piece(len(batch.images), len(batch.images))
    model, optimizer, scaler = state.model, state.optimizer, state.scaler
    rate = learning_rate(config, state.step, total)
    for group in optimizer.param_groups:
        group["lr"] = rate
    model.train()
    optimizer.zero_grad(set_to_none=True)
    losses = backward(config, state.objective, model, scaler, batch, piece, weights, state.step)
    scaler.unscale_(optimizer)
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip or math.inf))
    too_large = scaler.is_enabled() and scaler.get_scale() > 1  # for fp16: left out, and tried with a smaller scale
    if not math.isfinite(losses["loss"]) or not (math.isfinite(norm) or too_large):
        raise Diverged(diverged(losses, norm, rate, state, here))
    scaler.step(optimizer)
    scaler.update()
    distributed.equal_buffers(model)
    if state.average is not None:
        state.average.update_parameters(model)
    for name, value in losses.items():
        state.sums[name] = state.sums.get(name, 0.0) + value * piece.whole
    state.seen += piece.whole
    state.batch += 1
    state.step += 1
    return losses | {"lr": rate, "gradient_norm": norm}


def end_epoch(
    config: TrainConfig,
    state: State,
    validation: Dataset | None,
    here: run.Run,
    writer: board.Board,
    total: int,
) -> dict[str, Any]:
    """Validate, remember the best, write the epoch's line (returned) and (unless epochs are tiny) a checkpoint."""
    check_finite(state, here.checkpoint)
    before, seconds = state.step - state.batch, state.spent
    speed = state.seen / seconds if seconds else 0.0  # 0: an older checkpoint, which did not say
    state.epoch += 1
    means = {f"train_{name}": value / state.seen for name, value in state.sums.items()}
    line: dict[str, Any] = {"kind": "epoch", "step": state.step, "epoch": state.epoch} | means
    if validation is not None:
        score = evaluate(state.tested, validation).accuracy.value
        line |= {"val_accuracy": score, "val_error": 1 - score}
        if config.keep == "best" and score > state.best_score:
            weights = {name: t.detach().cpu().clone() for name, t in state.tested.state_dict().items()}
            state.best_score, state.best_epoch, state.best_weights = score, state.epoch, weights
    line |= {"lr": learning_rate(config, state.step - 1, total), "images_per_second": round(speed, 1)}
    line["seconds"] = round(seconds, 1)  # of training; time to validate is not in it
    here.record(line)
    writer.epoch(line, state, validation)
    state.sums, state.seen, state.spent, state.batch = {}, 0, 0.0, 0
    # ten images make an epoch of one step: then every checkpoint_every steps are enough, as within long epochs
    if state.epoch == config.epochs or state.step // config.checkpoint_every > before // config.checkpoint_every:
        save_checkpoint(state, here.checkpoint)
    accuracy = f"  validation accuracy {line['val_accuracy']:.2%}" if validation is not None else ""
    if seconds < 0.5 and state.epoch % 10 and state.epoch != config.epochs:
        return line  # hundreds of epochs over a few images: every tenth is news enough
    what = "texts" if state.model.takes_texts else "images"
    said = (state.epoch, config.epochs, line["train_loss"], accuracy, speed, what)
    log.info("epoch %d/%d  loss %.4f%s  %.0f %s/s", *said)
    return line


def diverged(losses: dict[str, float], norm: float, rate: float, state: State, here: run.Run) -> str:
    parts = ", ".join(f"{name} {value:g}" for name, value in losses.items())
    return (
        f"training diverged at step {state.step + 1} (epoch {state.epoch + 1}, batch {state.batch + 1}): {parts}, "
        f"gradient norm {norm:g}, learning rate {rate:g}; {kept_checkpoint(here.checkpoint)}. "
        "Try a lower --lr or --clip 1"
    )


@contextmanager
def stop_politely() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a flag, so that the step is finished and saved.

    A second Ctrl-C kills; a second SIGTERM does not: schedulers and torchrun send one each.
    """
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag.is_set
        return

    def on_signal(number: int, frame: object) -> None:
        flag.set()
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
