"""Running an experiment by name: ask if it is long, run it, and write a JSON file, figures and a page."""

import json
import logging
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch

from capsnet._files import write_atomically
from capsnet._names import check_name
from capsnet.drawing import style
from capsnet.experiments import _estimate, _jobs, _registry
from capsnet.experiments._registry import Experiment
from capsnet.experiments.lab import Budget, Lab
from capsnet.inference import pick_device
from capsnet.training import environment

SEEDS = {"smoke": 1, "quick": 1, "shipped": 1, "day": 1, "paper": 3}
log = logging.getLogger("capsnet")


class Declined(Exception):
    """Raised when the answer to the estimated time was no."""


def reproduce(
    name: str,
    *,
    budget: Budget = "quick",
    seeds: int | None = None,
    out: str | Path = "results",
    device: str = "auto",
    fresh: bool = False,
    jobs: int = 1,
    ask: Callable[[str], bool] | None = None,
    **options: Any,
) -> Path:
    """Run an experiment and return its folder: ``OUT/BUDGET/NAME`` with NAME.json, NAME.html and figures.

    Args:
        name: see ``list_experiments``.
        budget: smoke (does it run?), quick (minutes, small networks), shipped (the bundled networks, for some
            experiments), day (hours, networks trained to the end, for some experiments), paper (the full setting).
        seeds: how often each network is trained; None takes 1, and 3 for the paper's setting.
        out: where the results go. What was finished there before is not done again.
        device: auto, cpu, cuda or mps.
        fresh: start from nothing, whatever was done before.
        jobs: how many networks are trained at a time, each in a process of its own with its share of the threads. A
            script that asks for more than one needs ``if __name__ == "__main__":`` around what it does.
        options: what the experiment itself takes: ``compare`` takes ``routings`` (names) and ``recipe`` (a name or
            the path of a config.json), ``binding`` takes ``data`` (names of its sets), ``small-data`` takes ``data``
            (folders, or ``faces``), the other ones of this package nothing.
        ask: called with the estimated time before a budget of hours or a recipe of the caller's starts; False ends
            it with ``Declined``.
    """
    experiment = _registry.get(name)
    check(experiment, budget, seeds, options)
    if not 1 <= jobs <= _jobs.MOST:
        raise ValueError(f"jobs must lie between 1 and {_jobs.MOST}, got {jobs}")
    style.require_matplotlib(f"the figures of {name}")  # not after hours of training
    lab = Lab(name, budget, seeds or SEEDS[budget], out, device=device, fresh=fresh, options=options)
    planned = experiment.plan(lab)  # wrong options show here, before anything is written
    used_seeds = sorted({config.seed for config in planned}) or [0]
    if seeds is not None and len(used_seeds) < seeds:
        log.warning("%s has no networks that it trains with several seeds: seeds=%d has no effect", name, seeds)
    long = budget in ("day", "paper") or (budget != "smoke" and options.get("recipe") is not None)
    if long and ask is not None:
        log.info("timing a few steps of each network that %s needs", name)
        if not ask(_estimate.sentence(name, lab, planned)):
            raise Declined(f"{name} was not started")
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    lab.open()
    if jobs > 1 and budget != "shipped":
        _jobs.train_all(lab, planned, jobs)
    clock = time.perf_counter()
    report = experiment.run(lab)
    report.source = {
        "name": name,
        "title": experiment.title,
        "about": experiment.about,
        "budget": budget,
        "seeds": used_seeds,
        "command": command(experiment, lab, len(used_seeds)),
        "seconds": round(lab.total_seconds(time.perf_counter() - clock), 1),
        "environment": environment(pick_device(device)) | {"started": started, "threads": torch.get_num_threads()},
        "trained_on": sorted(lab.machines),
        "bundled": lab.bundled,
        "options": options,
        "runs": experiment.planned_runs(budget, len(lab.seeds), options),
        "settings": experiment.settings_of(budget, len(lab.seeds), options),
    }
    write_atomically(lab.folder / f"{name}.html", report.to_html())
    write_atomically(
        lab.folder / f"{name}.json", json.dumps(report.to_dict(), indent=1, default=str) + "\n"
    )  # last: all is there
    return lab.folder


def check(experiment: Experiment, budget: Budget, seeds: int | None, options: dict[str, Any]) -> None:
    """Refuse what ``reproduce`` cannot do, in one sentence."""
    name = experiment.name
    check_name("budget", budget, get_args(Budget))
    for key in options:
        check_name(f"option of {name}", key, experiment.options)
    if seeds is not None and not 1 <= seeds <= 100:
        raise ValueError(f"seeds must lie between 1 and 100, got {seeds}")
    if budget not in experiment.budgets:
        others = ", ".join(_registry.list_experiments(budget))
        raise ValueError(f"{name} has no budget {budget} (those that have: {others}): choose another budget for {name}")
    if budget == "shipped" and (seeds or 1) > 1:
        raise ValueError(f"there is one trained network each for the budget shipped, got seeds={seeds}")


def command(experiment: Experiment, lab: Lab, seeds: int) -> str:
    """What repeats an experiment: a command, or a call where it has options and no verb of its own."""
    tail = f"--budget {lab.budget} --seeds {seeds}"
    options = {key: value for key, value in lab.options.items() if value}
    if not options:
        return f"capsnet reproduce {lab.name} {tail}"
    if experiment.verb:
        flags = [
            f"--{key} {shlex.join([value] if isinstance(value, str) else value)}" for key, value in options.items()
        ]
        return f"capsnet {experiment.verb} {' '.join(flags)} {tail}"
    words = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"reproduce({lab.name!r}, budget={lab.budget!r}, seeds={seeds}, {words})"
