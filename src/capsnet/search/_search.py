"""The search itself: check what was asked, let one or several workers try things out, and say what came out."""

import contextlib
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from capsnet import recipes
from capsnet._names import check_name
from capsnet.search._report import BEST, config_of, is_default, table, winner_of, write_best, write_report
from capsnet.search._storage import default_storage, masked, need_optuna, open_study
from capsnet.search._verdict import Verdict, compare
from capsnet.search._worker import Orders, default_study, ordered, work
from capsnet.search.spaces import list_spaces, own_params
from capsnet.training import Interrupted, TrainConfig
from capsnet.training.config import check_config
from capsnet.training.prepare import build, recorded
from capsnet.training.trial import load_to_choose

if TYPE_CHECKING:
    import optuna

log = logging.getLogger("capsnet.search")
POLL = 0.5  # seconds between two looks at what the workers do


class Found(NamedTuple):
    """What came out of a search."""

    folder: Path
    best: TrainConfig
    score: float  # validation accuracy of the best trial: too good by as much as it was lucky
    trial: int
    finished: int  # trials in the study that count
    wanted: int
    own: bool  # whether the recipe's own values were the best
    verdict: Verdict | None  # None: not asked for, or nothing to compare
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
) -> Found:
    """Search a named space around a recipe by the validation split; the same call again goes on with the same study.

    Args:
        recipe: a recipe's name or a whole configuration.
        space: what to change, see ``list_spaces``.
        trials: how many finished (complete or pruned) trials the whole study shall have.
        storage: ``sqlite:///PATH``, ``journal:PATH`` or a PostgreSQL address; default: ``OUT/study.db``.
        study: its name there; default RECIPE-SPACE.
        timeout: seconds after which no trial is begun.
        workers: processes on this machine.
        seeds: how often the winner and the recipe are trained again to compare them; 0 does not.
        epochs, limit: of each trial, if not the recipe's own.
        out: folder of everything; default ``runs/RECIPE/search-SPACE``.
    """
    _check_numbers(trials, workers, seeds, timeout)
    check_name("space", space, list_spaces())
    need_optuna()
    given = recipes.get(recipe) if isinstance(recipe, str) else recipe
    config = _prepared(given, space, epochs, limit)
    folder = Path(out) if out is not None else Path("runs") / config.recipe / f"search-{space}"
    if storage is None:
        folder.mkdir(parents=True, exist_ok=True)
    orders = Orders(
        config=config,
        space=space,
        trials=trials,
        out=folder,
        storage=storage or default_storage(folder),
        study=study or default_study(config, space),
        device=device,
        until=None if timeout is None else time.time() + timeout,
    )
    with _storage_trouble(orders), logging_redirect_tqdm():
        opened = open_study(orders.storage, orders.study, config, space)
        folder.mkdir(parents=True, exist_ok=True)
        _try_many(orders, opened, workers)
        with _one_at_a_time(folder / ".report.lock"):
            return _conclude(orders, opened, seeds, given.tensorboard)


