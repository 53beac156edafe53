"""What ``binding`` is made of: scores of a method, and groupings of pixels by methods that learn nothing."""

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from capsnet import oscillators
from capsnet.experiments._report import Measure
from capsnet.inference.binding import Grouping, Scenes, Scores, by_phase, centres_of, distances
from capsnet.metrics import mean_interval
from capsnet.models.akorn import enlarged

LATTICE = {"n": 4, "steps": 60, "gamma": 0.5}  # of the control without any learning


class Result(NamedTuple):
    """Scores of one method on one set: a list of values per picture for each seed."""

    runs: list[Scores]

    def measure(self, name: str, kind: int = 0) -> Measure:
        """Mean over the pictures for each seed; the interval is that of the mean over pictures."""
        columns = [run[kind] for run in self.runs]
        pictures = [fmean(values) for values in zip(*columns, strict=True)]
        means = [fmean(values) for values in columns]
        return Measure(name, means, "", interval=mean_interval(pictures), n=len(pictures))


def by_position(scenes: Scenes) -> Grouping:
    """k-means of the places of the inked pixels: what is near belongs together."""
    H, W = scenes.images.shape[2:]
    places = np.argwhere(np.ones((H, W))).astype(float)  # (H W, 2)
    labels = []
    for ink in scenes.ink.flatten(1).numpy():
        centres = centres_of(places[ink], scenes.objects)
        labels.append(distances(places, centres).argmin(axis=1).reshape(H, W) + 1)
    return Grouping(torch.from_numpy(np.stack(labels)), ~scenes.ink)


def by_component(scenes: Scenes) -> Grouping:
    """What hangs together, diagonals included, belongs together."""
    from scipy.ndimage import label

    found = [cast("tuple[np.ndarray, int]", label(ink, structure=np.ones((3, 3))))[0] for ink in scenes.ink.numpy()]
    return Grouping(torch.from_numpy(np.stack(found)).long(), ~scenes.ink)


def truth_of_squares(scenes: Scenes, side: int) -> Grouping:
    """The owner of most of each ``side`` x ``side`` pixels: the best that phases of such squares can say."""
    H, W = scenes.images.shape[2:]
    own = torch.stack([scenes.owners == k + 1 for k in range(scenes.objects)], dim=1).float()  # (B, K, H, W)
    most = torch.nn.functional.avg_pool2d(own, side, ceil_mode=True).argmax(dim=1, keepdim=True)
    return Grouping(enlarged(most, side, H, W)[:, 0] + 1, ~scenes.ink)


def lattice_phases(scenes: Scenes) -> Tensor:
    """Oscillators without any learning: inked pixels pull their eight neighbours. (B, 1, n, H, W)"""
    B, _, H, W = scenes.images.shape
    n, gamma = int(LATTICE["n"]), LATTICE["gamma"]
    x = oscillators.random_phases(B, 1, H, W, n, seed=0).movedim(-1, 2)[:, 0]  # (B, n, H, W)
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
