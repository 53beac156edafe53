"""The training loop, from top to bottom in the order in which it runs."""

import dataclasses
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from capsnet import data
from capsnet.data import Dataset, given
from capsnet.data.ahead import made_ahead
from capsnet.data.fingerprint import fingerprint
from capsnet.inference import Evaluation
from capsnet.models import Model
from capsnet.training import distributed
from capsnet.training.balance import class_weights
from capsnet.training.board import Board, open_board
from capsnet.training.checkpoint import (
    Diverged,
    State,
    Step,
    check_finite,
    last_checkpoint,
    load_checkpoint,
    new_state,
    save_checkpoint,
    update_average,
)
from capsnet.training.config import TrainConfig, check_config
from capsnet.training.distributed import evaluate
from capsnet.training.growth import routing_at
from capsnet.training.objective import MicroBatch, backward, explained, own_micro_batches
from capsnet.training.optim import gradient_norm, learning_rate
from capsnet.training.precision import check_precision, settle_precision
from capsnet.training.prepare import build, first, load_splits, recorded
from capsnet.training.report import report
from capsnet.training.run import JOB, Run, environment, open_on_all_ranks
from capsnet.training.tracking import Tracker, available, check_trackers

__all__ = ["Interrupted", "Result", "build", "first", "fit", "load_splits", "read_losses", "train", "train_step"]
log = logging.getLogger("capsnet")
RECORD_EVERY = 50  # steps between two lines of metrics.jsonl
IMMEDIATE = ("cpu",)  # devices on which reading a result does not wait for others


class Interrupted(Exception):
    """The user stopped the run; a checkpoint is written, ``folder`` can be resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped; continue with --resume {folder}")
        self.folder = folder


class Result(NamedTuple):
    """The outcome of a run: the model, the run's folder and the evaluation on the test split."""

    model: Model
    folder: Path
    test: Evaluation

    def __str__(self) -> str:
        return f"{self.folder}: {self.test}"

    def __repr__(self) -> str:
        return f"<Result of {self.model.config['name']} in {self}>"


def train(
    config: TrainConfig,
    *,
    data: Any = None,
    out: str | Path | None = None,
    resume: str | Path = "no",
    device: str = "auto",
    threads: int | None = None,
    compile: bool = False,
    figures: bool = True,
    trackers: Sequence[Tracker] = (),
) -> Result:
    """Train a model, test it once, and write a run folder.

    Under ``torchrun`` all processes train one model together, and rank 0 writes.

    Args:
        config: the configuration; ``capsnet.recipes`` has complete ones.
        data: data in Python instead of those that the configuration names: one source, which is split by class (70 %
            train, 15 % validation, 15 % test), or a mapping of these splits to sources. A source is what
            ``capsnet.data.adapt`` takes: arrays, a torch or Hugging Face data set, or one of this package.
        out: folder of the run; default ``runs/RECIPE/TIME-SEED``.
        resume: "no", "auto" (the newest unfinished run with an equal config) or a run folder.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves PyTorch's choice.
        compile: whether to use torch.compile; a minute at the start, faster steps after it.
        figures: whether to draw figures at the end.
        trackers: told the configuration, the metrics and the results, see ``capsnet.training.Tracker``.
    """
    if threads is not None:
        most = 8 * (os.cpu_count() or 1)
        if not 1 <= threads <= most:
            raise ValueError(f"threads must lie between 1 and {most} on this machine, got {threads}")
        torch.set_num_threads(threads)
    check_trackers(trackers)
    source = None if data is None else given(data)
    config = check_config(dataclasses.asdict(recorded(config, source)))
    with distributed.process_group(device) as rank_device:
        log_processes(config)
        check_precision(config, rank_device)
        with distributed.local_main_first():
            splits = load_splits(config, source)
        model = build(config, splits[0]).to(rank_device)
        state = new_state(config, model, compile)  # refuses a wrong teacher before there is a folder
        run = open_on_all_ranks(config, out, resume)
        with run.lock(), logging_redirect_tqdm():
            return train_in(run, state, *splits, compile, figures, trackers)


