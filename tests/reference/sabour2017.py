"""*Dynamic Routing Between Capsules*, equation by equation, on nested lists of floats."""

import math

Vector = list[float]


def norm(s: Vector) -> float:
    return math.sqrt(sum(x * x for x in s))


def squash(s: Vector) -> Vector:
    """Equation 1."""
    n = norm(s)
    if n == 0:
        return [0.0 for _ in s]
    return [n**2 / (1 + n**2) * x / n for x in s]


def softmax(b: Vector) -> Vector:
    """Equation 3, for one child over its parents."""
    top = max(b)
    e = [math.exp(x - top) for x in b]
    return [x / sum(e) for x in e]


def routing(votes, iterations, leaky=False, bias=None):
    """Procedure 1 for ONE example: votes[i][j] is child i's vector for parent j. Returns (v, list of couplings)."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    b = [[0.0] * J for _ in range(I)]
    history = []
    v = []
    for _ in range(iterations):
        c = []
        for i in range(I):
            if leaky:
                c.append(softmax([0.0, *b[i]])[1:])  # the orphan's coupling is dropped
            else:
                c.append(softmax(b[i]))
        history.append(c)
        v = []
        for j in range(J):
            s = [0.0] * D if bias is None else list(bias[j])
            for i in range(I):
                for d in range(D):
                    s[d] += c[i][j] * votes[i][j][d]
            v.append(squash(s))
        for i in range(I):
            for j in range(J):
                b[i][j] += sum(votes[i][j][d] * v[j][d] for d in range(D))
    return v, history


def conv_routing(votes, edges, iterations):
    """Procedure 1 where position p sees edges[p], votes[p][k][j]: the softmax covers all of a child's parents."""
    P, K, J, D = len(votes), len(votes[0]), len(votes[0][0]), len(votes[0][0][0])
    children = sorted({child for row in edges for child in row})
    b = [[[0.0] * J for _ in range(K)] for _ in range(P)]
    v = []
    for _ in range(iterations):
        c = [[[0.0] * J for _ in range(K)] for _ in range(P)]
        for child in children:
            places = [(p, k, j) for p in range(P) for k in range(K) if edges[p][k] == child for j in range(J)]
            shares = softmax([b[p][k][j] for p, k, j in places])
            for (p, k, j), share in zip(places, shares, strict=True):
                c[p][k][j] = share
        v = []
        for p in range(P):
            row = []
            for j in range(J):
                s = [math.fsum(c[p][k][j] * votes[p][k][j][d] for k in range(K)) for d in range(D)]
                row.append(squash(s))
            v.append(row)
        for p in range(P):
            for k in range(K):
                for j in range(J):
                    b[p][k][j] += sum(votes[p][k][j][d] * v[p][j][d] for d in range(D))
    return v


def margin_loss(lengths, targets):
    """Equation 4, summed over classes, averaged over the batch; targets[b] is the set of classes that are present."""
    total = 0.0
    for row, present in zip(lengths, targets, strict=True):
        for k, v in enumerate(row):
            t = 1.0 if k in present else 0.0
            total += t * max(0.0, 0.9 - v) ** 2 + 0.5 * (1 - t) * max(0.0, v - 0.1) ** 2
    return total / len(lengths)


def reconstruction_loss(drawn, images):
    """0.0005 times the sum of squared differences of an image, averaged over the batch; images as flat lists."""
    total = 0.0
    for a, b in zip(drawn, images, strict=True):
        total += sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return 0.0005 * total / len(drawn)
