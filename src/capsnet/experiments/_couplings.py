"""Pictures of several objects: what the children that lie on an object are coupled to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet.data import Shapes
from capsnet.drawing.pictures import Cell, Row, Words, picture_rows
from capsnet.drawing.plots import COLOURS
from capsnet.drawing.style import INK, MUTED, rgb
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import CapsNet, Model


class Crowd(NamedTuple):
    """What a CapsNet did with pictures of several objects, child by child (I = H' * W' * types)."""

    images: NDArray  # (B, C, H, W)
    couplings: NDArray  # (R, B, I, J)
    presence: NDArray  # (B, I): the children's lengths, or their presence where it is a number apart
    owner: NDArray  # (B, I): the object on whose ink a child's receptive field is centred, -1 for none
    classes: NDArray  # (B, K): the objects' classes
    lengths: NDArray  # (B, J)
    centres: NDArray  # (2, I): row and column of the middle of the children's receptive fields


def child_centres(model: Model) -> NDArray:
    """The pixels at the middle of the children's receptive fields, in their order (y, x, type). -> (2, I)"""
    field = model.receptive_field
    assert field is not None
    assert model.grid is not None
    return field.start + (field.size - 1) // 2 + field.stride * np.indices(model.grid).reshape(3, -1)[:2]


def route_crowd(model: CapsNet, shapes: Shapes, index: NDArray) -> Crowd:
    """Forward some pictures with a trace."""
    images, truth, device = shapes.batch(index).images, shapes.truth(index), device_of(model)
    couplings, presence, lengths = [], [], []
    with evaluating(model):
        for chunk in images.to(device).split(50):
            output = model(chunk, trace=True)
            couplings.append(output.trace.couplings.cpu())
            children, act = model.forward_features(chunk)
            presence.append((children.norm(dim=-1) if act is None else act).cpu())
            lengths.append(output.lengths.cpu())
    centres = child_centres(model)
    joined = torch.cat(couplings, dim=1), torch.cat(presence), torch.cat(lengths)
    c, p, v = (values.numpy() for values in joined)
    return Crowd(images.numpy(), c, p, truth.owner[:, centres[0], centres[1]], truth.classes, v, centres)


def coupling_share(couplings: NDArray, presence: NDArray, owner: NDArray, classes: NDArray) -> dict[str, NDArray]:
    """Mean coupling of the children on each object, weighted by presence: to its own class, to the other classes that
    are present (``others``), to those that are ``absent``. NaN where no child is centred on the object.

    Shapes: couplings (R, B, I, J), presence and owner (B, I), classes (B, K) -> each (R, B, K)
    """
    K, J = classes.shape[1], couplings.shape[-1]
    weight = (owner[:, None, :] == np.arange(K)[:, None]) * presence[:, None, :].astype(np.float64)  # (B, K, I)
    total = weight.sum(axis=-1, keepdims=True)
    mass = np.einsum("bki,rbij->rbkj", weight / np.where(total > 0, total, np.nan), couplings)  # (R, B, K, J)
    mine = classes[:, :, None] == np.arange(J)  # (B, K, J)
    present = mine.any(axis=1, keepdims=True)
    groups = {"own": mine, "others": present & ~mine, "absent": np.broadcast_to(~present, mine.shape)}
    counts = {name: np.where(which.any(axis=-1), which.sum(axis=-1), np.nan) for name, which in groups.items()}
    return {name: (mass * which).sum(axis=-1) / counts[name] for name, which in groups.items()}


def averaged(share: NDArray) -> tuple[list[float], list[float]]:
    """Mean over pictures and half the width of its 95 % interval, per iteration. Shapes: (R, B, K) -> two of R

    Objects of one picture are averaged first: they are not independent of each other.
    """
    count = np.isfinite(share).sum(axis=-1)  # (R, B)
    means = np.nansum(share, axis=-1) / np.where(count > 0, count, np.nan)
    means = means[:, np.isfinite(means).all(axis=0)]
    if not means.shape[1]:
        return [float("nan")] * len(share), [0.0] * len(share)
    spread = means.std(axis=1, ddof=1) if means.shape[1] > 1 else np.zeros(len(means))
    return means.mean(axis=1).tolist(), (1.96 * spread / means.shape[1] ** 0.5).tolist()


def shares(crowd: Crowd) -> dict[str, Any]:
    """What children on an object are coupled to, per iteration, with the half-widths of the intervals."""
    share = coupling_share(crowd.couplings, crowd.presence, crowd.owner, crowd.classes)
    ahead = share["own"] - share["others"]
    result: dict[str, Any] = {"chance": 1 / crowd.couplings.shape[-1], "pictures": len(crowd.images)}
    for name, values in (share | {"own minus others": ahead}).items():
        result[name], result[f"{name} interval"] = averaged(values)
    result["children on a whole"] = float(np.mean(crowd.owner >= 0))
    ahead = ahead[:, np.isfinite(share["own"]).all(axis=0)]  # (R, objects)
    result["own above other"] = np.where(abs(ahead) < 1e-6, 0.5, ahead > 0).mean(axis=1).tolist()
    return result


def coupling_pictures(path: Path, crowd: Crowd, names: Sequence[str]) -> Path:
    """A row per class, a column per picture: what its children see, coloured by their coupling, over the picture."""
    (B, _, H, W), J = crowd.images.shape, crowd.couplings.shape[-1]
    rows_of, columns_of = (np.unique(axis) for axis in crowd.centres)  # of the children's grid, in pixels
    presence = crowd.presence.reshape(B, len(rows_of), len(columns_of), -1)  # (B, H', W', types)
    mass = (crowd.couplings[-1].reshape(*presence.shape, J) * presence[..., None]).sum(axis=3)  # (B, H', W', J)
    present = presence.sum(axis=3, keepdims=True)
    above = np.clip(mass / np.maximum(present, 1e-12) - 1 / J, 0, None)
    strength = np.zeros((B, H, W, J))
    strength[:, rows_of[:, None], columns_of] = above / above.max() * present / present.max(axis=(1, 2), keepdims=True)
    for axis in (1, 2):  # a child's square is as wide as the stride
        strength = np.maximum(strength, np.roll(strength, 1, axis))
    rows = [Row([Cell(image) for image in crowd.images], "picture")]
    for j, name in enumerate(names):
        cells = []
        for n, image in enumerate(crowd.images):
            present = j in crowd.classes[n]
            words = f"{crowd.lengths[n, j]:.2f}" if present else f"absent, {crowd.lengths[n, j]:.2f}"
            tinted = (1 - 0.28 * image) * (1 - strength[n, ..., j]) + rgb(COLOURS[j])[:, None, None] * strength[
                n, ..., j
            ]
            words = Words(words, INK if present else MUTED, present)
            cells.append(Cell(tinted, [words], COLOURS[j] if present else None))
        rows.append(Row(cells, f"to the\n{name}"))
    note = f"coupling above an even split, last iteration (full colour: {100 * above.max():.0f} points above it), "
    note += "times the presence of the children; number: the capsule's length"
    return picture_rows(path, rows, "Which parts go to which whole", note, size=240, gap=12)
