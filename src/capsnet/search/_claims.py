"""Who does which trial. Workers share nothing but the storage, any of them may be killed, and exactly N get finished.

No lock is held. A storage numbers its trials in the order of their creation, and that is enough:

- a worker that has created or picked up trial n does it only if fewer than N trials with a *lower* number are alive
  (finished, running or waiting); else it gives it up at once. Of any N + 1 trials that all end well, the one with the
  highest number has seen N before it and was given up. So there are never more than N, whoever is killed when.
- a running trial whose worker is gone is failed by whoever notices. Its place is free again, so there are N in the end.
- what was cut short is tried once more with the same values. What is to be repeated follows from the trials
  themselves, not from a message that could be lost; if two workers queue the same one, the lower number is done.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsnet.search._storage import need_optuna

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

BEAT = 20  # seconds between two signs of life of a running trial
GRACE = 150  # seconds without one after which a worker on another machine counts as gone
NAMELESS = 10  # the same for a trial whose worker was killed before it could sign
OWNER, PULSE, ORIGIN, REASON = "owner", "pulse", "origin", "reason"  # what trials are marked with
DEFAULT = "default"  # marks the trial that has the recipe's own values


class Claims:
    """One worker's view of a study of ``wanted`` trials."""

    def __init__(self, study: "optuna.Study", wanted: int, default: dict[str, Any]) -> None:
        self.study, self.wanted, self.default = study, wanted, default
        self.state = need_optuna().trial.TrialState
        self._pulses: dict[int, tuple[Any, float]] = {}  # last sign of life of others, and when it was new to us

    def finished(self) -> "list[FrozenTrial]":
        """What counts: trials that ran to their end or were pruned on the way."""
        return [t for t in self._trials() if t.state in (self.state.COMPLETE, self.state.PRUNED)]

    def take(self) -> "optuna.Trial | None":
        """A trial that is this worker's to do; None if there is none at the moment."""
        for trial in self._trials():
            if trial.state == self.state.RUNNING and self._gone(trial):
                with suppress(ValueError, need_optuna().exceptions.OptunaError):  # somebody else was faster
                    self.study.tell(trial.number, state=self.state.FAIL)
        trials = self._trials()
        alive = [t for t in trials if t.state != self.state.FAIL]
        if len(alive) >= self.wanted and not any(t.state == self.state.WAITING for t in alive):
            return None
        for values, marks in self._due(trials)[: max(0, self.wanted - len(alive))]:
            self.study.enqueue_trial(values, user_attrs=marks)
        trial = self.study.ask()
        try:
            trial.set_user_attr(OWNER, signature())
        except need_optuna().exceptions.UpdateFinishedTrialError:
            return None  # so slow to sign that it was taken for dead
        if self._entitled(trial):
            return trial
        self.end(trial, self.state.FAIL, reason="one too many")
        return None

    def end(self, trial: "optuna.Trial", state: Any, value: float | None = None, reason: str | None = None) -> bool:
        """Write down how a trial ended; False if it was taken for dead and given to somebody else meanwhile."""
        try:
            if reason is not None:
                trial.set_user_attr(REASON, reason)
            self.study.tell(trial, value, state=state)
        except (ValueError, need_optuna().exceptions.UpdateFinishedTrialError):
            if trial.storage.get_trial(trial._trial_id).state == self.state.RUNNING:
                raise
            return False
        return True

    def _trials(self) -> "list[FrozenTrial]":
        return self.study.get_trials(deepcopy=False)

    def _due(self, trials: "list[FrozenTrial]") -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Values and marks of what has to be done before anything new: the recipe's own, and what was cut short."""
        given_up = [t.number for t in trials if t.state == self.state.FAIL and REASON in t.user_attrs]
        origins = {t.user_attrs.get(ORIGIN) for t in trials if t.number not in given_up}  # what diverged is done
        due = [] if DEFAULT in origins else [(self.default, {ORIGIN: DEFAULT, DEFAULT: True})]
        for trial in trials:
            if trial.state != self.state.FAIL or REASON in trial.user_attrs or again(trial.number) in origins:
                continue
            values = trial.system_attrs.get("fixed_params", {}) | trial.params
            if values and not str(trial.user_attrs.get(ORIGIN)).startswith(again("")):
                marks = {DEFAULT: True} if DEFAULT in trial.user_attrs else {}
                due.append((values, {ORIGIN: again(trial.number)} | marks))
        return due

    def _entitled(self, trial: "optuna.Trial") -> bool:
        before = [t for t in self._trials() if t.number < trial.number and t.state != self.state.FAIL]
        origin = trial.user_attrs.get(ORIGIN)
        twice = origin is not None and any(t.user_attrs.get(ORIGIN) == origin for t in before)
        return len(before) < self.wanted and not twice

    def _gone(self, trial: "FrozenTrial") -> bool:
        """Whether the worker of a running trial is no more. On this machine that is a fact; elsewhere, silence."""
        owner = trial.user_attrs.get(OWNER)
        if owner is not None and owner["host"] == host():
            return process_start(owner["pid"]) != owner["started"]
        pulse, now = trial.user_attrs.get(PULSE), time.monotonic()
        last, since = self._pulses.get(trial.number, (None, now))
        if trial.number not in self._pulses or last != pulse:
            self._pulses[trial.number] = (pulse, now)
            return False
        return now - since > (GRACE if owner is not None else NAMELESS)


def again(number: int | str) -> str:
    return f"again {number}"


@contextmanager
def heartbeat(trial: "optuna.Trial") -> Iterator[None]:
    """Signs of life while a trial runs. Only *changes* count, so the clocks of machines need not agree."""
    over = threading.Event()

    def beat() -> None:
        count = 0
        while not over.wait(BEAT):
            count += 1
            with suppress(Exception):  # a storage that is away for a moment must not end a training
                trial.set_user_attr(PULSE, count)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def signature() -> dict[str, Any]:
    """Who does a trial: the machine, the process, and when that began, because numbers of processes come again."""
    return {"host": host(), "pid": os.getpid(), "started": process_start(os.getpid())}


def host() -> str:
    """This machine since it was switched on; containers with process numbers of their own are other machines."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8])
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def process_start(pid: int) -> int | None:
    """When a process of this machine began (0 where the system does not tell); None if it is no more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except OSError:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return 0
