"""Exactly N trials get finished, at whichever call of the storage a worker dies. Simulated, so that every moment is."""

import random
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from capsnet.search import _claims
from capsnet.search._claims import ORIGIN, OWNER, PULSE, REASON, Claims

OWN = {"x": 0.5}


class KilledError(BaseException):
    """What SIGKILL is to a simulated worker: nothing of it runs any more."""


class Mortal:
    """A storage whose user dies at the ``left``-th call, and before each call of which others may do something."""

    def __init__(self, storage: Any, before: Callable[[], None]) -> None:
        self._inner, self._before, self.left = storage, before, float("inf")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise KilledError
            self._before()
            return value(*arguments, **more)

        return call


class World:
    """Simulated workers on one study; ``pid`` is whose turn it is."""

    def __init__(self) -> None:
        self.storage = optuna.storages.InMemoryStorage()
        optuna.create_study(storage=self.storage, study_name="s", direction="maximize")
        self.pid, self.dead, self.turns = 0, set(), 0
        self.before: Callable[[], None] = lambda: None

    def worker(self, wanted: int) -> tuple[Claims, Mortal]:
        study = optuna.load_study(study_name="s", storage=self.storage)
        mortal = Mortal(self.storage, lambda: self.before())
        study._storage = mortal  # type: ignore[assignment]
        return Claims(study, wanted, OWN), mortal

    @property
    def trials(self) -> list[FrozenTrial]:
        return self.storage.get_all_trials(0)

    def finished(self) -> list[FrozenTrial]:
        return [t for t in self.trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    world = World()
    monkeypatch.setattr(_claims, "host", lambda: "here")
    monkeypatch.setattr(_claims, "process_start", lambda pid: None if pid in world.dead else 1)
    monkeypatch.setattr(_claims.os, "getpid", lambda: world.pid)
    return world


class Worker:
    """Takes a trial in one turn and ends it in the next; dies of its storage."""

    def __init__(self, world: World, wanted: int, pid: int) -> None:
        self.world, self.pid, self.active = world, pid, False
        self.claims, self.mortal = world.worker(wanted)
        self.trial: optuna.Trial | None = None

    def turn(self, chance: random.Random, mortality: float) -> bool:
        """False if it died."""
        before, self.world.pid, self.active = self.world.pid, self.pid, True
        self.mortal.left = chance.randrange(14) if chance.random() < mortality else float("inf")
        try:
            if self.trial is None:
                self.trial = self.claims.take()
                if self.trial is not None:
                    self.trial.suggest_float("x", 0, 1)
            else:
                trial, self.trial = self.trial, None
                how, value, reason = chance.choice(
                    [(TrialState.COMPLETE, 0.5, None), (TrialState.PRUNED, None, None),
                     (TrialState.PRUNED, None, "diverged")]
                )  # fmt: skip
                assert self.claims.end(trial, how, value, reason)
        except KilledError:
            self.world.dead.add(self.pid)
            return False
        finally:
            self.active, self.world.pid = False, before
        return True


def run(world: World, wanted: int, seed: int) -> int:
    """Four workers in random order, also one in the middle of what another does; any may die at any call."""
    chance = random.Random(seed)
    crew: list[Worker] = []
    deaths = 0

    def somebody() -> None:
        nonlocal deaths
        idle = [worker for worker in crew if not worker.active]
        if idle and len(crew) - len(idle) < 3:
            worker = chance.choice(idle)
            if not worker.turn(chance, 0.4 if deaths < 10 else 0):
                deaths += 1
                crew.remove(worker)

    world.before = lambda: somebody() if chance.random() < 0.1 else None
    for turn in range(3000):
        world.turns = turn
        while len(crew) < 4:
            crew.append(Worker(world, wanted, turn * 10 + len(crew)))
        if len(world.finished()) >= wanted:
            break
        somebody()
    world.before = lambda: None
    for worker in list(crew):  # whoever is left finds that all is done
        worker.mortal.left = float("inf")
        assert worker.trial is None
        assert worker.claims.take() is None
    return deaths


@pytest.mark.parametrize("part", range(10))
def test_exactly_as_many_as_wanted(world: World, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_claims, "NAMELESS", 3)  # turns: no clock of a busy machine decides
    monkeypatch.setattr(_claims.time, "monotonic", lambda: world.turns)
    deaths = 0
    for seed in range(20 * part, 20 * part + 20):
        world.__init__()
        deaths += run(world, wanted=6, seed=seed)
        done = world.finished()
        assert len(done) == 6
        left = [t.number for t in world.trials if t.state == TrialState.RUNNING]
        assert not left or min(left) > max(t.number for t in done)  # one too many, its worker died before giving it up
        origins = [t.user_attrs[ORIGIN] for t in done if ORIGIN in t.user_attrs]
        assert len(origins) == len(set(origins))  # nothing was repeated twice
        for trial in done:
            origin = str(trial.user_attrs.get(ORIGIN))
            if origin.startswith("again"):
                first = world.trials[int(origin.split()[1])]
                assert first.state == TrialState.FAIL
                assert first.params in ({}, trial.params)  # {}: it died before its values were written down
        assert len(world.trials) < 50  # and no heap of useless ones
    assert deaths > 20


def test_a_dead_worker_s_trial_is_tried_once_more(world: World) -> None:
    claims, _ = world.worker(3)
    for pid, origin in ((1, "default"), (2, "again 0"), (3, None)):
        world.pid = pid
        trial = claims.take()
        assert trial is not None
        assert trial.user_attrs.get(ORIGIN) == origin
        if origin is not None:
            assert trial.suggest_float("x", 0, 1) == 0.5
        world.dead.add(pid)
    assert [t.state for t in world.trials] == [TrialState.FAIL, TrialState.FAIL, TrialState.RUNNING]


@pytest.mark.parametrize("cut", [False, True])
def test_what_diverged_is_not_due_again(world: World, cut: bool) -> None:
    """Neither the recipe's own values nor a repetition; but what was given up for an error is."""
    claims, _ = world.worker(3)
    if cut:
        world.pid = 1
        assert claims.take() is not None
        world.dead.add(1)
        world.pid = 2
    first = claims.take()
    assert first is not None
    assert claims.end(first, TrialState.FAIL, reason="disk full")
    second = claims.take()
    assert second is not None
    assert second.user_attrs[ORIGIN] == first.user_attrs[ORIGIN] == ("again 0" if cut else "default")
    assert claims.end(second, TrialState.PRUNED, reason="diverged")
    third = claims.take()
    assert third is not None
    assert ORIGIN not in third.user_attrs


def test_too_slow_to_sign(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that was taken for dead before its worker had signed is not that worker's, and no error."""
    claims, _ = world.worker(1)

    def late() -> dict[str, Any]:
        claims.study.tell(0, state=TrialState.FAIL)
        return {}

    signature = _claims.signature
    monkeypatch.setattr(_claims, "signature", late)
    assert claims.take() is None
    monkeypatch.setattr(_claims, "signature", signature)
    retry = claims.take()
    assert retry is not None
    assert retry.user_attrs[ORIGIN] == "again 0"


def test_a_worker_elsewhere_is_given_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's worker lives as long as its pulse changes by our own clock."""
    now = [0.0]
    monkeypatch.setattr(_claims.time, "monotonic", lambda: now[0])
    claims, _ = world.worker(1)
    trial = claims.take()
    assert trial is not None
    trial.set_user_attr(OWNER, {"host": "elsewhere", "pid": 1, "started": 1})
    for minute in range(10):
        now[0] = 60.0 * minute
        trial.set_user_attr(PULSE, minute)
        assert claims.take() is None
    now[0] += _claims.GRACE - 1
    assert claims.take() is None
    now[0] += 2
    retry = claims.take()
    assert retry is not None
    assert retry.user_attrs[ORIGIN] == "again 0"
    assert claims.end(trial, TrialState.COMPLETE, 0.9) is False  # back from the dead: its result is not counted
    assert claims.end(retry, TrialState.COMPLETE, 0.8) is True
    assert [t.value for t in claims.finished()] == [0.8]


def test_one_too_many_is_given_up(world: World) -> None:
    first, _ = world.worker(2)
    taken = [first.take(), first.take()]
    assert all(taken)
    late = first.study.ask()  # as a worker would that had counted a moment earlier
    assert not first._entitled(late)
    first.end(late, TrialState.FAIL, reason="one too many")
    assert first.take() is None
    assert world.trials[2].user_attrs[REASON] == "one too many"


def test_processes() -> None:
    import os
    import subprocess
    import sys

    assert _claims.process_start(os.getpid()) == _claims.signature()["started"]
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert _claims.process_start(child.pid) is not None
    child.kill()
    while (state := _claims.process_start(child.pid)) is not None:  # at the latest as a zombie it counts as gone
        assert state
    child.wait()
    assert _claims.process_start(child.pid) is None
