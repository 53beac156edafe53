"""The experiments that ``reproduce`` knows, by name: each declares its title, its trainings and its budgets."""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capsnet import data
from capsnet._names import check_name
from capsnet.experiments._claims import Claims
from capsnet.experiments._report import Report
from capsnet.experiments.lab import Budget, Lab
from capsnet.training import TrainConfig

TRAINED: tuple[Budget, ...] = ("smoke", "quick", "paper")
"""The budgets of an experiment that trains its own networks."""
STRONG: tuple[Budget, ...] = ("smoke", "quick", "day", "paper")
"""Those of one that also compares networks that are trained to the end, in hours."""
ALL: tuple[Budget, ...] = ("smoke", "quick", "day", "shipped", "paper")
"""Those of one that can also be run with the bundled networks, which were trained for longer than those of ``day``."""


@dataclass(frozen=True)
class Experiment:
    """What is registered of an experiment."""

    name: str
    title: str
    run: Callable[[Lab], Report]
    plan: Callable[[Lab], list[TrainConfig]]
    settings: Callable[[Lab], dict[str, Any]]
    budgets: tuple[Budget, ...]
    options: tuple[str, ...]
    verb: str
    about: str
    claims: Claims

    def planned_runs(self, budget: Budget, seeds: int, options: dict[str, Any]) -> list[str] | None:
        """The names of the runs that it plans where nothing is finished, which a report records: another version of the
        experiment plans others. None where a run depends on files of the user."""
        with tempfile.TemporaryDirectory() as empty:
            lab = Lab(self.name, budget, seeds, empty, options=options)
            planned = self.plan(lab)
            if any(data.path_of(config.data) for config in planned):
                return None
            return sorted({lab.where(config).name for config in planned})

    def settings_of(self, budget: Budget, seeds: int, options: dict[str, Any]) -> dict[str, Any]:
        """The settings that a report records, as they are read back from its JSON file."""
        return json.loads(json.dumps(self.settings(Lab(self.name, budget, seeds, "unused", options=options))))


_REGISTRY: dict[str, Experiment] = {}


def register(
    name: str,
    title: str,
    *,
    plan: Callable[[Lab], list[TrainConfig]] = lambda lab: [],
    settings: Callable[[Lab], dict[str, Any]] = lambda lab: {},
    budgets: tuple[Budget, ...] = TRAINED,
    options: tuple[str, ...] = (),
    verb: str = "",
    claims: Claims = lambda report: [],
) -> Callable[[Callable[[Lab], Report]], Callable[[Lab], Report]]:
    """Make a function ``run(lab) -> Report`` known to ``reproduce`` under a name. A decorator.

    Args:
        name: what ``capsnet reproduce`` calls it.
        title: one line for people.
        plan: which training runs it needs, as a function of the lab.
        settings: what else decides its numbers, as plain values: of an experiment that trains without ``lab.train``.
            A report of other settings is of an earlier version.
        budgets: which budgets it supports, weakest first: docs/RESULTS.md shows the last one that is finished.
        options: the names of the options it takes besides those of ``reproduce``.
        verb: the verb of the command line that takes these options, if there is one.
        claims: the claims that a report decides, for the table at the top of docs/RESULTS.md.

    The docstring of the function, or of its module where it has none, says what the paper did and which claim to look
    at; it is part of the page.
    """

    def add(run: Callable[[Lab], Report]) -> Callable[[Lab], Report]:
        known = _REGISTRY.get(name)
        if known is not None and known.run.__module__ != run.__module__:
            raise ValueError(f"there is an experiment {name!r} already, from {known.run.__module__}")
        about = run.__doc__ or sys.modules[run.__module__].__doc__ or ""
        _REGISTRY[name] = Experiment(name, title, run, plan, settings, budgets, options, verb, about.strip(), claims)
        return run

    return add


def get(name: str) -> Experiment:
    """The experiment of this name; an unknown name lists the known ones."""
    return _REGISTRY[check_name("experiment", name, _REGISTRY)]


def list_experiments(budget: Budget | None = None) -> list[str]:
    """The names that ``reproduce`` knows (with that budget), in the order of the papers' tables and figures."""
    return [name for name, experiment in _REGISTRY.items() if budget is None or budget in experiment.budgets]


def describe(name: str) -> str:
    """One line about an experiment."""
    return get(name).title
