"""Do couplings decide, and rightly? The share of the children on an object that goes to that object's capsule.

Counted are the children that lie on one object (``models.child_owners``). Chance is one over the number of capsules.

Two shares are counted, both weighted by the children's presences: of the couplings (``own``), and of the children whose
*largest* coupling is the one to their object's capsule (``first``), however small its lead is.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsnet.data import Batch, Dataset
from capsnet.inference.prediction import evaluating
from capsnet.layers.capsules import presences
from capsnet.models import Model, child_centres, child_owners
from capsnet.routing import divided, undecided

CHUNK = 50  # pictures with a trace at a time
BLACK = 0.1  # up to here the ground of a picture is black, and ink can be told from it


class Traced(NamedTuple):
    """What a network did with some pictures, child by child."""

    couplings: NDArray  # (R, B, I, J)
    entropy: NDArray  # (R, B): of a child's couplings, 1 undecided, 0 decided
    presence: NDArray  # (B, I): the children's lengths, or their presence where it is a number apart
    lengths: NDArray  # (B, J)


def routes_children(model: Model) -> bool:
    """Whether the children of the class capsules lie in the image and each goes to all class capsules."""
    return model.class_routing is not None and model.grid is not None and model.receptive_field is not None


def traced(model: Model, images: Tensor) -> Traced:
    """Forward pictures (B, C, H, W) with a trace."""
    routing, parts = model.class_routing, []
    assert routing is not None
    with evaluating(model):
        for chunk in images.to(next(model.parameters()).device).split(CHUNK):
            output, presence = model(chunk, trace=True), presences(model.forward_features(chunk))
            entropy = undecided(output.trace.couplings, output.trace.logits, routing.normalised)
            per_child = divided(output.trace, routing).flatten(2, -2)
            parts.append((per_child, entropy, presence.flatten(1)[None], output.lengths[None]))
    couplings, entropy, presence, lengths = (
        torch.cat(part, dim=1).cpu().double().numpy() for part in zip(*parts, strict=True)
    )
    return Traced(couplings, entropy, presence[0], lengths[0])


def objects(batch: Batch) -> tuple[NDArray, NDArray]:
    """Each object alone and its class: (B, K, H, W), (B, K). A picture of one object is that object."""
    if batch.sources is not None:
        return batch.sources.images.amax(dim=2).numpy(), batch.sources.classes.numpy()
    return batch.images.amax(dim=1, keepdim=True).numpy(), batch.targets[:, None].numpy()


def on_black(images: Tensor) -> bool:
    """Whether most pixels at the border of pictures (B, C, H, W) are black."""
    rows, columns = images[:, :, [0, -1]].flatten(), images[:, :, :, [0, -1]].flatten()
    return float(torch.cat([rows, columns]).median()) <= BLACK


def coupling_share(couplings: NDArray, presence: NDArray, owner: NDArray, classes: NDArray) -> dict[str, NDArray]:
    """Mean coupling of the children on each object, weighted by presence: to its own class, to the other classes that
    are present (``others``), to those that are ``absent``. NaN where no child lies on the object.

    Shapes: couplings (R, B, I, J), presence and owner (B, I), classes (B, K) -> each (R, B, K)
    """
    K, J = classes.shape[1], couplings.shape[-1]
    weight = (owner[:, None, :] == np.arange(K)[:, None]) * presence[:, None, :].astype(np.float64)  # (B, K, I)
    total = weight.sum(axis=-1, keepdims=True)
    mass = np.einsum("bki,rbij->rbkj", weight / np.where(total > 0, total, np.nan), couplings)  # (R, B, K, J)
    mine = classes[:, :, None] == np.arange(J)  # (B, K, J)
    present = mine.any(axis=1, keepdims=True)
    groups = {"own": mine, "others": present & ~mine, "absent": ~present}  # each (B, K or 1, J)
    counts = {name: np.where(which.any(axis=-1), which.sum(axis=-1), np.nan) for name, which in groups.items()}
    return {name: (mass * which).sum(axis=-1) / counts[name] for name, which in groups.items()}


def first_choice(couplings: NDArray) -> NDArray:
    """1 for each child's largest coupling, 0 for the others; equal ones share it. Shapes: (..., J) -> (..., J)"""
    largest = couplings >= couplings.max(axis=-1, keepdims=True) * (1 - 1e-6)
    return largest / largest.sum(axis=-1, keepdims=True)


def averaged(share: NDArray) -> tuple[list[float], list[float]]:
    """Mean over pictures and half the width of its 95 % interval, per iteration. Shapes: (R, B, K) -> two of R

    Objects of one picture are averaged first: they are not independent of each other.
    """
    means = np.nanmean(share[:, np.isfinite(share).any(axis=-1).all(axis=0)], axis=-1)  # (R, pictures)
    return means.mean(axis=1).tolist(), half_width(means).tolist()


def half_width(values: NDArray) -> NDArray:
    """Half of the 95 % interval of the mean of (..., n) values; 0 for a single value."""
    n = values.shape[-1]
    return 1.96 * values.std(axis=-1, ddof=int(n > 1)) / n**0.5


def coupling_shares(model: Model, dataset: Dataset, count: int = 2000) -> dict[str, Any] | None:
    """Entropy and shares of each iteration, with the half-widths of their intervals, on the first ``count`` pictures.

    None where the children do not lie in the picture, or where it is not known which ink belongs to which object:
    colour pictures, photographs (whose ground is not black), and several objects that are not given separately.
    """
    if not routes_children(model) or dataset.channels != 1:
        return None
    batch = dataset.batch(range(min(count, len(dataset))))
    if batch.sources is None and (batch.targets.ndim > 1 or not on_black(batch.images)):
        return None
    seen, (alone, classes) = traced(model, batch.images), objects(batch)
    field = model.receptive_field
    assert field is not None
    owner = child_owners(torch.from_numpy(alone), child_centres(model), field.stride).numpy()
    if not (owner >= 0).any():
        return None
    J = seen.couplings.shape[-1]
    result: dict[str, Any] = {"chance": 1 / J, "pictures": len(owner), "counted": float((owner >= 0).mean())}
    shares = coupling_share(seen.couplings, seen.presence, owner, classes)
    shares = {"own": shares["own"], "others": shares["others"]}
    shares["first"] = coupling_share(first_choice(seen.couplings), seen.presence, owner, classes)["own"]
    for name, values in shares.items():
        if np.isfinite(values).any():
            result[name], result[f"{name} interval"] = averaged(values)
    return result | {
        "entropy": seen.entropy.mean(axis=1).tolist(),
        "entropy interval": half_width(seen.entropy).tolist(),
    }
