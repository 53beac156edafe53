"""Groups of pixels by the phases of a network, and how well they agree with the objects of a picture."""

from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsnet import data, metrics, oscillators
from capsnet.data.generated.outlines import BACKGROUND, INK, OVERLAP
from capsnet.inference.prediction import evaluating
from capsnet.models import BindingModel

STARTS = 5  # of every k-means
FAINT = 0.1  # vectors that are not longer have no phase, where background is to be found: as published


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
    """Groups 1..K of all pixels, and which pixels count as background; both (B, H, W).

    ``found`` are groups of a method that is not told which pixels are inked, so that background is one of K + 1 groups;
    None where that makes no difference.
    """

    labels: Tensor
    dark: Tensor
    found: Tensor | None = None


class Scores(NamedTuple):
    """A value per picture: the adjusted Rand index of objects, of objects with background to be found and with the
    background as an object, and the mean best overlap."""

    fg_ari: list[float]
    found: list[float]
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

    The foreground index compares the groups of the objects' pixels, and so does the second one, for ``found``. For the
    other two, what the method takes for background is one more group.
    """
    rows = []
    all_found = grouping.labels if grouping.found is None else grouping.found
    for owner, label, dark, found in zip(scenes.owners, grouping.labels, grouping.dark, all_found, strict=True):
        known = owner != OVERLAP
        truth, whole = owner[known], torch.where(dark, BACKGROUND, label)[known]
        rows.append(
            (
                metrics.adjusted_rand_index(truth, label[known], background=BACKGROUND),
                metrics.adjusted_rand_index(truth, found[known], background=BACKGROUND),
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


def find_groups(phases: Tensor, lengths: Tensor | None, scenes: Scenes) -> Tensor:
    """Groups of all pixels as in the papers: background is a group to be found, overlaps are not grouped (B, H, W).

    k-means of the vectors with one group more than there are objects; faint vectors are 0. Löwe et al. (2306.00600):
    ``magnitude_mask_threshold`` and ``mask_overlap`` of their code. Miyato et al. have no faint vectors.
    """
    if lengths is not None:
        phases = phases * (lengths > FAINT).unsqueeze(2)
    vectors = phases.flatten(1, 2).movedim(1, -1).double().numpy()  # (B, H, W, C n)
    labels = torch.zeros_like(scenes.owners)
    for label, vector, owner in zip(labels, vectors, scenes.owners, strict=True):
        known = owner != OVERLAP
        label[known] = torch.from_numpy(nearest(vector[known.numpy()], scenes.objects + 1)) + 1
    return labels


def by_network(model: BindingModel, scenes: Scenes) -> tuple[Tensor, Grouping]:
    """The phases of a network's pixels (B, C, n, H, W), and the grouping by them."""
    with evaluating(model):
        seen = [model.bind(images.to(next(model.parameters()).device)) for images in scenes.images.split(50)]
    phases = torch.cat([one.phases.cpu() for one in seen])
    drawn = [one.picture.cpu() for one in seen if one.picture is not None]
    lengths = [one.lengths.cpu() for one in seen if one.lengths is not None]
    grouping = by_phase(phases, scenes, torch.cat(drawn) if drawn else None)
    return phases, grouping._replace(found=find_groups(phases, torch.cat(lengths) if lengths else None, scenes))


def nearest(points: np.ndarray, count: int) -> np.ndarray:
    """The groups 0..count - 1 that k-means finds. (N, n) -> (N,)"""
    return distances(points, centres_of(points, count)).argmin(axis=1)


def centres_of(points: np.ndarray, count: int) -> np.ndarray:
    """The centres of the best of some starts of k-means. (N, n) -> (count, n)"""
    fits = [_means(points, count, np.random.default_rng(k)) for k in range(STARTS)]
    return min(fits, key=lambda centres: distances(points, centres).min(axis=1).sum())


def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distances. (N, n), (count, n) -> (N, count)"""
    square = np.square(points).sum(axis=1)[:, None] - 2 * points @ centres.T + np.square(centres).sum(axis=1)
    return square.clip(min=0)


def _means(points: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The centres that k-means finds from points at random, each far from those before (k-means++)."""
    centres = points[rng.integers(len(points))][None]
    while len(centres) < count:
        chance = distances(points, centres).min(axis=1)
        total = chance.sum()
        pick = rng.choice(len(points), p=chance / total if total > 0 else None)
        centres = np.concatenate([centres, points[pick][None]])
    for _ in range(30):
        labels = distances(points, centres).argmin(axis=1)
        mine = [points[labels == k] for k in range(count)]
        moved = np.stack([own.mean(axis=0) if len(own) else old for own, old in zip(mine, centres, strict=True)])
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def binding_scores(model: BindingModel, dataset: data.Dataset, count: int = 2000) -> dict[str, Any] | None:
    """The scores of ``Scores`` by the phases of a network, each with its interval, on the first ``count`` pictures.

    None where it is not known which ink belongs to which object: data without the objects alone.
    """
    batch = dataset.batch(range(min(count, len(dataset))))
    if batch.sources is None:
        return None
    scenes = Scenes(batch.images, data.owners(batch.sources.images), batch.sources.images.shape[1])
    scores = score(scenes, by_network(model, scenes)[1])
    result: dict[str, Any] = {"pictures": len(batch.images)}
    for name, values in scores._asdict().items():
        result[name] = {"value": fmean(values), "interval": metrics.mean_interval(values)}
    return result
