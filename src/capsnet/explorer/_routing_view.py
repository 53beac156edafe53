"""Looking into the routing: who sends how much to whom in each iteration, and where the votes for a parent lie."""

import base64
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet.explorer._answers import check_class, grid_of
from capsnet.explorer._rerouting import class_layer, listening, reroute
from capsnet.explorer._seen import to_input
from capsnet.explorer._studio import Exhibit
from capsnet.explorer._wire import Question, VotesQuestion
from capsnet.functional import length
from capsnet.routing import get


class Routing(NamedTuple):
    """One picture's routing: couplings and logits (R, I, J), the parents' poses (R, J, D) and lengths (R, J), votes
    (I, J, D)."""

    couplings: Tensor
    logits: Tensor
    poses: Tensor
    lengths: Tensor
    votes: Tensor
    grid: tuple[int, int, int]


def trace(exhibit: Exhibit, ask: Question) -> dict[str, Any]:
    seen = _watch(exhibit, ask)
    scale = _scale(seen.couplings)
    return {
        "iterations": len(seen.couplings),
        "grid": list(seen.grid),
        "couplings": _pack(seen.couplings, scale),
        "offset": scale.offset,
        "scale": scale.size,
        "start": scale.start,
        "entropy": undecided(seen.couplings, seen.logits).tolist(),
        "lengths": seen.lengths.tolist(),
    }


def votes(exhibit: Exhibit, ask: VotesQuestion) -> dict[str, Any]:
    """The votes for one parent in the plane of their first two principal components, and the parent's way in it."""
    j = ask.klass
    check_class(exhibit.model, j)
    seen = _watch(exhibit, ask)
    cloud = seen.votes[:, j].double().numpy()  # (I, D)
    counts = seen.couplings[-1, :, j].double().abs().numpy()  # a vote below zero moves its parent as well
    plane = _plane(cloud, counts * np.linalg.norm(cloud, axis=1))
    scale = _scale(seen.couplings)
    return {
        "points": base64.b64encode(plane.project(cloud).astype("<f4").tobytes()).decode("ascii"),
        "parents": plane.project(seen.poses[:, j].double().numpy()).tolist(),
        "origin": plane.project(np.zeros((1, cloud.shape[1])))[0].tolist(),
        "explained": plane.explained,
        "weights": _pack(seen.couplings[:, :, j], scale),
        "offset": scale.offset,
        "scale": scale.size,
    }


def undecided(couplings: Tensor, logits: Tensor) -> Tensor:
    """Mean entropy of what is shared out, over its largest value: 1 undecided, 0 decided. (R, I, J) -> (R,)

    A child shares itself out among the parents or, with attention, a parent its attention among the children. Couplings
    that share nothing out, because a learned prior was added (self-attention), were a softmax of their logits before.
    """
    among = -2 if _attend(couplings) else -1
    shared = among == -2 or _divide(couplings)
    shares = couplings / couplings.sum(dim=among, keepdim=True).clamp_min(1e-30) if shared else logits.softmax(among)
    entropy = torch.special.entr(shares).sum(dim=among)
    return (entropy / np.log(max(2, couplings.shape[among]))).mean(dim=-1).clamp(0, 1)


class Plane(NamedTuple):
    centre: NDArray[np.float64]  # (D,)
    axes: NDArray[np.float64]  # (D, 2)
    explained: float

    def project(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return (points - self.centre) @ self.axes


def _plane(points: NDArray[np.float64], weights: NDArray[np.float64]) -> Plane:
    """The plane of the two largest weighted principal components. The axes' signs are fixed, so that the picture does
    not flip from one call to the next."""
    total = max(float(weights.sum()), 1e-12)
    centre = weights @ points / total
    away = points - centre
    values, axes = np.linalg.eigh((away * weights[:, None]).T @ away / total)  # ascending
    axes = axes[:, ::-1][:, :2]
    if axes.shape[1] < 2:  # poses of one number
        axes = np.pad(axes, ((0, 0), (0, 1)))
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    spread = max(float(values.sum()), 1e-12)
    return Plane(centre, axes * np.where(signs == 0, 1, signs), float(np.clip(values[-2:].sum() / spread, 0, 1)))


def _watch(exhibit: Exhibit, ask: Question) -> Routing:
    image = to_input(ask.seen, exhibit.model)
    model = reroute(exhibit.model, ask.routing, ask.iterations)
    layer, grid = class_layer(model), grid_of(model)
    assert grid is not None
    heard: list[tuple[Tensor, Tensor | None]] = []
    output = listening(model, heard)(image, trace=True)
    u, act = heard[0]
    cast = layer.votes(u)
    past = output.trace
    assert past is not None
    lengths = length(past.poses[:, 0])  # (R, J)
    if not torch.allclose(lengths[-1], output.lengths[0], atol=1e-4):  # a routing whose presence is not the length
        options = [{"iterations": r + 1} for r in range(len(lengths))] if hasattr(layer.routing, "iterations") else [{}]
        params = dict(layer.routing_params.items())
        weights = None if act is None else act.flatten(1)  # of children on a grid, (B, H, W, T)
        lengths = torch.cat([get(layer.routing, **o)(cast, weights, params=params).act for o in options])
    return Routing(past.couplings[:, 0], past.logits[:, 0], past.poses[:, 0], lengths, cast[0], grid)


class Scale(NamedTuple):
    """Byte b of a coupling means ``offset + size * b / 255``; ``start`` is an equal share, None where there is none."""

    offset: float
    size: float
    start: float | None


def _scale(couplings: Tensor) -> Scale:
    """How couplings (R, I, J) travel.

    Where parents attend to children (attention) the shares of a thousand children sum to 1 and a byte would not show
    them: these are divided by the largest. Couplings that divide a child among its parents stay as they are. Others
    (self-attention with its learned prior) may be below zero: they travel between their least and their largest.
    """
    I, J = couplings.shape[-2:]
    if _attend(couplings):
        return Scale(0.0, max(float(couplings.max()), 1e-12), 1 / I)
    if _divide(couplings):
        return Scale(0.0, 1.0, 1 / J)
    offset = min(0.0, float(couplings.min()))
    return Scale(offset, float(couplings.max()) - offset, None)


def _attend(couplings: Tensor) -> bool:
    """Each parent shares its attention out among the children."""
    return bool(torch.allclose(couplings.sum(dim=-2), torch.ones(()), atol=1e-3))


def _divide(couplings: Tensor) -> bool:
    """Each child shares itself out among the parents, and perhaps an orphan that is not among them."""
    return bool((couplings >= 0).all() and (couplings.sum(dim=-1) <= 1.001).all())


def _pack(couplings: Tensor, scale: Scale) -> str:
    """Couplings as bytes in base64, in their order."""
    shares = (couplings - scale.offset) / max(scale.size, 1e-12)
    return base64.b64encode(shares.mul(255).round().clamp(0, 255).to(torch.uint8).numpy().tobytes()).decode("ascii")
