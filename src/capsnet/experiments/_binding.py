"""Groupings of pixels, by phase and by the controls, and how well they agree with the objects of a picture."""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from capsnet import data, metrics, oscillators
from capsnet.data.generated.outlines import BACKGROUND, INK, OVERLAP
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import BindingModel

STARTS = 5  # of every k-means
LATTICE = {"n": 4, "steps": 60, "gamma": 0.5}  # of the control without any learning


class Scenes(NamedTuple):
    """Pictures, the owner of each of their pixels (see ``data.owners``), and how many objects each has."""

    images: Tensor  # (B, 1, H, W)
    owners: Tensor  # (B, H, W)
    objects: int

    @property
    def ink(self) -> Tensor:
        """Which pixels are to be grouped: (B, H, W)."""
        return self.images[:, 0] >= INK


class Grouping(NamedTuple):
    """Groups 1..K of all pixels, and which pixels count as background. Both (B, H, W)."""

    labels: Tensor
    dark: Tensor


class Scores(NamedTuple):
    """A value per picture: foreground and full adjusted Rand index, and the mean best overlap."""

    fg_ari: list[float]
    ari: list[float]
    overlap: list[float]


def load_scenes(spec: str, split: str, count: int) -> Scenes:
    batch = data.load(spec, split).batch(range(count))
    if batch.sources is None:
        raise ValueError(f"{spec} does not say what its pictures are made of: choose data with several objects")
    alone = batch.sources.images
    return Scenes(batch.images, data.owners(alone), alone.shape[1])


def score(scenes: Scenes, grouping: Grouping) -> Scores:
    """Compare a grouping with the truth; pixels of several objects are left out everywhere.

    The foreground index compares the groups of the objects' pixels. For the other two, what the method takes for
    background is one more group.
    """
    rows = []
    for owner, label, dark in zip(scenes.owners, grouping.labels, grouping.dark, strict=True):
        known = owner != OVERLAP
        truth, whole = owner[known], torch.where(dark, BACKGROUND, label)[known]
        rows.append(
            (
                metrics.adjusted_rand_index(truth, label[known], background=BACKGROUND),
                metrics.adjusted_rand_index(truth, whole),
                metrics.mean_best_overlap(truth, whole, background=BACKGROUND),
            )
        )
    return Scores(*(list(column) for column in zip(*rows, strict=True)))


def by_phase(phases: Tensor, scenes: Scenes, picture: Tensor | None = None) -> Grouping:
    """Group the inked pixels of each picture by phase, (B, C, n, H, W), into as many groups as there are objects.

    Background is what the network draws dark; without its ``picture``, what is dark in the input.
    """
    vectors = phases.flatten(1, 2).movedim(1, -1)  # (B, H, W, C n)
    labels = [_clusters(v, ink, scenes.objects) for v, ink in zip(vectors, scenes.ink, strict=True)]
    drawn = scenes.images if picture is None else picture
    return Grouping(torch.stack(labels), drawn[:, 0] < INK)


def _clusters(vectors: Tensor, ink: Tensor, count: int) -> Tensor:
    found = oscillators.phase_clusters(vectors.flatten(0, 1), count, weights=ink.flatten().float(), starts=STARTS)
    return found.labels.reshape(ink.shape) + 1


def by_network(model: BindingModel, scenes: Scenes, size: int = 50) -> tuple[Tensor, Grouping]:
    """The phases of a network's pixels (B, C, n, H, W), and the grouping by them."""
    with evaluating(model):
        seen = [model.bind(images.to(device_of(model))) for images in scenes.images.split(size)]
    phases = torch.cat([one.phases.cpu() for one in seen])
    drawn = [one.picture.cpu() for one in seen if one.picture is not None]
    return phases, by_phase(phases, scenes, torch.cat(drawn) if drawn else None)


def by_position(scenes: Scenes) -> Grouping:
    """k-means of the places of the inked pixels: what is near belongs together."""
    H, W = scenes.images.shape[2:]
    places = np.argwhere(np.ones((H, W))).astype(float)  # (H W, 2)
    labels = []
    for ink in scenes.ink.flatten(1).numpy():
        fits = [_means(places[ink], scenes.objects, np.random.default_rng(k)) for k in range(STARTS)]
        distances = [np.square(places[:, None] - centres).sum(axis=-1) for centres in fits]
        best = min(distances, key=lambda one: one[ink].min(axis=1).sum())
        labels.append(best.argmin(axis=1).reshape(H, W) + 1)
    return Grouping(torch.from_numpy(np.stack(labels)), ~scenes.ink)


def _means(points: np.ndarray, count: int, rng: np.random.Generator, iterations: int = 30) -> np.ndarray:
    """The centres that k-means finds from a random start. (N, 2) -> (count, 2)"""
    centres = points[rng.choice(len(points), count, replace=False)]
    for _ in range(iterations):
        labels = np.square(points[:, None] - centres).sum(axis=-1).argmin(axis=1)
        mine = [points[labels == k] for k in range(count)]
        centres = np.stack([own.mean(axis=0) if len(own) else old for own, old in zip(mine, centres, strict=True)])
    return centres


def by_component(scenes: Scenes) -> Grouping:
    """What hangs together, diagonals included, belongs together."""
    from scipy.ndimage import label

    found = [cast("tuple[np.ndarray, int]", label(ink, structure=np.ones((3, 3))))[0] for ink in scenes.ink.numpy()]
    return Grouping(torch.from_numpy(np.stack(found)).long(), ~scenes.ink)


def lattice_phases(scenes: Scenes, seed: int = 0) -> Tensor:
    """Oscillators without any learning: inked pixels pull their eight neighbours. (B, 1, n, H, W)"""
    B, _, H, W = scenes.images.shape
    n, gamma = int(LATTICE["n"]), LATTICE["gamma"]
    x = oscillators.random_phases(B, 1, H, W, n, seed=seed).movedim(-1, 2)[:, 0]  # (B, n, H, W)
    ink = scenes.ink.unsqueeze(1).float()
    for _ in range(int(LATTICE["steps"])):
        pull = ink * torch.nn.functional.avg_pool2d(ink * x, 3, 1, 1) * 9  # avg_pool2d: the sum over a window, by 9
        x = oscillators.unit(x + gamma * oscillators.tangent(x, pull, dim=1), dim=1)
    return x.unsqueeze(1)


CONTROLS: dict[str, Callable[[Scenes], Grouping]] = {
    "position k-means": by_position,
    "connected components": by_component,
    "untrained lattice": lambda scenes: by_phase(lattice_phases(scenes), scenes),
}
