"""Where a study lives: a file beside the trials, or something that many machines reach. Optuna is imported here only.

The default is SQLite with write-ahead logging and a patient lock, good for all processes of one machine. A journal file
also works on network disks, where SQLite's locks do not; PostgreSQL is for many machines.
"""

import json
import random
import sqlite3
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsnet.training import TrainConfig
from capsnet.training.config import check_config

if TYPE_CHECKING:
    import optuna

PATIENCE = 60  # seconds that a process waits for another one's write
ANSWER = 10  # seconds that a server has to answer
CREATED = 20  # seconds within which a storage that others are just creating or recovering must be there
PASSING = ("already exists", "database is locked")  # SQLite's recovery after a kill does not wait by itself
ABOUT = "capsnet"  # under which a study says what it is a study of
KINDS = "sqlite:///PATH, journal:PATH or postgresql://USER@HOST/DATABASE"


def need_optuna() -> Any:
    """The library, or one sentence about how to get it."""
    try:
        import optuna
    except ImportError:
        raise ValueError("searching needs Optuna: pip install 'capsnet[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def default_storage(out: Path) -> str:
    return f"sqlite:///{(out / 'study.db').resolve()}"


def masked(storage: str) -> str:
    """A storage's address without its password: for messages and files."""
    head, at, tail = storage.rpartition("@")
    scheme, slashes, login = head.partition("://")
    if not at or not slashes or ":" not in login:
        return storage
    return f"{scheme}://{login.partition(':')[0]}:***@{tail}"


def open_storage(storage: str) -> "optuna.storages.BaseStorage":
    """Connect, or say in one sentence why that did not work."""
    optuna = need_optuna()
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError

    kind, _, rest = storage.partition(":")
    if not rest or not kind.partition("+")[0].isalnum() or (kind != "journal" and not rest.startswith("//")):
        raise ValueError(f"a storage is {KINDS}, got {masked(storage)!r}")
    until = time.monotonic() + CREATED
    while True:
        try:
            if kind == "journal":
                return _open_journal(optuna, Path(rest))
            return _open_database(optuna, storage)
        except (SQLAlchemyError, sqlite3.Error, ImportError, RuntimeError, ValueError, OSError) as error:
            # another process is creating the same tables, or picking up after one that was killed: wait for it
            together = isinstance(error, IntegrityError) or any(sign in str(error) for sign in PASSING)
            if together and time.monotonic() < until:
                time.sleep(0.1 + 0.2 * random.random())
                continue
            reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            if isinstance(error, ImportError):
                driver = "pip install 'capsnet[search]'" if kind == "postgresql" else "see SQLAlchemy's documentation"
                reason = f"the driver for {kind} is not installed: {driver}"
            raise ValueError(f"the storage {masked(storage)} cannot be used: {reason}") from None


def _open_journal(optuna: Any, path: Path) -> "optuna.storages.BaseStorage":
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    lock = JournalFileOpenLock(str(path), grace_period=10)  # a killed process leaves its lock behind
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def _open_database(optuna: Any, storage: str) -> "optuna.storages.BaseStorage":
    options: dict[str, Any] = {}
    if storage.startswith("sqlite"):
        path = storage.partition(":///")[2]
        if not path or path == ":memory:":
            raise ValueError("a study in memory is lost with its process")
        with sqlite3.connect(path, timeout=PATIENCE) as connection:  # readers and one writer do not wait for each other
            connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        options = {"connect_args": {"timeout": PATIENCE}}
    elif storage.startswith("postgresql"):
        options = {"connect_args": {"connect_timeout": ANSWER}, "pool_pre_ping": True}
        storage = storage.replace("postgresql://", "postgresql+psycopg://")  # the same driver in every SQLAlchemy
    return optuna.storages.RDBStorage(storage, engine_kwargs=options)


def open_study(storage: str, name: str, config: TrainConfig, space: str) -> "optuna.Study":
    """Join the study of that name, or begin it; one of another recipe or space is refused.

    Pruning is by the median: a trial ends after an epoch at which its best validation accuracy so far is below the
    median of the others' at that epoch. Successive halving would end more trials sooner, on the rank of the very first
    epochs; but a one-cycle schedule is still warming up there, and what learns slowly at first is often best at last.
    """
    optuna = need_optuna()
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=max(1, config.epochs // 4), n_min_trials=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            storage=open_storage(storage), study_name=name, direction="maximize", load_if_exists=True, pruner=pruner
        )
    about = {"space": space, "config": _plain(config)}
    before = study.user_attrs.get(ABOUT)
    if before is None:
        study.set_user_attr(ABOUT, about)
        return study
    before = before | {"config": _plain(check_config(before["config"]))}  # with the settings that came later
    if before != about:
        raise ValueError(
            f"the study {name!r} in {masked(storage)} is another search: {_difference(before, about)}; "
            "choose another --study or --out"
        )
    return study


def _plain(config: TrainConfig) -> dict[str, Any]:
    """As it comes back from a storage."""
    return json.loads(config.to_json())


def _difference(before: dict[str, Any], about: dict[str, Any]) -> str:
    """What two searches disagree on, in words."""
    if before["space"] != about["space"]:
        return f"its space is {before['space']}, not {about['space']}"
    keys = [key for key in about["config"] if before["config"].get(key) != about["config"][key]]
    told = [f"{key} is {before['config'].get(key)!r}, not {about['config'][key]!r}" for key in keys]
    return "its recipe differs: " + ("; ".join(told) or "it is of another version")
