"""Concurrent routing: all capsule layers of a network iterate together (Tsai et al. 2020, arXiv 2002.04764).

In sequential routing a layer makes all its iterations before the next layer begins. In concurrent routing the first
iteration goes through the layers once, with equal couplings; in each further one every layer makes one iteration from
the poses of the iteration before, its children's and its own:

    p_L(1) = step(children = p_L-1(1),      start = 0)
    p_L(t) = step(children = p_L-1(t - 1),  start = p_L(t - 1))

No layer depends on the layers above it, so this can be computed layer by layer, from the children of all iterations to
the parents of all iterations.
"""

from collections.abc import Sequence

import torch

from capsnet.layers.capsules import Children, split_children
from capsnet.layers.conv import ClassCaps, ConvCaps
from capsnet.routing import Routed, Trace


def route_concurrently(
    layer: ConvCaps | ClassCaps, children: Sequence[Children], iterations: int, *, trace: bool = False
) -> list[Routed]:
    """The parents after 1, 2, ... ``iterations`` iterations, from the children after 1, 2, ... iterations.

    The last parents need the children of the iteration before, so ``children`` has ``iterations - 1`` entries or more,
    and at least one. The routing of the layer must declare ``continues``; its own number of iterations is not used.
    """
    needed = max(1, iterations - 1)
    if len(children) < needed:
        raise ValueError(f"{iterations} iterations need the children of {needed}, got {len(children)}")
    zero = split_children(children[0], None).pose.new_zeros(())
    parents = [layer(children[0], trace=trace, start=zero)]
    for before in children[: iterations - 1]:
        parents.append(layer(before, trace=trace, start=parents[-1].pose))
    return parents


def join_traces(parents: Sequence[Routed]) -> Trace:
    """The traces of all iterations as one. The votes, which differ between iterations, are those of the last."""
    traces = [routed.trace for routed in parents if routed.trace is not None]
    couplings, logits, poses, activations = (torch.cat(column) for column in zip(*(t[:4] for t in traces), strict=True))
    return traces[-1]._replace(couplings=couplings, logits=logits, poses=poses, activations=activations)
