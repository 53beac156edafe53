"""Where the parts of several overlapping wholes are routed: couplings set against who owns the ink."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capsnet.data import Shapes
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import CapsNet

BATCH = 50


class Routed(NamedTuple):
    """What a CapsNet did with some crowded pictures, child by child (I = H' * W' * types)."""

    images: NDArray  # (B, C, H, W)
    couplings: NDArray  # (R, B, I, J)
    presence: NDArray  # (B, I): the children's lengths, or what stands apart from them (squash `unit`)
    owner: NDArray  # (B, I): the object on whose ink a child's receptive field is centred, -1 for none
    classes: NDArray  # (B, K): the objects' classes
    lengths: NDArray  # (B, J)
    grid: tuple[int, int, int]


class Share(NamedTuple):
    """Of the mass of the children on an object, what goes to its own class, to the others present, to absent ones.

    Each (R, B, K), NaN where no child is centred on the object; `others` and `absent` are means over those classes.
    """

    own: NDArray
    others: NDArray
    absent: NDArray


def centres(grid: tuple[int, int, int], kernel_size: int = 9, stride: int = 2) -> tuple[NDArray, NDArray]:
    """The pixels at the middle of the children's receptive fields, in their order (y, x, type).

    Two convolutions without padding: half a kernel each, then a stride. Shapes: -> rows (I,), columns (I,)
    """
    rows, columns, _ = np.indices(grid).reshape(3, -1)
    return kernel_size - 1 + stride * rows, kernel_size - 1 + stride * columns


def route(model: CapsNet, shapes: Shapes, index: NDArray) -> Routed:
    """Forward some pictures with a trace."""
    images, truth = shapes.batch(index).images, shapes.truth(index)
    device = device_of(model)
    couplings, presence, lengths = [], [], []
    with evaluating(model):
        for chunk in images.split(BATCH):
            output = model(chunk.to(device), trace=True)
            assert output.trace is not None
            couplings.append(output.trace.couplings.cpu())
            children, act = model.forward_features(chunk.to(device))
            presence.append((children.norm(dim=-1) if act is None else act).cpu())
            lengths.append(output.lengths.cpu())
    rows, columns = centres(model.grid, model.conv.kernel_size[0])
    return Routed(
        images.numpy(),
        torch.cat(couplings, dim=1).numpy(),
        torch.cat(presence).numpy(),
        truth.owner[:, rows, columns],
        truth.classes,
        torch.cat(lengths).numpy(),
        model.grid,
    )


def coupling_share(couplings: NDArray, presence: NDArray, owner: NDArray, classes: NDArray) -> Share:
    """Where the children on each object send themselves, each counting by its presence.

    Shapes: couplings (R, B, I, J), presence and owner (B, I), classes (B, K) -> see `Share`
    """
    K, J = classes.shape[1], couplings.shape[-1]
    weight = (owner[:, None, :] == np.arange(K)[:, None]) * presence[:, None, :].astype(np.float64)  # (B, K, I)
    total = weight.sum(axis=-1)  # (B, K)
    weight = weight / np.where(total > 0, total, np.nan)[..., None]
    mass = np.einsum("bki,rbij->rbkj", weight, couplings)  # (R, B, K, J)
    mine = classes[:, :, None] == np.arange(J)  # (B, K, J)
    present = mine.any(axis=1)[:, None, :]  # (B, 1, J)
    return Share(*(_mean(mass, which) for which in (mine, present & ~mine, ~present & ~mine)))


def _mean(mass: NDArray, which: NDArray) -> NDArray:
    """Mean over the chosen classes, NaN where there are none. Shapes: (R, B, K, J), (B, K, J) -> (R, B, K)"""
    count = which.sum(axis=-1)
    return (mass * which).sum(axis=-1) / np.where(count > 0, count, np.nan)


def averaged(share: NDArray) -> tuple[list[float], list[float]]:
    """Mean over pictures and half the width of its 95 % interval, per iteration. Shapes: (R, B, K) -> two of R

    Objects of one picture are averaged first: they are not independent of each other.
    """
    seen = np.isfinite(share)
    count = seen.sum(axis=-1)  # (R, B)
    per_picture = np.where(seen, share, 0).sum(axis=-1) / np.where(count > 0, count, np.nan)
    kept = per_picture[:, np.isfinite(per_picture).all(axis=0)]
    if not kept.shape[1]:
        return [float("nan")] * len(share), [0.0] * len(share)
    spread = kept.std(axis=1, ddof=1) if kept.shape[1] > 1 else np.zeros(len(kept))
    return kept.mean(axis=1).tolist(), (1.96 * spread / kept.shape[1] ** 0.5).tolist()


def coupling_map(couplings: NDArray, presence: NDArray, grid: tuple[int, int, int]) -> tuple[NDArray, NDArray]:
    """For one picture and iteration: each position's share per class, and how present its children are.

    Shapes: couplings (I, J), presence (I,) -> shares (H', W', J), presence (H', W')
    """
    c = couplings.reshape(*grid, -1)
    p = presence.reshape(grid)
    here = p.sum(axis=-1)
    return (c * p[..., None]).sum(axis=2) / np.maximum(here, 1e-12)[..., None], here
