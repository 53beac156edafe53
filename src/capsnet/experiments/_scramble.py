"""The measurements of ``scramble`` and ``scramble-faces``: pictures taken apart, and how well a score tells them."""

from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsnet.data import keyed
from capsnet.experiments._report import Measure
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.models import Model, Output

THRESHOLD = 0.5  # a capsule as long or as present as this, a class as probable as this, counts as present
DERANGEMENTS = np.array([p for p in permutations(range(4)) if all(p[k] != k for k in range(4))])  # (9, 4)


def scramble_quarters(images: Tensor, indices: np.ndarray) -> Tensor:
    """Cut each picture into four quarters and put each in the place of another: the ink stays the same.

    Which of the nine derangements is keyed by the example, not by the batch. Shapes: (B, C, H, W), (B,) -> (B, C, H, W)
    """
    B, C, H, W = images.shape
    if H % 2 or W % 2:
        raise ValueError(f"pictures of {H} x {W} have no four equal quarters: height and width must be even")
    blocks = images.reshape(B, C, 2, H // 2, 2, W // 2).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, 4, C, H/2, W/2)
    way = keyed.integers(0, 0, indices, 1, "scramble.quarters", 0, len(DERANGEMENTS))[:, 0]  # (B,)
    moved = blocks[torch.arange(B)[:, None], torch.from_numpy(DERANGEMENTS[way])]
    return moved.unflatten(1, (2, 2)).permute(0, 3, 1, 4, 2, 5).reshape(B, C, H, W)


def measure(model: Model, pictures: dict[str, Tensor], classes: list[int]) -> dict[str, Any]:
    """The answers to both kinds of pictures, and their summary."""
    both = {kind: answers(model, images) for kind, images in pictures.items()}
    return both | {"summary": summarise(**both, classes=classes)}


def answers(model: Model, images: Tensor) -> dict[str, list]:
    """For each picture ``label``, ``score`` (of the longest or most present capsule, or the highest probability),
    ``rank``, ``drawing`` and ``logit``.

    ``rank`` orders pictures as the score would with more digits: the log odds of a probability, the length or presence
    of a capsule. ``drawing`` is the squared difference between the picture and what that capsule draws, negated.
    ``logit`` is the largest logit of a network without capsules, which may tell unknown pictures where the
    probability saturates (Hendrycks et al. 2022).
    """
    parts: dict[str, list[Tensor]] = {"label": [], "score": [], "rank": [], "drawing": [], "logit": []}
    with evaluating(model):
        for chunk in images.to(device_of(model)).split(250):
            output: Output = model(chunk)
            score, label = output.lengths.max(dim=1)
            parts["label"].append(label)
            parts["score"].append(score.double())
            parts["rank"].append(score.double() if output.logits is None else log_odds(output.logits))
            if output.logits is not None:
                parts["logit"].append(output.logits.amax(dim=1).double())
            if output.reconstruction is not None:
                parts["drawing"].append(-(output.reconstruction - chunk).square().flatten(1).sum(dim=1).double())
    return {key: torch.cat(values).cpu().tolist() for key, values in parts.items() if values}


def log_odds(logits: Tensor) -> Tensor:
    """log p / (1 - p) of the most probable class, exact where p rounds to 1. Shapes: (B, J) -> (B,)"""
    best, where = logits.double().max(dim=1)
    return best - logits.double().scatter(1, where[:, None], -torch.inf).logsumexp(dim=1)


def summarise(intact: dict[str, list], scrambled: dict[str, list], classes: list[int]) -> dict[str, Any]:
    """Shares that reach the threshold, and how well each score tells intact from scrambled (AUC)."""
    before, after = np.array(intact["score"]), np.array(scrambled["score"])
    false, true = roc(intact["rank"], scrambled["rank"])
    right, same = (np.array(one["label"]) == np.array(classes) for one in (intact, scrambled))
    present = after >= THRESHOLD
    shares = {"right": right, "intact": before >= THRESHOLD, "scrambled": present, "own class": present & same}
    return (
        {key: float(share.mean()) for key, share in shares.items()}
        | {
            "n": len(after),
            "median intact": float(np.median(before)),
            "median scrambled": float(np.median(after)),
            "passing at 95": float(false[np.argmax(true >= 0.95)]),
            "auc": separation(intact["rank"], scrambled["rank"]),
        }
        | {
            f"auc of {key}": separation(intact[key], scrambled[key]) if key in intact else None
            for key in ("drawing", "logit")
        }
    )


def separation(intact: list[float], scrambled: list[float]) -> float:
    """The chance that an intact picture scores above a scrambled one, the area below the ROC curve; 0.5 is chance."""
    false, true = roc(intact, scrambled)
    return float(np.diff(false) @ (true[1:] + true[:-1]) / 2)


def roc(intact: list[float], scrambled: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates at 0 and at each score, from the strictest to the laxest: two of (T + 1,)."""
    levels = np.unique([*intact, *scrambled])[::-1]
    false, true = (np.searchsorted(np.sort(-np.array(s)), -levels, "right") / len(s) for s in (scrambled, intact))
    return np.append(0.0, false), np.append(0.0, true)


def auc_measure(name: str, areas: list[float], n: int) -> Measure:
    """AUCs of n against n pictures, one per seed, with the interval of Hanley and McNeil (1982)."""
    area = float(np.mean(areas))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (n - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)) / n**2
    reach = 1.96 * max(variance, 0.0) ** 0.5
    return Measure(name, areas, "", interval=(max(0.0, area - reach), min(1.0, area + reach)), n=n)