def train_in(
    run: Run,
    state: State,
    training: Dataset,
    validation: Dataset | None,
    test: Dataset,
    compiled: bool,
    figures: bool,
    trackers: Sequence[Tracker],
) -> Result:
    """Start or resume the run of a folder, and finish it."""
    state.examples = len(training)
    splits = {"training": training, "validation": validation, "test": test}
    state.data = {
        name: fingerprint(split, seed=state.config.seed) for name, split in splits.items() if split is not None
    }
    if distributed.broadcast_from_main(run.checkpoint.is_file):
        load_checkpoint(state, run.checkpoint)
        log.info("resuming %s at step %d", run.folder, state.step)
    run.forget_after(state.step, state.epoch)
    settled = {"processes": distributed.world_size(), "precision": settle_precision(state, training, run)}
    run.record_environment(state.step, environment(state.device) | settled)
    figures, tensorboard = available(figures, state.config.tensorboard)
    board, results = open_board(run.folder, state, training, tensorboard, trackers), None
    try:
        with stop_politely() as stopped, explained(compiled):
            fit(state, training, validation, run, board, stopped)
        if state.best_weights is not None:
            state.tested.load_state_dict(state.best_weights)
        test_result = report(state, run, test, figures)
        results = test_result.metrics
    finally:
        board.close(results)
    if distributed.is_main():
        run.checkpoint.unlink(missing_ok=True)
        (run.folder / JOB).unlink(missing_ok=True)
    return Result(state.tested.eval(), run.folder, test_result)


def log_processes(config: TrainConfig) -> None:
    """Refuse more processes than examples in a batch; log how it is divided."""
    processes, size = distributed.world_size(), config.batch_size
    if processes > size:
        raise ValueError(
            f"{processes} processes cannot share a batch of {size}: start fewer, or set a larger --batch-size"
        )
    if processes > 1:
        each, rest = divmod(size, processes)
        parts = f"{each} or {each + 1}" if rest else f"{each}"
        rate = f"learning rate {config.lr:g} as given (not scaled)"
        log.info("%d processes, global batch %d = %s each, %s", processes, size, parts, rate)


def fit(
    state: State,
    training: Dataset,
    validation: Dataset | None,
    run: Run,
    board: Board,
    stopped: Callable[[], bool],
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    weights: Tensor | None = None,
) -> None:
    """Run the remaining epochs. ``on_epoch`` gets each one's metrics, and replaces the progress bar; ``weights`` (J,)
    are those of the classes, by default what the configuration says."""
    config, state.examples = state.config, len(training)
    done, hidden = state.epoch * len(training) + state.seen, None if distributed.is_main() and not on_epoch else True
    unit = " texts" if training.vocabulary else " images"
    with tqdm(total=config.epochs * len(training), initial=done, unit=unit, disable=hidden, dynamic_ncols=True) as bar:
        if weights is None and config.class_weights:
            weights = class_weights(training)
        while not state.finished:
            bar.set_description(f"epoch {state.epoch + 1}/{config.epochs}", refresh=False)
            since = run_epoch(state, training, weights, run, board, stopped, bar)
            state.spend(since)
            line = end_epoch(state, validation, run, board)
            if on_epoch is not None:
                on_epoch(line)


def run_epoch(
    state: State,
    training: Dataset,
    weights: Tensor | None,
    run: Run,
    board: Board,
    stopped: Callable[[], bool],
    bar: tqdm,
) -> float:
    """The remaining steps of an epoch, each batch made during the step before it. Returns when the clock was read."""
    config, since, per_epoch = state.config, time.perf_counter(), data.num_batches(training, state.config.batch_size)
    order: dict[str, Any] = {"seed": config.seed, "epoch": state.epoch, "shuffle": True, "start": state.batch}
    indices = data.batch_indices(len(training), config.batch_size, **order)
    with closing(made_ahead(partial(own_micro_batches, config, training, epoch=state.epoch), indices)) as batches:
        for index, parts in batches:
            train_step(state, parts, len(index), weights, run)
            bar.update(len(index))
            if state.step % RECORD_EVERY == 0:
                losses = read_losses(state, run)
                run.record({"kind": "step", "step": state.step, "epoch": state.epoch + 1} | losses)
                board.scalars("step", losses, state.step)
                bar.set_postfix(loss=f"{losses['loss']:.4f}", refresh=False)
            if state.step % config.checkpoint_every == 0 and state.batch < per_epoch:
                since = state.spend(since)
                read_losses(state, run)
                save_checkpoint(state, run.checkpoint)
            if distributed.any_rank(stopped(), state.device):
                state.spend(since)
                read_losses(state, run)
                save_checkpoint(state, run.checkpoint)
                raise Interrupted(run.folder)
    read_losses(state, run)
    return since


