"""The search: check the input, run the trials in one or several processes, compare the winner, write the report."""

import contextlib
import dataclasses
import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from capsnet import recipes
from capsnet._files import write_atomically
from capsnet._names import check_name
from capsnet.search._report import BEST, best_trial, table, write_report
from capsnet.search._storage import default_storage, need_optuna, open_study, storage_errors
from capsnet.search._verdict import Verdict, compare
from capsnet.search._worker import Job, finished_trials, is_default, ranked, work
from capsnet.search.spaces import change, default_params, list_spaces
from capsnet.training import TrainConfig
from capsnet.training.prepare import build, recorded
from capsnet.training.trial import load_to_choose

if TYPE_CHECKING:
    import optuna

log = logging.getLogger("capsnet.search")


class SearchResult(NamedTuple):
    """What came out of a search."""

    folder: Path
    best: TrainConfig
    score: float  # validation accuracy of the best trial; optimistic, because the trial was chosen by it
    trial: int
    finished: int  # complete and pruned trials of the study
    wanted: int
    own: bool  # whether the recipe's own values were the best
    verdict: Verdict | None  # None: not requested, or nothing to compare
    table: list[list[str]]


def search(
    recipe: str | TrainConfig,
    space: str,
    trials: int,
    *,
    storage: str | None = None,
    study: str | None = None,
    timeout: float | None = None,
    workers: int = 1,
    seeds: int = 3,
    epochs: int | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
) -> SearchResult:
    """Search a space around a recipe, judged by the validation split. The same call again continues the same study.

    Args:
        recipe: a recipe's name or a whole configuration.
        space: what to change, see ``list_spaces``.
        trials: how many finished (complete or pruned) trials the whole study shall have.
        storage: ``sqlite:///PATH``, ``journal:PATH`` or a PostgreSQL address; default: ``OUT/study.db``.
        study: the study's name in the storage; default RECIPE-SPACE.
        timeout: seconds after which no trial starts.
        workers: processes on this machine.
        seeds: how often the winner and the recipe are trained again to compare them; 0: not at all.
        epochs, limit: of each trial, if not the recipe's own.
        out: folder of all files; default ``runs/RECIPE/search-SPACE``.
    """
    for name, value, least in (("trials", trials, 1), ("workers", workers, 1), ("seeds", seeds, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout}")
    check_name("space", space, list_spaces())
    need_optuna()
    original = recipes.get(recipe) if isinstance(recipe, str) else recipe
    config = _checked(original, space, epochs, limit)
    folder = Path(out) if out is not None else Path("runs") / config.recipe / f"search-{space}"
    if storage is None:
        folder.mkdir(parents=True, exist_ok=True)
    job = Job(
        config=config,
        space=space,
        trials=trials,
        out=folder,
        storage=storage or default_storage(folder),
        study=study or f"{config.recipe}-{space}",
        device=device,
        deadline=None if timeout is None else time.time() + timeout,
    )
    with storage_errors(job.storage), logging_redirect_tqdm():
        opened = open_study(job.storage, job.study, config, space)
        folder.mkdir(parents=True, exist_ok=True)
        _run_trials(job, opened, workers)
        with _locked(folder / ".report.lock"):
            return _conclude(job, opened, seeds, original.tensorboard)


def _checked(config: TrainConfig, space: str, epochs: int | None, limit: int | None) -> TrainConfig:
    """The configuration that all trials start from. Errors of the recipe itself show before anything is started."""
    changes = {key: value for key, value in (("epochs", epochs), ("limit", limit)) if value is not None}
    config = dataclasses.replace(recorded(config), tensorboard=False, **changes)
    default_params(space, config)
    build(config, load_to_choose(config)[0])
    return config


def _run_trials(job: Job, study: "optuna.Study", workers: int) -> None:
    """Run trials in this process and ``workers - 1`` others, with a progress bar and a log line for each trial."""
    seen = {trial.number for trial in finished_trials(study)}
    if len(seen) >= job.trials:
        return log.info("the study %s already has %d finished trials", job.study, len(seen))

    def report() -> None:
        finished = finished_trials(study)
        best = next(iter(ranked(finished)), None)
        for trial in finished:
            if trial.number in seen:
                continue
            seen.add(trial.number)
            value = "no result" if trial.value is None else f"{trial.value:.2%}"
            pruned = f", pruned after epoch {trial.last_step or 0}" if trial.state.name == "PRUNED" else ""
            leader = "" if best is None else f"  best {best.value:.2%} (trial {best.number})"
            log.info("trial %d: %s%s%s", trial.number, value, pruned, leader)
            bar.update()
        if best is not None:
            bar.set_postfix(best=f"{best.value:.2%}", refresh=False)

    with tqdm(
        total=job.trials, initial=len(seen), unit=" trials", disable=None, dynamic_ncols=True, desc="search"
    ) as bar:
        with _worker_processes(job, workers - 1):
            work(job, study, report)
        report()
    return None


@contextmanager
def _worker_processes(job: Job, count: int) -> Iterator[None]:
    """Run ``count`` worker processes beside this one, each with its part of the cores. If one dies, the others go on.

    They end with their last trial, or when this process is interrupted. They have sessions of their own, so Ctrl-C
    reaches this process only.
    """
    threads = torch.get_num_threads()
    job = dataclasses.replace(job, threads=max(1, (os.cpu_count() or 1) // (count + 1)), parent=os.getpid())
    processes = []
    try:
        for _ in range(count):
            command = [sys.executable, "-m", "capsnet.search"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            processes.append(process)
            assert process.stdin is not None
            with process.stdin as pipe:
                pickle.dump(job, pipe)
        if count:
            torch.set_num_threads(job.threads or threads)
        yield
        for process in processes:
            process.wait()
    finally:
        torch.set_num_threads(threads)
        while running := [process for process in processes if process.poll() is None]:
            for process in running:
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].wait(10)  # a signal may be lost between two trials: repeat it


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Of several processes that finish a study in one folder, one trains the comparison and the others reuse it."""
    with open(path, "w", encoding="utf-8") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _conclude(job: Job, study: "optuna.Study", seeds: int, tensorboard: bool) -> SearchResult:
    """Name the winner, compare it with the recipe, draw and write everything."""
    winner = best_trial(job, study)
    config = change(job.config, winner.params)
    best, verdict = dataclasses.replace(config, tensorboard=tensorboard), None
    write_atomically(job.out / BEST, best.to_json())  # before the comparison, which may be interrupted
    if seeds and not is_default(winner):
        log.info("training the winner (trial %d) and the recipe's own values with %d seeds", winner.number, seeds)
        with tqdm(total=2 * seeds, unit=" runs", disable=None, dynamic_ncols=True, desc="compare") as bar:
            verdict = compare(job.config, config, seeds, job.out, device=job.device, on_trained=bar.update)
    write_report(job, study, winner, verdict)
    finished = finished_trials(study)
    assert winner.value is not None
    return SearchResult(
        folder=job.out,
        best=best,
        score=winner.value,
        trial=winner.number,
        finished=len(finished),
        wanted=job.trials,
        own=is_default(winner),
        verdict=verdict,
        table=table(finished),
    )
