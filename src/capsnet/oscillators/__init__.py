"""Oscillators: pure functions on phases. Unit vectors on the sphere, the Kuramoto model, phase clusters and colours."""

from capsnet.oscillators.clusters import Clusters, phase_clusters
from capsnet.oscillators.colours import phase_colours
from capsnet.oscillators.kuramoto import (
    Distribution,
    Trajectory,
    critical_coupling,
    locked_order,
    lorentz,
    normal,
    simulate,
)
from capsnet.oscillators.sphere import (
    energy,
    magnitude,
    order_parameter,
    random_phases,
    rotate,
    simplex,
    step,
    tangent,
    unit,
)

__all__ = [
    "Clusters",
    "Distribution",
    "Trajectory",
    "critical_coupling",
    "energy",
    "locked_order",
    "lorentz",
    "magnitude",
    "normal",
    "order_parameter",
    "phase_clusters",
    "phase_colours",
    "random_phases",
    "rotate",
    "simplex",
    "simulate",
    "step",
    "tangent",
    "unit",
]
