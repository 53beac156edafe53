"""Routing algorithms: how children choose their parents. One algorithm, one file; ``get`` finds them by name."""

from capsnet.routing._registry import describe, get, list_routings, option_names, register
from capsnet.routing.attention import Attention
from capsnet.routing.base import Routed, Routing, Trace, couple
from capsnet.routing.dynamic import Dynamic
from capsnet.routing.em import EM
from capsnet.routing.kmeans import KMeans
from capsnet.routing.self_attention import SelfAttention
from capsnet.routing.uniform import Uniform

for _routing in (Attention, Dynamic, EM, KMeans, SelfAttention, Uniform):
    register(_routing)

__all__ = [
    "EM",
    "Attention",
    "Dynamic",
    "KMeans",
    "Routed",
    "Routing",
    "SelfAttention",
    "Trace",
    "Uniform",
    "couple",
    "describe",
    "get",
    "list_routings",
    "option_names",
    "register",
]
