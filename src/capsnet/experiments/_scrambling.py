"""Pictures with their parts in the wrong places, and how sure a network is of them."""

from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capsnet.data import keyed
from capsnet.experiments.lab import device_of
from capsnet.inference import evaluating
from capsnet.metrics import auc, wilson_interval
from capsnet.models import Model, Output

THRESHOLD = 0.5  # a capsule longer than this, a class more probable than this, is said to be there
DERANGEMENTS = np.array([p for p in permutations(range(4)) if all(p[k] != k for k in range(4))])  # (9, 4)
BATCH = 250


def scramble_quarters(images: Tensor, indices: np.ndarray, seed: int = 0) -> Tensor:
    """Cut each picture into its four quarters and put every one where another was.

    Which of the nine ways without a quarter in place, is keyed by the example: it does not depend on the batch. The ink
    stays what it was, to the pixel. Shapes: (B, C, H, W), (B,) -> (B, C, H, W)
    """
    B, C, H, W = images.shape
    if H % 2 or W % 2:
        raise ValueError(f"pictures of {H} x {W} have no four equal quarters: height and width must be even")
    blocks = images.reshape(B, C, 2, H // 2, 2, W // 2).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # (B, 4, C, H/2, W/2)
    way = keyed.integers(seed, 0, indices, 1, "scramble.quarters", 0, len(DERANGEMENTS))[:, 0]  # (B,)
    moved = blocks[torch.arange(B)[:, None], torch.from_numpy(DERANGEMENTS[way])]
    return moved.unflatten(1, (2, 2)).permute(0, 3, 1, 4, 2, 5).reshape(B, C, H, W)


def answers(model: Model, images: Tensor) -> dict[str, list]:
    """What a model says of each picture: `label`, `score` (longest capsule or highest probability), `rank`, `error`.

    Probabilities of a confident CNN all round to 1. Its `rank` is therefore the log-odds of the class it names, which
    orders pictures as the probability would if that had more digits; a capsule's is its length. `error` is the
    summed squared difference between the picture and what the longest capsule draws, where there is a decoder.
    """
    device = device_of(model)
    found: dict[str, list[Tensor]] = {"label": [], "score": [], "rank": [], "error": []}
    with evaluating(model):
        for chunk in images.split(BATCH):
            output: Output = model(chunk.to(device))
            best = output.lengths.max(dim=1)
            found["label"].append(best.indices)
            found["score"].append(best.values.double())
            found["rank"].append(best.values.double() if output.logits is None else log_odds(output.logits))
            if output.reconstruction is not None:
                squared = (output.reconstruction.cpu() - chunk).square()
                found["error"].append(squared.flatten(1).sum(dim=1).double())
    joined = {key: torch.cat(parts).cpu().tolist() for key, parts in found.items() if parts}
    return {key: [value if key == "label" else float(f"{value:.7g}") for value in row] for key, row in joined.items()}


def log_odds(logits: Tensor) -> Tensor:
    """log p / (1 - p) of the most probable class, exact where p rounds to 1. Shapes: (B, J) -> (B,)"""
    best, where = logits.double().max(dim=1)
    others = logits.double().scatter(1, where[:, None], -torch.inf)
    return best - others.logsumexp(dim=1)


def summarise(intact: dict[str, list], scrambled: dict[str, list], classes: list[int]) -> dict[str, Any]:
    """Shares that are at the threshold or above, and how well each score tells intact from scrambled (AUC)."""
    score = np.array(scrambled["score"])
    same = np.array(scrambled["label"]) == np.array(classes)
    return {
        "n": len(score),
        "right": float(np.mean(np.array(intact["label"]) == np.array(classes))),
        "intact": float(np.mean(np.array(intact["score"]) >= THRESHOLD)),
        "scrambled": float(np.mean(score >= THRESHOLD)),
        "scrambled as its own class": float(np.mean((score >= THRESHOLD) & same)),
        "median intact": float(np.median(intact["score"])),
        "median scrambled": float(np.median(score)),
        "passing at 95": passing(intact["rank"], scrambled["rank"]),
        "auc": separation(intact["rank"], scrambled["rank"]),
        "auc of drawing": separation([-e for e in intact["error"]], [-e for e in scrambled["error"]])
        if "error" in intact
        else None,
    }


def separation(intact: list[float], scrambled: list[float]) -> float:
    """The chance that an intact picture scores above a scrambled one; 0.5 is a coin."""
    area = auc(np.array([*intact, *scrambled]), np.repeat([True, False], [len(intact), len(scrambled)]))
    assert area is not None
    return area


def passing(intact: list[float], scrambled: list[float], keep: float = 0.95) -> float:
    """The share of scrambled pictures that pass a threshold which `keep` of the intact ones pass.

    No fixed threshold means the same for a length and for a probability; this one is fair to both.
    """
    false, true = roc(intact, scrambled)
    return float(false[np.argmax(true >= keep)])


def roc(intact: list[float], scrambled: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates from the strictest threshold to the laxest; equal scores fall together.

    Shapes: -> two of (T + 1,) for T different scores, starting at (0, 0)
    """
    levels, group = np.unique([*intact, *scrambled], return_inverse=True)
    rates = []
    for part in (group.reshape(-1)[len(intact) :], group.reshape(-1)[: len(intact)]):
        counts = np.bincount(part, minlength=len(levels))[::-1]
        rates.append(np.concatenate([[0.0], np.cumsum(counts) / len(part)]))
    return rates[0], rates[1]


def share_interval(share: float, n: int) -> tuple[float, float]:
    """95 % interval of a share of n pictures, in percent."""
    low, high = wilson_interval(round(share * n), n)
    return 100 * low, 100 * high


def auc_interval(area: float, n: int) -> tuple[float, float]:
    """95 % interval of an AUC of n against n pictures (Hanley and McNeil 1982)."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (n - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)) / n**2
    reach = 1.96 * max(variance, 0.0) ** 0.5
    return max(0.0, area - reach), min(1.0, area + reach)
