"""Experiments: one file per table or figure of the literature. What to run, what to measure, what to draw.

    from capsnet.experiments import reproduce
    reproduce("table1", budget="quick")

An experiment is a module with a docstring (what the paper did), a `TITLE`, and two functions: `plan(lab)`, the training
runs it needs, and `run(lab)`, which gets them from the lab, measures, draws, and returns a `Report`. A new one is
registered by its name in `_reproduce.EXPERIMENTS`.
"""

from capsnet.experiments._report import Measure, Report, Table
from capsnet.experiments._reproduce import Declined, describe, list_experiments, reproduce
from capsnet.experiments.lab import Budget, Lab

__all__ = [
    "Budget",
    "Declined",
    "Lab",
    "Measure",
    "Report",
    "Table",
    "describe",
    "list_experiments",
    "reproduce",
]
