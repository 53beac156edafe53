"""Inverted dot-product attention in plain loops, for ONE example: in one layer, and concurrently in several.

Votes are a list of (child i, parent j, vector): dense and convolutional layers differ only in which pairs there are.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tests.reference.sabour2017 import softmax
from tests.reference.unrouted import standardise


class Capsules(NamedTuple):
    poses: list
    act: list
    couplings: Sequence[float] = ()  # one for each vote


def step(votes, act, params, start):
    """One iteration from the parents' poses ``start``."""
    D = len(start[0])
    couplings = [0.0] * len(votes)
    for child in {i for i, _, _ in votes}:
        mine = [n for n, (i, _, _) in enumerate(votes) if i == child]
        logits = [math.fsum(x * y for x, y in zip(votes[n][2], start[votes[n][1]], strict=True)) for n in mine]
        for n, coupling in zip(mine, softmax([logit / math.sqrt(D) for logit in logits]), strict=True):
            couplings[n] = coupling
    totals = [[0.0] * D for _ in start]
    for coupling, (i, j, vote) in zip(couplings, votes, strict=True):
        for d in range(D):
            totals[j][d] += coupling * act[i] * vote[d]
    poses, presences = [], []
    for total in totals:
        pose = [x * (1 + params["gain"][d]) + params["shift"][d] for d, x in enumerate(standardise(total))]
        readout = math.fsum(x * w for x, w in zip(pose, params["readout"], strict=True)) + params["readout_bias"][0]
        poses.append(pose)
        presences.append(1 / (1 + math.exp(-readout)))
    return Capsules(poses, presences, couplings)


def sequential(votes, act, params, parents, iterations):
    """All iterations of one layer with ``parents`` capsules: a list of their results."""
    results = []
    pose = [[0.0] * len(votes[0][2])] * parents
    for _ in range(iterations):
        results.append(step(votes, act, params, pose))
        pose = results[-1].poses
    return results


def concurrent(layers, children, iterations):
    """All layers in every iteration. A layer is (function from poses to votes, number of parents, params).

    Returns the capsules of each layer after each iteration.
    """
    values = [children]
    for votes, parents, params in layers:
        zeros = [[0.0] * len(children.poses[0])] * parents
        values.append(step(votes(values[-1].poses), values[-1].act, params, zeros))
    history = [values]
    for _ in range(iterations - 1):
        before = history[-1]
        after = [children]
        for n, (votes, _, params) in enumerate(layers):
            after.append(step(votes(before[n].poses), before[n].act, params, before[n + 1].poses))
        history.append(after)
    return history


def transformed(pose, weight):
    """The product of a 4x4 pose, row by row, and a 4x4 matrix, row by row."""
    return [sum(pose[4 * r + m] * weight[m][c] for m in range(4)) for r in range(4) for c in range(4)]


def window_votes(weight, grid, kernel, stride):
    """Votes of a grid (H, W, T) of matrix capsules for parents that see K x K windows."""
    H, W, T = grid
    J = len(weight[0])
    down, right = (H - kernel) // stride + 1, (W - kernel) // stride + 1

    def votes(poses):
        made = []
        for y in range(down):
            for x in range(right):
                for dy in range(kernel):
                    for dx in range(kernel):
                        for t in range(T):
                            child = ((y * stride + dy) * W + x * stride + dx) * T + t
                            slot = (dy * kernel + dx) * T + t
                            for j in range(J):
                                vote = transformed(poses[child], weight[slot][j])
                                made.append((child, (y * right + x) * J + j, vote))
        return made

    return votes, (down, right, J)


def class_votes(weight, grid):
    """Votes of a grid of matrix capsules for the classes: the cell's centre is added to the right-hand column."""
    H, W, T = grid

    def votes(poses):
        made = []
        for y in range(H):
            for x in range(W):
                for t in range(T):
                    child = (y * W + x) * T + t
                    for j in range(len(weight[t])):
                        vote = transformed(poses[child], weight[t][j])
                        vote[3] += (y + 0.5) / H
                        vote[7] += (x + 0.5) / W
                        made.append((child, j, vote))
        return made

    return votes
