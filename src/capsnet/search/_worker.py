"""One worker: runs trials of a study until enough are finished. ``python -m capsnet.search`` is one in a process.

Optuna queues, counts and stores the trials. This module makes the values of a trial depend on the recipe's seed and
the finished trials only, so a study that was interrupted continues with the trials it would have had.
"""

import hashlib
import logging
import os
import pickle
import shutil
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from capsnet._limits import is_out_of_memory
from capsnet._plugins import load_plugins
from capsnet.search._storage import need_optuna, open_study, retry_once, storage_errors
from capsnet.search.spaces import SPACES, change, current_values, default_params
from capsnet.training import Diverged, Interrupted, TrainConfig
from capsnet.training.loop import stop_politely
from capsnet.training.run import Run
from capsnet.training.trial import try_out

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker has to know."""

    config: TrainConfig
    space: str
    trials: int
    out: Path
    storage: str
    study: str
    device: str = "auto"
    deadline: float | None = None  # seconds since the epoch after which no trial starts
    threads: int | None = None
    parent: int | None = None  # the process that started this one; if it is gone, the worker stops

    def trial_folder(self, number: int) -> Path:
        """Where a trial's run is: OUT/trials-STUDY/0007. So two studies may have one folder."""
        return self.out / f"trials-{urllib.parse.quote(self.study, safe=' ')}" / f"{number:04d}"


def work(job: Job, study: "optuna.Study", on_trial: Callable[[], None] = lambda: None) -> None:
    """Run trials until ``job.trials`` are finished or the time is over; ``on_trial`` is called after each.

    Ctrl-C and SIGTERM set a flag that is checked between epochs and trials, because an exception inside Optuna could
    leave its heartbeat thread running.
    """
    enough = need_optuna().study.MaxTrialsCallback(job.trials, states=_finished_states())
    with stop_politely() as stopped:

        def check_stop() -> None:
            if stopped() or (job.parent is not None and os.getppid() != job.parent):
                raise Interrupted(job.out)

        def after_trial(*_: Any) -> None:
            on_trial()
            check_stop()

        while len(finished_trials(study)) < job.trials:
            seconds = None if job.deadline is None else job.deadline - time.time()
            if seconds is not None and seconds <= 0:
                return
            try:
                study.optimize(
                    lambda trial: run_trial(job, study, trial, check_stop),
                    timeout=seconds,
                    callbacks=[enough, after_trial],
                )
            except ValueError as error:  # suspended for so long that another worker repeats the trial: go on
                if not str(error).startswith("Cannot tell a FAIL trial"):
                    raise
            check_stop()


def run_trial(job: Job, study: "optuna.Study", trial: "optuna.Trial", check_stop: Callable[[], None]) -> float:
    """Train with a trial's values and return the validation accuracy."""
    optuna = need_optuna()
    start = time.perf_counter()

    def on_epoch(line: dict[str, Any]) -> None:
        check_stop()
        trial.report(line["val_accuracy"], line["epoch"])
        if line["epoch"] < job.config.epochs and trial.should_prune():
            raise optuna.TrialPruned

    try:
        trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
        config = suggest(job, study, trial)
        check_stop()
        with quiet_epochs():
            outcome = try_out(config, _emptied(job.trial_folder(trial.number)), device=job.device, on_epoch=on_epoch)
    except (Diverged, MemoryError, RuntimeError) as failure:  # a result, too: these values do not work
        if not isinstance(failure, Diverged) and not is_out_of_memory(failure):
            raise
        trial.set_user_attr("reason", str(failure).partition("\n")[0])
        raise optuna.TrialPruned from failure
    except (Interrupted, OSError):  # not the fault of the values
        retry_once()(study, study.get_trials()[trial.number])
        raise
    trial.set_user_attr("epoch", outcome.epoch)
    trial.set_user_attr("seconds", round(time.perf_counter() - start, 2))
    return outcome.score


def suggest(job: Job, study: "optuna.Study", trial: "optuna.Trial") -> TrainConfig:
    """The configuration of a trial: the recipe's own values first, then what Optuna's sampler chooses.

    The sampler's seed is keyed by the number of earlier trials that did not fail, so one worker draws the same values
    whether it was interrupted or not. While other trials run, it is keyed by the trial's own number, so two workers
    never draw the same values.
    """
    samplers = need_optuna().samplers
    others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
    place = str(sum(t.state.name != "FAIL" for t in others if t.number < trial.number))
    if not all(t.state.is_finished() for t in others):
        place = f"number {trial.number}"
    key = f"{job.config.seed} {job.space} {place}".encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:4], "big")
    study.sampler = samplers.TPESampler(seed=seed, multivariate=False, constant_liar=True)
    if is_default(study.get_trials(deepcopy=False)[trial.number]):
        study.sampler = samplers.PartialFixedSampler(default_params(job.space, job.config), study.sampler)
    SPACES[job.space](trial, current_values(job.config))
    return change(job.config, trial.params)


def is_default(trial: "FrozenTrial") -> bool:
    """Whether a trial has the recipe's own values: the first one, or its repetition."""
    return trial.number == 0 or retry_of(trial) == 0


def retry_of(trial: "FrozenTrial") -> int | None:
    """The number of the trial that was cut short and that this one repeats."""
    return need_optuna().storages.RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)


def _finished_states() -> tuple[Any, ...]:
    state = need_optuna().trial.TrialState
    return (state.COMPLETE, state.PRUNED)


def finished_trials(study: "optuna.Study") -> "list[FrozenTrial]":
    """The trials that count: those that ran to the end or were pruned."""
    return study.get_trials(deepcopy=False, states=_finished_states())


def ranked(trials: "list[FrozenTrial]") -> "list[FrozenTrial]":
    """Trials with a result, best first. Pruned ones come last: they were judged by fewer epochs."""
    known = [t for t in trials if t.value is not None]
    return sorted(known, key=lambda t: (t.state.name != "COMPLETE", -(t.value or 0.0), t.number))


def _emptied(folder: Path) -> Path:
    """A trial's folder without the files of a deleted study: a storage never gives a number twice."""
    if folder.exists():
        with Run(folder).lock():  # refuses a folder in which another process is training
            shutil.rmtree(folder)
    return folder


@contextmanager
def quiet_epochs() -> Iterator[None]:
    """Hide the log lines of single epochs, but not those of ``capsnet.search``: a trial is one line."""
    log, hide = logging.getLogger("capsnet"), lambda record: record.levelno >= logging.WARNING
    log.addFilter(hide)
    try:
        yield
    finally:
        log.removeFilter(hide)


def main() -> int:
    """A worker process. It reads its pickled ``Job`` from standard input: passwords stay out of the process list.

    Exit codes: 0 done, 130 stopped, 2 an error, which is one sentence on standard error.
    """
    job: Job = pickle.load(sys.stdin.buffer)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    try:
        load_plugins()
        with storage_errors(job.storage):
            work(job, open_study(job.storage, job.study, job.config, job.space))
    except Interrupted:
        return 130
    except Exception as error:
        if os.environ.get("CAPSNET_DEBUG"):
            raise
        sys.stderr.write(f"a worker of the search failed: {' '.join(str(error).split()) or type(error).__name__}\n")
        return 2
    return 0
