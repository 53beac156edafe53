"""Experiments: one file per table or figure of the literature. What to run, what to measure, what to draw.

    from capsnet.experiments import reproduce
    reproduce("table1", budget="quick")

An experiment is a function ``run(lab) -> Report`` under ``@register(name, title, plan=...)``. It gets trained networks
from the lab, measures, draws and returns a ``Report``. One from outside this package is registered the same way.
"""

from importlib import import_module

from capsnet.experiments._claims import Claim
from capsnet.experiments._registry import describe, get, list_experiments, register
from capsnet.experiments._report import Measure, Report, Table, error_measure
from capsnet.experiments._reproduce import Declined, reproduce
from capsnet.experiments.lab import Budget, Lab

_LISTED = (
    "table1 twins affine overlap perturb multimnist_figure scramble scramble_faces few_shot small_data routing_toy "
)
_LISTED += "equivariance ablation compare kuramoto phase_routing binding pathnet decoupled complex explain"
for _name in _LISTED.split():  # the order in which they are listed
    import_module(f"capsnet.experiments.{_name}")

__all__ = [
    "Budget",
    "Claim",
    "Declined",
    "Lab",
    "Measure",
    "Report",
    "Table",
    "describe",
    "error_measure",
    "get",
    "list_experiments",
    "register",
    "reproduce",
]
