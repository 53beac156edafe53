"""Where a study is stored. Optuna is imported here only.

The default is a SQLite file for all processes of one machine. A journal file also works on network disks, where
SQLite's locks do not. PostgreSQL is for many machines.

Databases have Optuna's heartbeat: a running trial whose worker has given no sign of life for ``GRACE`` seconds is
failed by the next worker that starts a trial, and queued once more with the same values. Optuna has no heartbeat for
journal files: a killed worker's trial stays "running" there, does not count, and the others go on.
"""

import json
import random
import re
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsnet.training import TrainConfig
from capsnet.training.config import check_config

if TYPE_CHECKING:
    import optuna

HEARTBEAT, GRACE = 10, 60  # seconds between two signs of life; without one, until a worker counts as dead
LOCK_TIMEOUT = 60  # seconds that a process waits for another one's write to SQLite
CONNECT_TIMEOUT = 10  # seconds that a server has to answer
CREATE_TIMEOUT = 20  # seconds within which tables that another process is creating must be complete
TRANSIENT = ("already exists", "database is locked")  # errors of two processes that create or recover one storage
STUDY_ATTR = "capsnet"  # the study's attribute that holds its recipe and space
KINDS = "sqlite:///PATH, journal:PATH or postgresql://USER@HOST/DATABASE"


def need_optuna() -> Any:
    """The library, or one sentence that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise ValueError("searching needs Optuna: pip install 'capsnet[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # heartbeat, retry
    return optuna


def retry_once() -> Any:
    """Optuna's callback that queues a trial which was cut short with the same values, but not a second time."""
    return need_optuna().storages.RetryHeartbeatStaleTrialCallback(max_retry=1)


def default_storage(out: Path) -> str:
    return f"sqlite:///{(out / 'study.db').resolve()}"


def masked(storage: str) -> str:
    """A storage's address without its password, for messages and files."""
    return re.sub(r"(://[^:/]*):.*@", r"\1:***@", storage)


@contextmanager
def storage_errors(storage: str) -> Iterator[None]:
    """Turn an error of the storage into one sentence. Finished trials are in it, so the same command continues."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, need_optuna().exceptions.StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, SQLAlchemyError) else error
        raise failure(storage, "failed", cause, "; run the same command to continue") from error


def failure(storage: str, what: str, error: BaseException | str, advice: str = "") -> ValueError:
    """The one sentence about an error of a storage, without the password and without SQLAlchemy's further lines."""
    reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    return ValueError(f"the storage {masked(storage)} {what}: {reason}{advice}")


def open_storage(storage: str) -> "optuna.storages.BaseStorage":
    """Connect, or say in one sentence why that failed."""
    need_optuna()
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError

    kind, _, rest = storage.partition(":")
    if not rest or not kind.partition("+")[0].isalnum() or (kind != "journal" and not rest.startswith("//")):
        raise ValueError(f"a storage is {KINDS}, got {masked(storage)!r}")
    deadline = time.monotonic() + CREATE_TIMEOUT
    while True:
        try:
            return _open_journal(Path(rest)) if kind == "journal" else _open_database(storage)
        except ImportError:
            advice = (
                "pip install 'capsnet[search-postgres]'" if kind == "postgresql" else "see SQLAlchemy's documentation"
            )
            raise failure(storage, "cannot be used", f"the driver for {kind} is not installed: {advice}") from None
        except (SQLAlchemyError, sqlite3.Error, RuntimeError, ValueError, OSError) as error:
            transient = isinstance(error, IntegrityError) or any(sign in str(error) for sign in TRANSIENT)
            if not transient or time.monotonic() >= deadline:
                raise failure(storage, "cannot be used", error) from None
            time.sleep(0.1 + 0.2 * random.random())


def _open_journal(path: Path) -> "optuna.storages.BaseStorage":
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    lock = JournalFileOpenLock(str(path), grace_period=10)  # a killed process leaves its lock behind
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def _open_database(storage: str) -> "optuna.storages.BaseStorage":
    options: dict[str, Any] = {}
    if storage.startswith("sqlite"):
        path = storage.partition(":///")[2]
        if not path or path == ":memory:":
            raise ValueError("a study in memory is lost with its process")
        with sqlite3.connect(path, timeout=LOCK_TIMEOUT) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # readers and one writer do not wait for each other
        connection.close()
        options = {"connect_args": {"timeout": LOCK_TIMEOUT}}
    elif storage.startswith("postgresql"):
        options = {"connect_args": {"connect_timeout": CONNECT_TIMEOUT}, "pool_pre_ping": True}
        storage = storage.replace("postgresql://", "postgresql+psycopg://")  # the same driver in every SQLAlchemy
    return need_optuna().storages.RDBStorage(
        storage,
        engine_kwargs=options,
        heartbeat_interval=HEARTBEAT,
        grace_period=GRACE,
        heartbeat_stale_trial_callback=retry_once(),
    )


def open_study(storage: str, name: str, config: TrainConfig, space: str) -> "optuna.Study":
    """Join the study of that name or create it; a study of another recipe or space is refused.

    A trial is pruned by the median: after an epoch at which its best validation accuracy so far is below the median of
    the others' at that epoch. Successive halving would end more trials sooner, by the rank of the first epochs, where
    a one-cycle schedule is still warming up.
    """
    optuna = need_optuna()
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=max(1, config.epochs // 4), n_min_trials=3)
    study = optuna.create_study(
        storage=open_storage(storage), study_name=name, direction="maximize", load_if_exists=True, pruner=pruner
    )
    wanted = {"space": space, "config": json.loads(config.to_json())}
    stored = study.user_attrs.get(STUDY_ATTR)
    if stored is None:
        study.set_user_attr(STUDY_ATTR, wanted)
        return study
    before = json.loads(check_config(stored["config"]).to_json()) | {"space": stored["space"]}  # with later settings
    now = wanted["config"] | {"space": space}
    if differences := [f"its {key} is {before[key]!r}, not {now[key]!r}" for key in now if before[key] != now[key]]:
        where = f"the study {name!r} in {masked(storage)}"
        raise ValueError(f"{where} is another search: {'; '.join(differences)}; choose another --study or --out")
    return study
