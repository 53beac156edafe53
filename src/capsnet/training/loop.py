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
from capsnet.inference import Evaluation, check_kind, evaluate, pick_device
from capsnet.models import Model, create_model, model_options
from capsnet.training import board, run
from capsnet.training.balance import class_weights, example_weights
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
from capsnet.training.optim import learning_rate
from capsnet.training.report import report
from capsnet.weights import transfer

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
    figures: bool = True,
) -> Result:
    """Train a model, test it once, and leave a folder that tells the story.

    Args:
        config: what to do; ``capsnet.recipes`` has complete ones.
        out: folder of the run; default ``runs/RECIPE/TIME-SEED``.
        resume: "no", "auto" (the newest unfinished run with an equal config) or a run folder.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves PyTorch's choice.
        figures: whether to draw at the end.
    """
    if threads is not None:
        most = 8 * (os.cpu_count() or 1)
        if not 1 <= threads <= most:
            raise ValueError(f"threads must lie between 1 and {most} on this machine, got {threads}")
        torch.set_num_threads(threads)
    config = check_config(dataclasses.asdict(dataclasses.replace(config, data=data.canonical(config.data))))
    where = pick_device(device)
    training, validation, test = load_splits(config)
    model = build(config, training).to(where)
    here = run.open_run(config, out, resume)
    with here.lock(), logging_redirect_tqdm():
        state = new_state(config, model)
        if here.checkpoint.is_file():
            load_checkpoint(state, here.checkpoint)
            log.info("resuming %s at step %d", here.folder, state.step)
        here.forget_after(state.step)
        here.write(run.ENV, run.environment(where))
        writer = board.open_board(here.folder, state, config, training)
        with stop_politely() as stopped:
            fit(config, state, training, validation, here, writer, stopped)
        writer.close()
        if state.best_weights is not None:
            state.tested.load_state_dict(state.best_weights)
        tested = report(config, state, here, test, figures)
        here.checkpoint.unlink(missing_ok=True)
    return Result(state.tested.eval(), here.folder, tested)


def load_splits(config: TrainConfig) -> tuple[Dataset, Dataset | None, Dataset]:
    """What to learn from, what to choose by (nothing, if all of it is learnt from), and what to test on at the end.

    All are opened before anything runs, so that a broken file is found now and not after the last epoch.
    """
    training, test = data.load(config.data, config.train_on), data.load(config.data, "test")
    if training.image_size != test.image_size or training.channels != test.channels:
        raise ValueError(f"{config.data}: training images {training} and test images {test} differ in size")
    validation = data.load(config.data, "validation") if config.train_on == "train" else None
    return (
        first(training, config.limit),
        None if validation is None else first(validation, config.eval_limit),
        first(test, config.eval_limit),
    )


def first(dataset: Dataset, limit: int | None) -> Dataset:
    """The first examples of a data set, all of them without a limit."""
    return dataset if limit is None or limit >= len(dataset) else dataset.subset(range(limit), name=dataset.name)


def build(config: TrainConfig, dataset: Dataset) -> Model:
    """The model of a config, sized for a data set; its initial weights depend on the seed and on nothing else."""
    options = model_options(config.model)
    check_kind(config.model, "vocabulary" in options, dataset)
    sizes: dict[str, Any] = {
        "image_size": dataset.image_size,
        "in_channels": dataset.channels,
        "num_classes": dataset.num_classes,
    }
    if dataset.vocabulary:
        sizes["vocabulary"] = len(dataset.vocabulary)
    if "multi_label" in options and dataset.batch([0]).targets.ndim == 2:
        sizes["multi_label"] = True  # several classes at once: each is judged by itself
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = create_model(config.model, **(sizes | config.create_options()))
    model.class_names = dataset.class_names
    model.preprocessing = {} if dataset.preprocess is None else dataset.preprocess.model_dump()
    if config.init is not None:
        anew = transfer(model, config.init)
        log.info("starting from %s%s", config.init, f"; these start anew: {', '.join(anew)}" if anew else "")
    return model


