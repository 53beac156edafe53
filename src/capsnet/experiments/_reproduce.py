"""Running an experiment by name: ask if it is long, run it, and leave a JSON file, figures and a page."""

import importlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import torch

from capsnet._files import write_atomically
from capsnet._names import check_name
from capsnet.experiments import _estimate
from capsnet.experiments._html import page
from capsnet.experiments._report import Report
from capsnet.experiments.lab import Budget, Lab
from capsnet.inference import pick_device
from capsnet.training.run import environment

EXPERIMENTS = (
    "table1",
    "affine",
    "overlap",
    "perturb",
    "multimnist-figure",
    "scramble",
    "few-shot",
    "routing-toy",
    "equivariance",
    "ablation",
    "compare",
)
SEEDS = {"smoke": 1, "quick": 1, "shipped": 1, "paper": 3}
BOXED = ("affine", "perturb", "multimnist-figure")  # those for which there are trained networks in the box


log = logging.getLogger("capsnet")


class Declined(Exception):
    """Somebody was told how long it would take and said no."""


def list_experiments(budget: Budget | None = None) -> list[str]:
    """The names that ``reproduce`` knows (with that budget), in the order of the papers' tables and figures."""
    return list(BOXED if budget == "shipped" else EXPERIMENTS)


def find(name: str) -> ModuleType:
    check_name("experiment", name, EXPERIMENTS)
    return importlib.import_module(f"capsnet.experiments.{name.replace('-', '_')}")


def describe(name: str) -> str:
    """One line about an experiment."""
    return find(name).TITLE


def reproduce(
    name: str,
    *,
    budget: Budget = "quick",
    seeds: int | None = None,
    out: str | Path = "results",
    device: str = "auto",
    fresh: bool = False,
    ask: Callable[[str], bool] | None = None,
    **options: Any,
) -> Path:
    """Run an experiment and return its folder: `OUT/BUDGET/NAME` with NAME.json, NAME.html and figures.

    Args:
        name: see ``list_experiments``.
        budget: smoke (does it run?), quick (minutes, small networks), shipped (the trained networks in the box, for
            some experiments), paper (the full setting).
        seeds: how often each network is trained; None takes 1, and 3 for the paper's setting.
        out: where the results go. What was finished there before is not done again.
        device: auto, cpu, cuda or mps.
        fresh: start from nothing, whatever was done before.
        options: what the experiment itself takes: ``compare`` takes ``routings`` (names) and ``recipe`` (a name or
            the path of a config.json), the others nothing.
        ask: called with the estimated time before the paper's setting or a recipe of the caller's starts; False ends
            it with ``Declined``.
    """
    module = find(name)
    check_name("budget", budget, get_args(Budget))
    for key in options:
        check_name(f"option of {name}", key, getattr(module, "OPTIONS", ()))
    if seeds is not None and not 1 <= seeds <= 100:
        raise ValueError(f"seeds must lie between 1 and 100, got {seeds}")
    if budget == "shipped" and (name not in BOXED or (seeds or 1) > 1):
        raise ValueError(
            f"the box has one trained network each for {', '.join(BOXED)}: choose another budget for {name}"
        )
    lab = Lab(name, budget, seeds or SEEDS[budget], out, device=device, fresh=fresh, options=options)
    planned = module.plan(lab)  # what is wrong with the options shows here, before anything is written
    long = budget == "paper" or (budget != "smoke" and options.get("recipe") is not None)
    if long and ask is not None:
        log.info("timing a few steps of each network that %s needs", name)
        question = _estimate.sentence(name, lab, planned)
        if not ask(question):
            raise Declined(f"{name} was not started")
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    clock = time.perf_counter()
    report: Report = module.run(lab.open())
    write(lab, module, report, started, lab.total_seconds(time.perf_counter() - clock))
    return lab.folder


def write(lab: Lab, module: ModuleType, report: Report, started: str, seconds: float) -> None:
    """The JSON file comes last: where it is, everything it names is there too."""
    machine = environment(pick_device(lab.device)) | {"started": started}
    seeds = sorted({config.seed for config in module.plan(lab)}) or [0]  # those that were used
    command = f"capsnet reproduce {lab.name} --budget {lab.budget} --seeds {len(seeds)}"
    if lab.options:  # only `compare` takes any, and it has a verb of its own
        told = f" --routings {' '.join(lab.options['routings'])}" if lab.options.get("routings") else ""
        told += f" --recipe {lab.options['recipe']}" if lab.options.get("recipe") else ""
        command = f"capsnet compare{told} --budget {lab.budget} --seeds {len(seeds)}"
    document = {
        "name": lab.name,
        "title": module.TITLE,
        "about": (module.__doc__ or "").strip(),
        "budget": lab.budget,
        "seeds": seeds,
        "command": command,
        "seconds": round(seconds, 1),
        "environment": machine | {"threads": torch.get_num_threads()},
        "trained_on": sorted(lab.machines),
        "boxed": lab.boxed,
        **report.to_dict(),
    }
    write_atomically(lab.folder / f"{lab.name}.html", page(document, lab.folder))
    write_atomically(lab.folder / f"{lab.name}.json", json.dumps(document, indent=1) + "\n")
