"""Run folders: the files of one run, and how it is resumed."""

import dataclasses
import json
import logging
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capsnet import _version
from capsnet._files import TEMPORARY, check_text, write_atomically
from capsnet.training import distributed
from capsnet.training.config import TrainConfig, read_config

log = logging.getLogger("capsnet")
CONFIG, METRICS, ENV, RESULTS, README = "config.json", "metrics.jsonl", "env.json", "results.json", "README.md"
CHECKPOINT, WEIGHTS, FIGURES, LOCK, JOB = "checkpoint.pt", "model.safetensors", "figures", ".lock", ".job"


class Run:
    """A folder with the files of one run. Of several processes only one ``writes``; on the others ``write`` does
    nothing."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes

    @property
    def finished(self) -> bool:
        """The results are written last, so their presence means that all other files are complete."""
        return (self.folder / RESULTS).is_file()

    @property
    def checkpoint(self) -> Path:
        return self.folder / CHECKPOINT

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
        return write_atomically(self.folder / name, text) if self.writes else self.folder / name

    def record(self, values: dict[str, Any]) -> None:
        """Append one line to the metrics."""
        if self.writes:
            try:
                with open(self.folder / METRICS, "a", encoding="utf-8") as file:
                    file.write(json.dumps(values) + "\n")
            except OSError as error:  # a full disk does not name the file
                raise OSError(error.errno, error.strerror, str(self.folder / METRICS)) from error

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The lines of the metrics; a last line cut short by a kill is left out, others with a warning."""
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        records = [record for record in map(_record, lines) if record is not None]
        if len(records) < len(lines) - 1:
            log.warning("%s: %d lines are damaged and left out", path, len(lines) - len(records))
        return [record for record in records if kind is None or record["kind"] == kind]

    def forget_after(self, step: int, epoch: int) -> None:
        """Drop the lines that a resumed run will write again: those after ``step`` steps, and those of epochs beyond
        the ``epoch`` that are finished (the last step of an epoch may be done before its line is written)."""
        lines = [line for line in self.records() if line["step"] <= step]
        lines = [line for line in lines if line["kind"] != "epoch" or line["epoch"] <= epoch]
        self.write(METRICS, "".join(json.dumps(line) + "\n" for line in lines))

    def record_environment(self, step: int, environment: dict[str, Any]) -> None:
        """Write ``env.json``. A resumed run keeps its first environment and lists the later ones under "resumed",
        except those without a step before ``step``."""
        before = self._environment() if step else None
        if before is not None:
            entries = before.pop("resumed", [])
            resumed = [entry for entry in entries if isinstance(entry, dict) and entry.get("step", step) < step]
            environment = before | {"resumed": [*resumed, {"step": step} | environment]}
        self.write(ENV, environment)

    def first_precision(self) -> str | None:
        """The precision that the run began with, if it was recorded."""
        return (self._environment() or {}).get("precision")

    def _environment(self) -> dict[str, Any] | None:
        """What ``env.json`` holds, if it is there and whole: a run need not be lost with it."""
        path = self.folder / ENV
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict) or not isinstance(found.get("resumed", []), list):
                raise ValueError("it is not an object")
        except (ValueError, RecursionError):
            log.warning("%s is damaged: the environments before this one are lost", path)
            return None
        return found

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while training in it, so that no other process resumes the run."""
        if not self.writes:
            yield
            return
        with open(self.folder / LOCK, "w", encoding="utf-8") as file:
            if not _try_lock(file):
                raise ValueError(f"another process is training in {self.folder}")
            for stray in self.folder.rglob(TEMPORARY):
                stray.unlink(missing_ok=True)  # of a process that was killed while writing
            try:
                yield
            finally:
                (self.folder / LOCK).unlink(missing_ok=True)

    @property
    def busy(self) -> bool:
        path = self.folder / LOCK
        if not path.is_file():
            return False
        with open(path, encoding="utf-8") as file:
            return not _try_lock(file)


def _record(line: str) -> dict[str, Any] | None:
    """A line of the metrics, or None if it is not one."""
    try:
        found = json.loads(line) if line.endswith("}") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("step"), int) or not isinstance(found.get("kind"), str):
        return None
    return found if found["kind"] != "epoch" or isinstance(found.get("epoch"), int) else None


def open_on_all_ranks(config: TrainConfig, out: str | Path | None, resume: str | Path) -> Run:
    """``open_run`` for several processes: the main one opens it and sends the folder to the others."""
    job = distributed.current_job()
    folder = distributed.broadcast_from_main(lambda: _open_for(job, config, out, resume).folder)
    return Run(folder, writes=distributed.is_main())


def _open_for(job: distributed.Job, config: TrainConfig, out: str | Path | None, resume: str | Path) -> Run:
    """``open_run``, except that a restarted job resumes the run that it has begun."""
    if str(resume) == "no":
        begun = (f for f in _candidates(config, out) if begun_by(job, f) and _matches(f, config))
        resume = next((folder for folder in begun if not Run(folder).finished), resume)
    run = open_run(config, out, resume)
    record_job(job, run.folder)
    return run


def record_job(job: distributed.Job, folder: Path) -> None:
    """Record in a folder which job works in it."""
    if job.names:
        write_atomically(folder / JOB, "\n".join(job.names) + "\n")


def begun_by(job: distributed.Job, folder: Path) -> bool:
    """Whether an earlier attempt of this job has worked in the folder."""
    path = folder / JOB
    return (
        job.restarted
        and path.is_file()
        and not set(job.names).isdisjoint(path.read_text(encoding="utf-8").splitlines())
    )


def open_run(config: TrainConfig, out: str | Path | None, resume: str | Path) -> Run:
    """The folder to train in: a new one, or (``resume`` = "auto" or a folder) one that was not finished.

    ``out`` is the run's own folder; by default ``runs/RECIPE/TIME-SEED`` under the current one.
    """
    check_text(out or resume, "run's folder")
    if str(resume) not in ("no", "auto"):
        return _reopen(Path(resume), config)
    if str(resume) == "auto":
        for folder in _candidates(config, out):
            run = Run(folder)
            if _matches(folder, config) and not run.finished and not run.busy:
                return run
    folder = Path(out) if out is not None else _fresh_folder(config)
    if out is not None and folder.is_dir() and any(folder.iterdir()):
        run = Run(folder)
        why = "is finished" if run.finished else "is in use" if run.busy else "has another configuration"
        what = f"the run there {why}" if (folder / CONFIG).is_file() and str(resume) == "auto" else "it is not empty"
        hint = "" if str(resume) == "auto" else ", or --resume auto to continue a run there"
        raise ValueError(f"cannot train in {folder}: {what}; choose another --out{hint}")
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    run.write(CONFIG, config.to_json())
    return run


def environment(device: torch.device) -> dict[str, Any]:
    """The machine, the versions and the command: what a result depends on besides its configuration."""
    command = Path(sys.argv[0]).name
    words = [re.sub(r"(://[^:/]*):.*@", r"\1:***@", word) for word in sys.argv[1:]]  # no passwords in files
    return {
        "capsnet": _version.__version__,
        "commit": commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device),
        "command": shlex.join(["capsnet" if command == "__main__.py" else command, *words]),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def commit(package: Path = Path(__file__).parents[1]) -> str | None:
    """The commit of the code, marked if it was changed since; None for an installed package.

    A virtual environment may lie inside another repository, so the package's files must be tracked by it.
    """

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(package), *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        if not git("ls-files", "__init__.py"):
            return None
        return git("rev-parse", "HEAD")[:12] + (", changed since" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.TimeoutExpired):
        return None  # git is not installed


def _reopen(folder: Path, config: TrainConfig) -> Run:
    run = Run(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no {CONFIG}")
    if run.finished:
        raise ValueError(f"the run in {folder} is finished already")
    before = read_config(folder / CONFIG)
    changed = [f.name for f in dataclasses.fields(config) if getattr(before, f.name) != getattr(config, f.name)]
    if changed:
        raise ValueError(f"the run in {folder} has another configuration: {', '.join(changed)} differ")
    return run


def _candidates(config: TrainConfig, out: str | Path | None) -> list[Path]:
    """Folders that may hold a run to resume, newest first."""
    base = Path(out) if out is not None else _base(config)
    folders = [base, *base.iterdir()] if base.is_dir() else []
    runs = [folder for folder in folders if (folder / CONFIG).is_file()]
    return sorted(runs, key=lambda folder: (folder / CONFIG).stat().st_mtime_ns, reverse=True)


def _matches(folder: Path, config: TrainConfig) -> bool:
    try:
        return read_config(folder / CONFIG) == config
    except (ValueError, OSError):
        return False  # of another version, or not a run folder


def _base(config: TrainConfig) -> Path:
    return Path("runs") / config.recipe


def _fresh_folder(config: TrainConfig) -> Path:
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.seed}"
    folder, number = _base(config) / name, 1
    while True:
        try:
            folder.mkdir(parents=True)  # another run may begin in the same second
        except FileExistsError:
            number += 1
            folder = _base(config) / f"{name}-{number}"
        else:
            return folder


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _try_lock(file: Any) -> bool:
    """Lock an open file until it is closed or its process dies; always true on systems without ``flock``."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