def train_step(state: State, parts: Sequence[MicroBatch], count: int, weights: Tensor | None, run: Run) -> None:
    """One batch of ``count`` examples: forward, loss, backward, one step of the optimiser. See ``read_losses``."""
    model, optimizer, scaler = state.model, state.optimizer, state.scaler
    rate = learning_rate(state.config, state.step, state.steps)
    for group in optimizer.param_groups:
        group["lr"] = rate
    model.train()
    optimizer.zero_grad(set_to_none=True)
    with routing_at(model, state.step / state.steps):
        losses = backward(state.config, state.objective, model, scaler, parts, weights, state.step)
    scaler.unscale_(optimizer)
    norm = gradient_norm(model, state.config.clip)
    values = torch.stack([*losses.values(), norm.to(losses["loss"])])
    state.unread.append(Step(state.step + 1, state.batch + 1, count, rate, tuple(losses), values))
    if values.device.type in IMMEDIATE or scaler.is_enabled():
        read_losses(state, run)
    scaler.step(optimizer)
    scaler.update()
    distributed.sync_buffers(model)
    if state.average is not None:
        update_average(state.average, model, state.config.ema, state.step)
    state.seen += count
    state.batch += 1
    state.step += 1


def read_losses(state: State, run: Run) -> dict[str, float]:
    """Check and add up the losses of the steps that were not read yet; returns those of the last step.

    Reading waits for a GPU, so there it is done every ``RECORD_EVERY`` steps and before whatever is written. On a CPU
    it is done before the weights change.
    """
    scaler, steps, state.unread = state.scaler, state.unread, []
    for step in steps:
        *losses, norm = step.values.tolist()
        named = dict(zip(step.names, losses, strict=True))
        too_large = scaler.is_enabled() and scaler.get_scale() > 1  # fp16: the step is skipped and the scale lowered
        if not math.isfinite(named["loss"]) or not (math.isfinite(norm) or too_large):
            raise Diverged(diverged(named, norm, step, state, run))
        for name, value in named.items():
            state.sums[name] = state.sums.get(name, 0.0) + value * step.count
        state.latest = named | {"lr": step.rate, "gradient_norm": norm}
    return state.latest


def end_epoch(state: State, validation: Dataset | None, run: Run, board: Board) -> dict[str, Any]:
    """Validate, keep the best weights, record and return the epoch's metrics, and save a checkpoint if it is due."""
    check_finite(state, run.checkpoint)
    config, before, seconds = state.config, state.step - state.batch, state.spent
    speed = state.seen / seconds if seconds else 0.0  # 0: resumed from an older checkpoint without times
    state.epoch += 1
    means = {f"train_{name}": value / state.seen for name, value in state.sums.items()}
    line: dict[str, Any] = {"kind": "epoch", "step": state.step, "epoch": state.epoch} | means
    if validation is not None:
        score = evaluate(state.tested, validation).accuracy.value
        line |= {"val_accuracy": score, "val_error": 1 - score}
        if config.keep == "best" and score >= state.best_score:  # of equals the later: few images give equal scores
            weights = {name: t.detach().cpu().clone() for name, t in state.tested.state_dict().items()}
            state.best_score, state.best_epoch, state.best_weights = score, state.epoch, weights
    line |= {"lr": learning_rate(config, state.step - 1, state.steps), "images_per_second": round(speed, 1)}
    line["seconds"] = round(seconds, 1)  # of training, without validation
    run.record(line)
    board.epoch(line, state, validation)
    state.sums, state.seen, state.spent, state.batch = {}, 0, 0.0, 0
    # an epoch may be a single step, too short for a checkpoint after each
    if run.writes and (
        state.epoch == config.epochs or state.step // config.checkpoint_every > before // config.checkpoint_every
    ):
        save_checkpoint(state, run.checkpoint)
    accuracy = f"  validation accuracy {line['val_accuracy']:.2%}" if validation is not None else ""
    if seconds < 0.5 and state.epoch % 10 and state.epoch != config.epochs:
        return line  # of hundreds of short epochs, log every tenth
    what = "texts" if state.model.takes_texts else "images"
    values = (state.epoch, config.epochs, line["train_loss"], accuracy, speed, what)
    log.info("epoch %d/%d  loss %.4f%s  %.0f %s/s", *values)
    return line


def diverged(losses: dict[str, float], norm: float, step: Step, state: State, run: Run) -> str:
    parts = ", ".join(f"{name} {value:g}" for name, value in losses.items())
    return (
        f"training diverged at step {step.number} (epoch {state.epoch + 1}, batch {step.batch}): {parts}, "
        f"gradient norm {norm:g}, learning rate {step.rate:g}; {last_checkpoint(run.checkpoint)}. "
        "Try a lower --lr or --clip 1"
    )


@contextmanager
def stop_politely() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a flag, so that the step is finished and saved.

    A second Ctrl-C ends the process; a second SIGTERM does not, because a scheduler and torchrun may send one each.
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