def fit(
    config: TrainConfig,
    state: State,
    training: Dataset,
    validation: Dataset | None,
    here: run.Run,
    writer: board.Board,
    stopped: Callable[[], bool],
) -> None:
    """All epochs that are left, from wherever the state stands."""
    per_epoch = data.num_batches(training, config.batch_size)
    total = per_epoch * config.epochs
    done = state.epoch * len(training) + state.seen
    with tqdm(
        total=config.epochs * len(training), initial=done, unit=" images", disable=None, dynamic_ncols=True
    ) as bar:
        weights = class_weights(training) if config.class_weights else None
        while state.epoch < config.epochs and not good_enough(config, state):
            bar.set_description(f"epoch {state.epoch + 1}/{config.epochs}", refresh=False)
            started, seen_before = time.perf_counter(), state.seen
            order = data.batches(
                training,
                config.batch_size,
                seed=config.seed,
                epoch=state.epoch,
                shuffle=True,
                augment=config.augment,
                start=state.batch,
            )
            for batch in order:
                losses = train_step(config, state, batch, weights, total, here)
                bar.update(len(batch.images))
                if state.step % RECORD_EVERY == 0:
                    here.record({"kind": "step", "step": state.step, "epoch": state.epoch + 1} | losses)
                    writer.scalars("step", losses, state.step)
                    bar.set_postfix(loss=f"{losses['loss']:.4f}", refresh=False)
                if state.step % config.checkpoint_every == 0 and state.batch < per_epoch:
                    save_checkpoint(state, here.checkpoint)
                if stopped():
                    save_checkpoint(state, here.checkpoint)
                    raise Interrupted(here.folder)
            speed = (state.seen - seen_before) / (time.perf_counter() - started)
            end_epoch(config, state, validation, here, writer, speed, total)


def good_enough(config: TrainConfig, state: State) -> bool:
    return config.stop_at is not None and state.best_score >= config.stop_at


def train_step(
    config: TrainConfig, state: State, batch: Batch, weights: Tensor | None, total: int, here: run.Run
) -> dict[str, float]:
    """One batch: forward, loss, backward, one step of the optimiser. Returns the losses.

    Where a picture is made of several objects, each one's own capsule has to draw it apart from the others.
    """
    model, optimizer = state.model, state.optimizer
    device = next(model.parameters()).device
    images, targets = batch.images.to(device), batch.targets.to(device)
    labels, wanted = targets, images
    if batch.sources is not None:
        labels = torch.nn.functional.one_hot(batch.sources.classes, model.num_classes).to(device)  # (B, K, J)
        wanted = batch.sources.images.to(device)  # (B, K, C, H, W)
    counts = None if weights is None else example_weights(weights.to(device), targets)
    rate = learning_rate(config, state.step, total)
    for group in optimizer.param_groups:
        group["lr"] = rate
    with keyed_dropout(config.seed, state.step, device):
        model.train()
        output = model(images, labels=labels)
    loss = model.loss(output, targets, wanted, counts)
    optimizer.zero_grad(set_to_none=True)
    loss.total.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip or math.inf))
    losses = {"loss": loss.total.item()} | {name: part.item() for name, part in loss.parts.items()}
    if not (math.isfinite(losses["loss"]) and math.isfinite(norm)):
        raise Diverged(diverged(losses, norm, rate, state, here))
    optimizer.step()
    if state.average is not None:
        state.average.update_parameters(model)
    for name, value in losses.items():
        state.sums[name] = state.sums.get(name, 0.0) + value * len(images)
    state.seen += len(images)
    state.batch += 1
    state.step += 1
    return losses | {"lr": rate, "gradient_norm": norm}


def end_epoch(
    config: TrainConfig,
    state: State,
    validation: Dataset | None,
    here: run.Run,
    writer: board.Board,
    speed: float,
    total: int,
) -> None:
    """Validate, remember the best, write the epoch's line and (unless epochs are tiny) a checkpoint."""
    check_finite(state, here.checkpoint)
    before, seconds = state.step - state.batch, state.seen / speed if speed else 0.0  # 0: resumed at an epoch's end
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
    here.record(line)
    writer.epoch(line, state, validation)
    state.sums, state.seen, state.batch = {}, 0, 0
    # ten images make an epoch of one step: then every checkpoint_every steps are enough, as within long epochs
    if state.epoch == config.epochs or state.step // config.checkpoint_every > before // config.checkpoint_every:
        save_checkpoint(state, here.checkpoint)
    accuracy = f"  validation accuracy {line['val_accuracy']:.2%}" if validation is not None else ""
    if seconds < 0.5 and state.epoch % 10 and state.epoch != config.epochs:
        return  # hundreds of epochs over a few images: every tenth is news enough
    log.info("epoch %d/%d  loss %.4f%s  %.0f images/s", state.epoch, config.epochs, line["train_loss"], accuracy, speed)


def diverged(losses: dict[str, float], norm: float, rate: float, state: State, here: run.Run) -> str:
    parts = ", ".join(f"{name} {value:g}" for name, value in losses.items())
    return (
        f"training diverged at step {state.step + 1} (epoch {state.epoch + 1}, batch {state.batch + 1}): {parts}, "
        f"gradient norm {norm:g}, learning rate {rate:g}; {kept_checkpoint(here.checkpoint)}. "
        "Try a lower --lr or --clip 1"
    )


@contextmanager
def keyed_dropout(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Give whatever is random inside the model a generator that depends on (seed, step) alone, and restore it after."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed((seed * 1_000_003 + step) % 2**63)
        yield


@contextmanager
def stop_politely() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a flag, so that the step is finished and saved; a second one kills."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag.is_set
        return

    def on_signal(number: int, frame: object) -> None:
        flag.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
