"""One worker: takes trials and trains them until enough are finished. ``python -m capsnet.search`` is one too.

A worker gets its orders as JSON on standard input, so that a storage's password is in nobody's list of processes.
"""

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import sys
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from capsnet.search._claims import Claims, heartbeat
from capsnet.search._storage import need_optuna, open_study
from capsnet.search.spaces import SPACES, Own, change, own_params
from capsnet.training import Diverged, Interrupted, TrainConfig
from capsnet.training.config import check_config
from capsnet.training.run import Run
from capsnet.training.trial import try_out

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

WAIT = 0.5  # seconds between two looks at what the others do
TRIALS, OF = "trials", ".study"


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a worker has to know."""

    config: TrainConfig
    space: str
    trials: int
    out: Path
    storage: str
    study: str
    device: str = "auto"
    until: float | None = None  # seconds since the epoch: no trial begins later
    threads: int | None = None
    parent: int | None = None  # the process that started this one: without it nobody would stop us

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self) | {"out": str(self.out)})

    @staticmethod
    def from_json(text: str) -> "Orders":
        values = json.loads(text)
        return Orders(**values | {"config": check_config(values["config"]), "out": Path(values["out"])})


def default_study(config: TrainConfig, space: str) -> str:
    """What a study is called if nobody says."""
    return f"{config.recipe}-{space}"


def folder_of(orders: Orders, number: int) -> Path:
    """Where a trial's run is: OUT/trials/0007, or OUT/trials-STUDY/0007 for a study with a name of its own.

    So it is too for one that shares OUT with a study that was there before: whose OUT/trials is, is written in it.
    """
    own = orders.out / f"{TRIALS}-{urllib.parse.quote(orders.study, safe=' ')}"
    if orders.study != default_study(orders.config, orders.space):
        return own / f"{number:04d}"
    mark = orders.out / TRIALS / OF
    mark.parent.mkdir(parents=True, exist_ok=True)
    if not mark.exists():
        draft = mark.with_name(f"{OF}-{uuid.uuid4().hex}")
        draft.write_text(orders.study)
        try:
            os.link(draft, mark)  # whole or not at all, and never over what another process has written
            draft.unlink()
        except FileExistsError:
            draft.unlink()
        except OSError:  # a disk without links
            draft.replace(mark)
    return (mark.parent if mark.read_text() == orders.study else own) / f"{number:04d}"


def emptied(folder: Path) -> Path:
    """A trial's folder, which a storage that is no more may have left something in: numbers in a storage never come
    again, so whatever is there belongs to no trial of this study."""
    if folder.exists():
        with Run(folder).lock():  # unless it is at work just now
            shutil.rmtree(folder)
    return folder


def work(orders: Orders, study: "optuna.Study", on_change: Callable[[], None] = lambda: None) -> None:
    """Do trials until there are as many as wanted or the time is over; ``on_change`` is called whenever one may be."""
    claims = Claims(study, orders.trials, own_params(orders.space, orders.config))
    while len(claims.finished()) < orders.trials and (orders.until is None or time.time() < orders.until):
        stop_if_orphaned(orders)
        trial = claims.take()
        if trial is None:
            time.sleep(WAIT)
        else:
            do_trial(orders, claims, trial)
        on_change()


def do_trial(orders: Orders, claims: Claims, trial: "optuna.Trial") -> None:
    """Train with a trial's values. However that ends, the storage is told; a kill is noticed by the other workers."""
    optuna, state = need_optuna(), claims.state
    started = time.perf_counter()

    def report(line: dict[str, Any]) -> None:
        stop_if_orphaned(orders)
        trial.report(line["val_accuracy"], line["epoch"])
        if line["epoch"] < orders.config.epochs and trial.should_prune():
            raise optuna.TrialPruned

    try:
        config = suggest(orders, claims.study, trial)
        with heartbeat(trial), hushed():
            folder = emptied(folder_of(orders, trial.number))
            tried = try_out(config, folder, device=orders.device, on_epoch=report)
        trial.set_user_attr("epoch", tried.epoch)
        trial.set_user_attr("seconds", round(time.perf_counter() - started, 2))
        claims.end(trial, state.COMPLETE, tried.score)
    except optuna.TrialPruned:
        claims.end(trial, state.PRUNED)
    except (Diverged, torch.OutOfMemoryError) as failure:  # an answer too: not with these values
        claims.end(trial, state.PRUNED, reason=str(failure).partition("\n")[0])
    except (Interrupted, KeyboardInterrupt):
        claims.end(trial, state.FAIL)  # no reason: to be tried once more
        raise
    except optuna.exceptions.UpdateFinishedTrialError:
        pass  # taken for dead and given to somebody else
    except Exception as failure:
        claims.end(trial, state.FAIL, reason=str(failure) or type(failure).__name__)
        raise


def suggest(orders: Orders, study: "optuna.Study", trial: "optuna.Trial") -> TrainConfig:
    """The configuration of a trial.

    The sampler's seed is keyed by how many trials before this one count, and what was cut short does not: a study of
    one worker gives the same trials whether it was interrupted or not. While others are at work that number may stand
    still, so then the seed is keyed by the trial's own number, and two workers never draw the same.
    """
    others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
    place = str(sum(t.state.name != "FAIL" for t in others if t.number < trial.number))
    if not all(t.state.is_finished() for t in others):
        place = f"number {trial.number}"
    key = f"{orders.config.seed} {orders.space} {place}".encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:4], "big")
    study.sampler = need_optuna().samplers.TPESampler(seed=seed, multivariate=False, constant_liar=True)
    SPACES[orders.space](trial, Own(orders.config))
    return change(orders.config, trial.params)


@contextmanager
def hushed() -> Iterator[None]:
    """Keep the lines that each epoch would write for the trial's own folder: here a trial is one line."""
    everybody, ours = logging.getLogger("capsnet"), logging.getLogger("capsnet.search")
    before = everybody.level, ours.level
    ours.setLevel(everybody.getEffectiveLevel())
    everybody.setLevel(logging.WARNING)
    try:
        yield
    finally:
        everybody.setLevel(before[0])
        ours.setLevel(before[1])


def stop_if_orphaned(orders: Orders) -> None:
    if orders.parent is not None and os.getppid() != orders.parent:
        raise Interrupted(orders.out)


def ordered(trials: "list[FrozenTrial]") -> "list[FrozenTrial]":
    """Finished trials, best first. What was pruned comes after what was not: it was judged by fewer epochs."""
    complete = need_optuna().trial.TrialState.COMPLETE
    known = [t for t in trials if t.value is not None]
    return sorted(known, key=lambda t: (t.state != complete, -(t.value or 0.0), t.number))


def main() -> int:
    """A worker process: exit code 0 when all is done, 130 when stopped, 2 with one sentence when something is wrong."""
    orders = Orders.from_json(sys.stdin.read())
    if orders.threads is not None:
        torch.set_num_threads(orders.threads)
    try:
        study = open_study(orders.storage, orders.study, orders.config, orders.space)
        work(orders, study)
    except (Interrupted, KeyboardInterrupt):
        return 130
    except Exception as error:
        if os.environ.get("CAPSNET_DEBUG"):
            raise
        sys.stderr.write(" ".join(str(error).split()) or type(error).__name__)
        return 2
    return 0
