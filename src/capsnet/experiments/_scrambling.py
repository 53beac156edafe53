"""The measurements of ``scramble``: pictures cut into quarters, scores of networks, ROC curves."""

from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsnet.data import keyed
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.metrics import Measure, auc, wilson_interval
from capsnet.models import Model, Output

THRESHOLD = 0.5  # a capsule as long as this, a class as probable as this, counts as present
DERANGEMENTS = np.array([p for p in permutations(range(4)) if all(p[k] != k for k in range(4))])  # (9, 4)


def scramble_quarters(images: Tensor, indices: np.ndarray, seed: int = 0) -> Tensor:
    """Cut each picture into four quarters and put each in the place of another: the ink stays the same.

    Which of the nine derangements is keyed by the example, not by the batch. Shapes: (B, C, H, W), (B,) -> (B, C, H, W)
    """
    B, C, H, W = images.shape
    if H % 2 or W % 2:
        raise ValueError(f"pictures of {H} x {W} have no four equal quarters: height and width must be even")
    blocks = images.reshape(B, C, 2, H // 2, 2, W // 2).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, 4, C, H/2, W/2)
    way = keyed.integers(seed, 0, indices, 1, "scramble.quarters", 0, len(DERANGEMENTS))[:, 0]  # (B,)
    moved = blocks[torch.arange(B)[:, None], torch.from_numpy(DERANGEMENTS[way])]
    return moved.unflatten(1, (2, 2)).permute(0, 3, 1, 4, 2, 5).reshape(B, C, H, W)


def answers(model: Model, images: Tensor) -> dict[str, list]:
    """For each picture ``label``, ``score`` (longest capsule or highest probability), ``rank`` and ``error``.

    ``rank`` orders pictures as the score would with more digits: the log odds of a probability, the length of a
    capsule. ``error`` is the summed squared difference between the picture and what the longest capsule draws.
    """
    result: dict[str, list[Tensor]] = {"label": [], "score": [], "rank": [], "error": []}
    with evaluating(model):
        for chunk in images.to(device_of(model)).split(250):
            output: Output = model(chunk)
            best = output.lengths.max(dim=1)
            result["label"].append(best.indices)
            result["score"].append(best.values.double())
            result["rank"].append(best.values.double() if output.logits is None else log_odds(output.logits))
            if output.reconstruction is not None:
                result["error"].append((output.reconstruction - chunk).square().flatten(1).sum(dim=1).double())
    joined = {key: torch.cat(parts).cpu().tolist() for key, parts in result.items() if parts}
    return {key: [value if key == "label" else float(f"{value:.7g}") for value in row] for key, row in joined.items()}


def log_odds(logits: Tensor) -> Tensor:
    """log p / (1 - p) of the most probable class, exact where p rounds to 1. Shapes: (B, J) -> (B,)"""
    best, where = logits.double().max(dim=1)
    return best - logits.double().scatter(1, where[:, None], -torch.inf).logsumexp(dim=1)


def summarise(intact: dict[str, list], scrambled: dict[str, list], classes: list[int]) -> dict[str, Any]:
    """Shares that reach the threshold, and how well each score tells intact from scrambled (AUC)."""
    before, after = np.array(intact["score"]), np.array(scrambled["score"])
    same = np.array(scrambled["label"]) == np.array(classes)
    drawn = [[-e for e in one["error"]] for one in (intact, scrambled)] if "error" in intact else None
    return {
        "n": len(after),
        "right": float(np.mean(np.array(intact["label"]) == np.array(classes))),
        "intact": float(np.mean(before >= THRESHOLD)),
        "scrambled": float(np.mean(after >= THRESHOLD)),
        "scrambled as its own class": float(np.mean((after >= THRESHOLD) & same)),
        "median intact": float(np.median(before)),
        "median scrambled": float(np.median(after)),
        "passing at 95": passing(intact["rank"], scrambled["rank"]),
        "auc": separation(intact["rank"], scrambled["rank"]),
        "auc of drawing": separation(*drawn) if drawn else None,
    }


def separation(intact: list[float], scrambled: list[float]) -> float:
    """The chance that an intact picture scores above a scrambled one; 0.5 is chance."""
    area = auc(np.array([*intact, *scrambled]), np.repeat([True, False], [len(intact), len(scrambled)]))
    assert area is not None
    return area


def passing(intact: list[float], scrambled: list[float], keep: float = 0.95) -> float:
    """The share of scrambled pictures above a threshold that ``keep`` of the intact ones reach.

    A fixed threshold does not mean the same for a length and for a probability; this one does.
    """
    false, true = roc(intact, scrambled)
    return float(false[np.argmax(true >= keep)])


def roc(intact: list[float], scrambled: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates from the strictest threshold to the laxest; equal scores fall together.

    Shapes: -> two of (T + 1,) for T different scores, starting at (0, 0)
    """
    levels = np.unique([*intact, *scrambled])[::-1]
    rates = [
        np.array([0.0, *(np.searchsorted(np.sort(-np.array(s)), -levels, "right") / len(s))])
        for s in (scrambled, intact)
    ]
    return rates[0], rates[1]


def share_measure(name: str, shares: list[float], n: int) -> Measure:
    """Shares of n pictures, one per seed, in percent with Wilson's interval."""
    low, high = wilson_interval(round(float(np.mean(shares)) * n), n)
    return Measure(name, [100 * share for share in shares], interval=(100 * low, 100 * high), n=n)


def auc_measure(name: str, areas: list[float], n: int) -> Measure:
    """AUCs of n against n pictures, one per seed, with the interval of Hanley and McNeil (1982)."""
    area = float(np.mean(areas))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (n - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)) / n**2
    reach = 1.96 * max(variance, 0.0) ** 0.5
    return Measure(name, areas, "", interval=(max(0.0, area - reach), min(1.0, area + reach)), n=n)
