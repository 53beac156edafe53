"""Routing algorithms: how much each child's vote counts for each parent. ``get`` finds them by name."""

from capsnet.routing._registry import describe, get, list_forms, list_routings, option_names, register
from capsnet.routing.attention import Attention
from capsnet.routing.base import Edges, Formula, Phases, Routed, Routing, SquashingRouting, Trace
from capsnet.routing.dynamic import Dynamic
from capsnet.routing.em import EM
from capsnet.routing.heinsen import Heinsen
from capsnet.routing.homogeneous import Homogeneous
from capsnet.routing.inverted_attention import InvertedAttention
from capsnet.routing.kmeans import KMeans
from capsnet.routing.kuramoto import Kuramoto
from capsnet.routing.self_attention import SelfAttention
from capsnet.routing.steps import couple
from capsnet.routing.traces import contributions, divided, undecided
from capsnet.routing.uniform import Uniform
from capsnet.routing.variational import VariationalBayes

for _routing in (
    Attention,
    Dynamic,
    EM,
    Heinsen,
    Homogeneous,
    InvertedAttention,
    KMeans,
    Kuramoto,
    SelfAttention,
    Uniform,
    VariationalBayes,
):
    register(_routing)

__all__ = [
    "EM",
    "Attention",
    "Dynamic",
    "Edges",
    "Formula",
    "Heinsen",
    "Homogeneous",
    "InvertedAttention",
    "KMeans",
    "Kuramoto",
    "Phases",
    "Routed",
    "Routing",
    "SelfAttention",
    "SquashingRouting",
    "Trace",
    "Uniform",
    "VariationalBayes",
    "contributions",
    "couple",
    "describe",
    "divided",
    "get",
    "list_forms",
    "list_routings",
    "option_names",
    "register",
    "undecided",
]