def _check_numbers(trials: int, workers: int, seeds: int, timeout: float | None) -> None:
    for name, value, least in (("trials", trials, 1), ("workers", workers, 1), ("seeds", seeds, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout}")


def _prepared(config: TrainConfig, space: str, epochs: int | None, limit: int | None) -> TrainConfig:
    """What all trials start from. Whatever is wrong with the recipe itself is found here, before anything is begun."""
    changes = {key: value for key, value in (("epochs", epochs), ("limit", limit)) if value is not None}
    config = dataclasses.replace(recorded(config), tensorboard=False, **changes)
    config = check_config(dataclasses.asdict(config))
    own_params(space, config)
    build(config, load_to_choose(config)[0])
    return config


@contextmanager
def _storage_trouble(orders: Orders) -> Iterator[None]:
    """A storage that goes away is one sentence; what was finished is in it, and the same command goes on."""
    from sqlalchemy.exc import SQLAlchemyError

    optuna = need_optuna()
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = str(getattr(error, "orig", None) or error.__cause__ or error).strip().partition("\n")[0]
        raise ValueError(f"the storage {masked(orders.storage)} failed: {reason}; the same command goes on") from error


def _try_many(orders: Orders, study: "optuna.Study", workers: int) -> None:
    """Trials until there are enough, with a bar that counts those of all workers everywhere."""
    progress = _Progress(orders, study)
    with contextlib.closing(progress):
        if progress.bar.n >= orders.trials:
            log.info("the study %s has %d finished trials already", orders.study, int(progress.bar.n))
        elif workers == 1:
            work(orders, study, progress.update)
        else:
            _employ(orders, workers, progress)
        progress.update()


class _Progress:
    """The bar, and one line for each trial that has ended since the last look."""

    def __init__(self, orders: Orders, study: "optuna.Study") -> None:
        self.study = study
        self.told = {trial.number for trial in self._finished()}
        self.bar = tqdm(
            total=orders.trials, initial=len(self.told), unit=" trials", disable=None, dynamic_ncols=True, desc="search"
        )

    def _finished(self) -> list:
        trials = self.study.get_trials(deepcopy=False)
        return [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]

    def update(self) -> None:
        finished = self._finished()
        best = next(iter(ordered(finished)), None)
        for trial in finished:
            if trial.number in self.told:
                continue
            self.told.add(trial.number)
            value = "no result" if trial.value is None else f"{trial.value:.2%}"
            how = f", pruned after epoch {trial.last_step or 0}" if trial.state.name == "PRUNED" else ""
            lead = "" if best is None else f"  best {best.value:.2%} (trial {best.number})"
            log.info("trial %d: %s%s%s", trial.number, value, how, lead)
            self.bar.update()
        if best is not None:
            self.bar.set_postfix(best=f"{best.value:.2%}", refresh=False)

    def close(self) -> None:
        self.bar.close()


def _employ(orders: Orders, workers: int, progress: _Progress) -> None:
    """Let several processes work, each with its share of the cores. A killed one is missed, not mourned: its trial
    is noticed and done by the others."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    orders = dataclasses.replace(orders, threads=threads, parent=os.getpid())
    crew = [_start(orders) for _ in range(workers)]
    try:
        while any(process.poll() is None for process, _ in crew):
            time.sleep(POLL)
            progress.update()
            for process, said in crew:
                if process.poll() == 2 or (process.poll() or 0) == 1:
                    said.seek(0)
                    words = said.read().decode(errors="replace").strip()
                    raise ValueError(words.splitlines()[-1] if words else "a worker failed without a word")
        progress.update()
        if len(progress.told) >= orders.trials:
            return  # whoever was stopped on the way: nothing is missing
        if any(process.poll() == 130 for process, _ in crew):
            raise Interrupted(orders.out)
        if orders.until is None or time.time() < orders.until:
            raise ValueError("all workers were killed; the same command goes on with what is left")
    finally:
        for process, _ in crew:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process, said in crew:
            process.wait()
            said.close()


def _start(orders: Orders) -> tuple[subprocess.Popen, IO[bytes]]:
    """A worker in a session of its own: Ctrl-C reaches this process, which stops the others after their step."""
    said = tempfile.TemporaryFile()  # noqa: SIM115  closed when the worker has ended
    process = subprocess.Popen(
        [sys.executable, "-m", "capsnet.search"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=said,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(orders.to_json().encode())
    process.stdin.close()
    return process, said


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Of several processes that finish a study in one folder, one trains the comparison and the others use it."""
    with open(path, "w") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _conclude(orders: Orders, study: "optuna.Study", seeds: int, tensorboard: bool) -> Found:
    """Name the winner, compare it with the recipe, draw and write everything down."""
    winner = winner_of(orders, study)
    write_best(orders, winner, tensorboard)  # first of all: it is there even if the comparison is stopped
    best, verdict = config_of(orders, winner), None
    own = is_default(winner)
    if seeds and not own:
        log.info("training the winner (trial %d) and the recipe's own values with %d seeds", winner.number, seeds)
        with tqdm(total=2 * seeds, unit=" runs", disable=None, dynamic_ncols=True, desc="compare") as bar:
            verdict = compare(orders.config, best, seeds, orders.out, device=orders.device, on_trained=bar.update)
    write_report(orders, study, verdict, tensorboard)
    trials = study.get_trials(deepcopy=False)
    assert winner.value is not None
    return Found(
        folder=orders.out,
        best=dataclasses.replace(best, tensorboard=tensorboard),
        score=winner.value,
        trial=winner.number,
        finished=len([t for t in trials if t.state.name in ("COMPLETE", "PRUNED")]),
        wanted=orders.trials,
        own=own,
        verdict=verdict,
        table=table(trials),
    )


__all__ = ["BEST", "Found", "search"]
