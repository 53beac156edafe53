"""Looking into a routing: couplings of each iteration, votes for a parent, and routing of votes in the plane."""

import base64
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet import routing
from capsnet.explorer._answers import check_class
from capsnet.explorer._seen import to_input
from capsnet.explorer._studio import Exhibit
from capsnet.explorer._wire import ToyQuestion, TraceQuestion
from capsnet.models import reroute
from capsnet.routing import Routing, Trace, undecided


def trace(exhibit: Exhibit, ask: TraceQuestion) -> dict[str, Any]:
    """The couplings of each iteration and, if a class is named, the votes for it."""
    if ask.klass is not None:
        check_class(exhibit.model, ask.klass)
    own, seen = _watch(exhibit, ask)
    couplings, scale = seen.couplings[:, 0], _scale(seen.couplings[:, 0], own)
    shares = (couplings - scale.offset) / max(scale.size, 1e-12)
    return {
        "iterations": len(couplings),
        "grid": list(seen.grid or ()),
        "couplings": _packed(shares.mul(255).round().clamp(0, 255).to(torch.uint8).numpy()),
        "offset": scale.offset,
        "scale": scale.size,
        "start": scale.start,
        "entropy": undecided(couplings, seen.logits[:, 0], own.normalised).tolist(),
        "lengths": seen.activations[:, 0].tolist(),
        "votes": None if ask.klass is None else _votes(seen, ask.klass),
    }


def _votes(seen: Trace, j: int) -> dict[str, Any]:
    """The votes for one parent in the plane of their first two principal components, and the parent's path in it."""
    cloud = seen.votes[0, :, j].double().numpy()  # (I, D)
    counts = seen.couplings[-1, 0, :, j].double().abs().numpy()  # a negative vote moves its parent as well
    plane = _plane(cloud, counts * np.linalg.norm(cloud, axis=1))
    return {
        "points": _packed(plane.project(cloud).astype("<f4")),
        "parents": plane.project(seen.poses[:, 0, j].double().numpy()).tolist(),
        "origin": plane.project(np.zeros((1, cloud.shape[1])))[0].tolist(),
        "explained": plane.explained,
    }


def toy(ask: ToyQuestion) -> dict[str, Any]:
    """Any registered routing or form on votes in the plane, iteration by iteration."""
    if len({len(row) for row in ask.votes}) > 1:
        raise ValueError("votes: every child needs a vote for each parent")
    options = {} if ask.iterations is None else {"iterations": ask.iterations}
    chosen = routing.get(ask.routing, **options)
    seen = chosen(torch.tensor(ask.votes, dtype=torch.float64)[None], trace=True).trace
    assert seen is not None
    couplings = seen.couplings[:, 0]
    return {
        "couplings": couplings.tolist(),
        "poses": seen.poses[:, 0].tolist(),
        "presences": seen.activations[:, 0].tolist(),
        "entropy": undecided(couplings, seen.logits[:, 0], chosen.normalised).tolist(),
    }


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


def _watch(exhibit: Exhibit, ask: TraceQuestion) -> tuple[Routing, Trace]:
    """The routing of the class capsules and what it did with one picture."""
    image = to_input(ask.seen, exhibit.model)
    model = reroute(exhibit.model, ask.routing, ask.iterations)
    own = model.class_routing
    seen = None if own is None or model.grid is None else model(image, trace=True).trace
    if own is None or seen is None:
        raise ValueError("this model has no layer of class capsules to look into")
    return own, seen._replace(grid=model.grid)


class Scale(NamedTuple):
    """Byte b of a coupling means ``offset + size * b / 255``; ``start`` is an equal share, None where there is none."""

    offset: float
    size: float
    start: float | None


def _scale(couplings: Tensor, own: Routing) -> Scale:
    """How couplings (R, I, J) are sent as bytes.

    Shares of a thousand children that sum to 1 are too small for a byte: they are divided by the largest. Couplings
    that sum to 1 over the parents stay as they are. Others may be negative: they are sent between their least and their
    largest.
    """
    I, J = couplings.shape[-2:]
    if own.normalised == "children":
        return Scale(0.0, max(float(couplings.max()), 1e-12), 1 / I)
    if own.normalised == "parents":
        return Scale(0.0, 1.0, 1 / J)
    offset = min(0.0, float(couplings.min()))
    return Scale(offset, float(couplings.max()) - offset, None)


def _packed(numbers: NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")
