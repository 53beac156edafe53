"""Looking into a routing: couplings of each iteration, votes for a parent, and routing of votes in the plane."""

import base64
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet import routing
from capsnet.explorer._answers import check_class
from capsnet.explorer._seen import to_input
from capsnet.explorer._service import ModelEntry
from capsnet.explorer._wire import ToyQuestion, TraceQuestion
from capsnet.models import reroute
from capsnet.routing import Routing, Trace, undecided

Floats: TypeAlias = NDArray[np.float64]


def trace(entry: ModelEntry, ask: TraceQuestion) -> dict[str, Any]:
    """The couplings of each iteration and, if a class is named, the votes for it."""
    if ask.klass is not None:
        check_class(entry.model, ask.klass)
    image = to_input(ask.seen, entry.model)
    model = reroute(entry.model, ask.routing, ask.iterations)
    own, grid = model.class_routing, model.grid
    seen = entry.features.run(model, image, trace=True)[0].trace if own and grid else None
    if own is None or grid is None or seen is None:
        raise ValueError("this model has no layer of class capsules to look into")
    couplings = seen.couplings[:, 0]
    offset, size, start = _scale(couplings, own)
    shares = (couplings - offset) / max(size, 1e-12)
    return {
        "iterations": len(couplings),
        "grid": list(grid),
        "couplings": _packed(shares.mul(255).round().clamp(0, 255).to(torch.uint8).numpy()),
        "offset": offset,
        "scale": size,
        "start": start,
        "entropy": undecided(couplings, seen.logits[:, 0], own.normalised).tolist(),
        "lengths": seen.activations[:, 0].tolist(),
        "votes": None if ask.klass is None else _votes(seen, ask.klass),
        **_contributions(seen),
    }


def _contributions(seen: Trace) -> dict[str, Any]:
    """What each child brings to each parent: see ``routing.contributions``."""
    brought = routing.contributions(seen)[:, 0]  # (R, I, J)
    size = max(float(brought.abs().max()), 1e-12)
    return {"contributions": _packed((brought * (32767 / size)).round().numpy().astype("<i2")), "contribution": size}


def _votes(seen: Trace, j: int) -> dict[str, Any]:
    """The votes for one parent in the plane of their first two principal components, and the parent's path in it."""
    cloud = seen.votes[0, :, j].double().numpy()  # (I, D)
    counts = seen.couplings[-1, 0, :, j].double().abs().numpy()  # a negative vote moves its parent as well
    centre, axes, explained = _plane(cloud, counts * np.linalg.norm(cloud, axis=1))
    return {
        "points": _packed(((cloud - centre) @ axes).astype("<f4")),
        "parents": ((seen.poses[:, 0, j].double().numpy() - centre) @ axes).tolist(),
        "origin": (-centre @ axes).tolist(),
        "explained": explained,
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


def _plane(points: Floats, weights: Floats) -> tuple[Floats, Floats, float]:
    """The plane of the two largest weighted principal components: its centre (D,), its axes (D, 2), and how much of the
    variance it explains. The axes' signs are fixed, so that the picture does not flip from one call to the next."""
    total = max(float(weights.sum()), 1e-12)
    centre = weights @ points / total
    away = points - centre
    values, axes = np.linalg.eigh((away * weights[:, None]).T @ away / total)  # ascending
    axes = axes[:, ::-1][:, :2]
    if axes.shape[1] < 2:  # poses of one number
        axes = np.pad(axes, ((0, 0), (0, 1)))
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    spread = max(float(values.sum()), 1e-12)
    return centre, axes * np.where(signs == 0, 1, signs), float(np.clip(values[-2:].sum() / spread, 0, 1))


def _scale(couplings: Tensor, own: Routing) -> tuple[float, float, float | None]:
    """How couplings (R, I, J) are sent as bytes: offset, size, and an equal share, None where there is none.

    Byte b means ``offset + size * b / 255``. Shares of a thousand children that sum to 1 are too small for a byte: they
    are divided by the largest. Couplings that sum to 1 over the parents stay as they are. Others may be negative: they
    are sent between their least and their largest.
    """
    I, J = couplings.shape[-2:]
    if own.normalised == "children":
        return 0.0, max(float(couplings.max()), 1e-12), 1 / I
    if own.normalised == "parents":
        return 0.0, 1.0, 1 / J
    offset = min(0.0, float(couplings.min()))
    return offset, float(couplings.max()) - offset, None


def _packed(numbers: NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")
