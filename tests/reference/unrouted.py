"""Homogeneous vector capsules and Heinsen routing in plain loops, for ONE example."""

import math

from tests.reference.onepass import total
from tests.reference.sabour2017 import softmax, squash


def homogeneous(votes, act, weight):
    """weight[i][j][d] times each number of the vote, summed over the children, over the number of parents."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    poses = []
    for j in range(J):
        s = [0.0] * D
        for i in range(I):
            for d in range(D):
                s[d] += act[i] * weight[i][j][d] * votes[i][j][d] / J
        poses.append(squash(s))
    return poses


def standardise(x):
    mean = math.fsum(x) / len(x)
    variance = math.fsum((value - mean) ** 2 for value in x) / len(x)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in x]


def heinsen(votes, act, use, ignore, iterations):
    """Returns (poses, couplings)."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    r = [[1 / J] * J for _ in range(I)]
    poses = []
    for iteration in range(iterations):
        if iteration:
            for i in range(I):
                r[i] = softmax([sum(votes[i][j][d] * poses[j][d] for d in range(D)) / math.sqrt(D) for j in range(J)])
        benefit = [[0.0] * J for _ in range(I)]
        for i in range(I):
            for j in range(J):
                used = act[i] * r[i][j]
                ignored = act[i] - used
                benefit[i][j] = use[i][j] * used - ignore[i][j] * ignored
        poses = [standardise(x) for x in total(votes, benefit)]
    return poses, r
