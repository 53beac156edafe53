"""The routings that are not Procedure 1, in plain loops, for ONE example: self-attention, attention, uniform."""

import math

from tests.reference.sabour2017 import norm, softmax, squash


def squash_exp(s):
    n = norm(s)
    return [0.0 for _ in s] if n == 0 else [(1 - math.exp(-n)) * x / n for x in s]


def total(votes, counts):
    """counts[i][j] times the votes, summed over the children: one vector per parent."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    return [[math.fsum(counts[i][j] * votes[i][j][d] for i in range(I)) for d in range(D)] for j in range(J)]


def self_attention(votes, act, prior):
    """Efficient-CapsNet, equations 5 to 7: every child against every other. Returns (poses, couplings)."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    logits = [[0.0] * J for _ in range(I)]
    for i in range(I):
        for j in range(J):
            for k in range(I):
                logits[i][j] += act[k] * sum(votes[i][j][d] * votes[k][j][d] for d in range(D)) / math.sqrt(D)
    c = [[x + prior[i][j] for j, x in enumerate(softmax(row))] for i, row in enumerate(logits)]
    counted = [[c[i][j] * act[i] for j in range(J)] for i in range(I)]
    return [squash_exp(s) for s in total(votes, counted)], c


def attention(votes, act, iterations):
    """Procedure 1 with the softmax over the children. Returns (poses, list of attentions)."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    b = [[0.0] * J for _ in range(I)]
    history, v = [], []
    for _ in range(iterations):
        a = [[0.0] * J for _ in range(I)]
        for j in range(J):
            e = [act[i] * math.exp(b[i][j]) for i in range(I)]
            for i in range(I):
                a[i][j] = e[i] / math.fsum(e)
        history.append(a)
        v = [squash(s) for s in total(votes, a)]
        for i in range(I):
            for j in range(J):
                b[i][j] += sum(votes[i][j][d] * v[j][d] for d in range(D))
    return v, history


def uniform(votes, act):
    J = len(votes[0])
    return [squash(s) for s in total(votes, [[a / J] * J for a in act])]


def fixed_point(votes, act, iterations):
    """Procedure 1 with b set to the agreement instead of increased by it."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    b = [[0.0] * J for _ in range(I)]
    v = []
    for _ in range(iterations):
        c = [softmax(row) for row in b]
        v = [squash(s) for s in total(votes, [[c[i][j] * act[i] for j in range(J)] for i in range(I)])]
        b = [[math.fsum(votes[i][j][d] * v[j][d] for d in range(D)) for j in range(J)] for i in range(I)]
    return v
