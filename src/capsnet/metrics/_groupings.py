"""How well a grouping of pixels fits the objects: adjusted Rand index, mean best overlap."""

import numpy as np

from capsnet.metrics._arrays import ArrayLike, as_array


def adjusted_rand_index(truth: ArrayLike, predicted: ArrayLike, background: int | None = None) -> float:
    """How far two groupings agree, corrected for chance: 1 equal up to the names of groups, about 0 at random.

    Hubert, Arabie 1985. Elements of the true group ``background`` are left out, as in the foreground index (FG-ARI) of
    object discovery. If both groupings are trivial (one group, or every element its own) it is 1.
    """
    table = _contingency(truth, predicted, background)
    pairs = (table * (table - 1) / 2).sum()
    rows, columns = ((sums * (sums - 1) / 2).sum() for sums in (table.sum(axis=1), table.sum(axis=0)))
    n = table.sum()
    expected, most = rows * columns / max(n * (n - 1) / 2, 1), (rows + columns) / 2
    return 1.0 if most == expected else float((pairs - expected) / (most - expected))


def mean_best_overlap(truth: ArrayLike, predicted: ArrayLike, background: int | None = None) -> float:
    """For each true group the largest intersection over union with a predicted one, averaged over the true groups.

    The true group ``background`` is not averaged, but its elements count in the unions.
    """
    table = _contingency(truth, predicted)
    union = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True) - table
    best = (table / union).max(axis=1)
    kept = best[np.unique(as_array(truth)) != background] if background is not None else best
    if not len(kept):
        raise ValueError("there is no group besides the background")
    return float(kept.mean())


def _contingency(truth: ArrayLike, predicted: ArrayLike, background: int | None = None) -> np.ndarray:
    """How many elements each pair of a true and a predicted group shares: (true groups, predicted groups)."""
    a, b = as_array(truth).reshape(-1), as_array(predicted).reshape(-1)
    if a.shape != b.shape:
        raise ValueError(f"expected as many predicted labels as true ones, {a.size}, got {b.size}")
    if background is not None:
        a, b = a[a != background], b[a != background]
    if not a.size:
        raise ValueError("there are no elements to compare")
    (_, rows), (_, columns) = (np.unique(labels, return_inverse=True) for labels in (a, b))
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    return table
