"""Routing as clustering, in plain loops: soft k-means, matrix capsules' EM, and the mixture of Gaussians.

All for ONE example: votes[i][j] is child i's vector for parent j, act[i] how present the child is.
"""

import math

from tests.reference.sabour2017 import norm, softmax, squash


def weighted_mean(votes, j, counts):
    D = len(votes[0][0])
    total = math.fsum(counts)
    if total == 0:
        return [0.0] * D
    return [math.fsum(c * votes[i][j][d] for i, c in enumerate(counts)) / total for d in range(D)]


def kmeans(votes, act, iterations, distance, temperature):
    """Returns (poses, list of couplings, list of centres)."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    logits = [[0.0] * J for _ in range(I)]
    couplings, centres = [], []
    centre = []
    for _ in range(iterations):
        c = [softmax(row) for row in logits]
        centre = []
        for j in range(J):
            counts = [c[i][j] * act[i] for i in range(I)]
            if distance == "euclidean":
                centre.append(weighted_mean(votes, j, counts))
            else:
                centre.append([math.fsum(counts[i] * votes[i][j][d] for i in range(I)) for d in range(D)])
        couplings.append(c)
        centres.append(centre)
        for i in range(I):
            for j in range(J):
                if distance == "euclidean":
                    near = -sum((votes[i][j][d] - centre[j][d]) ** 2 for d in range(D))
                else:
                    size = norm(centre[j]) or 1.0
                    near = sum(votes[i][j][d] * centre[j][d] / size for d in range(D))
                logits[i][j] = near / temperature
    return [squash(v) for v in centre], couplings, centres


def em_diagonal(votes, act, iterations, final, min_variance, use_cost, act_cost):
    """*Matrix capsules with EM routing*, Procedure 1. Returns (means, activations, list of posteriors)."""
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    R = [[1.0 / J] * J for _ in range(I)]
    history = []
    means, activations = [], []
    for t in range(iterations):
        history.append(R)
        lam = final * (1 - 0.95 ** (t + 1))
        means, variances, activations = [], [], []
        for j in range(J):
            r = [R[i][j] * act[i] for i in range(I)]
            total = math.fsum(r)
            mu = weighted_mean(votes, j, r)
            sigma2 = [
                math.fsum(r[i] * (votes[i][j][d] - mu[d]) ** 2 for i in range(I)) / total + min_variance
                for d in range(D)
            ]
            cost = sum((use_cost[j] + math.log(math.sqrt(s))) * total for s in sigma2)
            means.append(mu)
            variances.append(sigma2)
            activations.append(1 / (1 + math.exp(-lam * (act_cost[j] - cost))))
        R = []
        for i in range(I):
            log_p = []
            for j in range(J):
                density = sum(
                    -((votes[i][j][d] - means[j][d]) ** 2) / (2 * variances[j][d])
                    - 0.5 * math.log(2 * math.pi * variances[j][d])
                    for d in range(D)
                )
                log_p.append(math.log(activations[j]) + density)
            R.append(softmax(log_p))
    return means, activations, history


def solve(matrix, vector):
    """Gaussian elimination, and the determinant on the way."""
    n = len(vector)
    a = [[*row, vector[k]] for k, row in enumerate(matrix)]
    determinant = 1.0
    for k in range(n):
        pivot = max(range(k, n), key=lambda row: abs(a[row][k]))
        if pivot != k:
            a[k], a[pivot] = a[pivot], a[k]
            determinant = -determinant
        determinant *= a[k][k]
        for row in range(k + 1, n):
            factor = a[row][k] / a[k][k]
            a[row] = [x - factor * y for x, y in zip(a[row], a[k], strict=True)]
    x = [0.0] * n
    for k in reversed(range(n)):
        x[k] = (a[k][n] - sum(a[k][m] * x[m] for m in range(k + 1, n))) / a[k][k]
    return x, determinant


def em_full(votes, act, iterations, min_variance):
    """Full covariance, votes blurred by ``min_variance``. Returns (means, mixing, posteriors, log-likelihoods).

    The likelihood of iteration t is that of the parameters its M-step found.
    """
    I, J, D = len(votes), len(votes[0]), len(votes[0][0])
    R = [[1.0 / J] * J for _ in range(I)]
    history, likelihoods = [], []
    means, mixing = [], []
    for _ in range(iterations):
        history.append(R)
        totals = [math.fsum(R[i][j] * act[i] for i in range(I)) for j in range(J)]
        mixing = [t / math.fsum(totals) for t in totals]
        means, log_p = [], [[0.0] * J for _ in range(I)]
        for j in range(J):
            r = [R[i][j] * act[i] for i in range(I)]
            mu = weighted_mean(votes, j, r)
            means.append(mu)
            away = [[votes[i][j][d] - mu[d] for d in range(D)] for i in range(I)]
            cov = [
                [math.fsum(r[i] * away[i][a] * away[i][b] for i in range(I)) / totals[j] for b in range(D)]
                for a in range(D)
            ]
            for d in range(D):
                cov[d][d] += min_variance
            trace_inverse = sum(solve(cov, [1.0 if k == d else 0.0 for k in range(D)])[0][d] for d in range(D))
            for i in range(I):
                x, determinant = solve(cov, away[i])
                mahalanobis = sum(p * q for p, q in zip(away[i], x, strict=True))
                density = -0.5 * (mahalanobis + math.log(determinant) + D * math.log(2 * math.pi))
                log_p[i][j] = math.log(mixing[j]) + density - 0.5 * min_variance * trace_inverse
        R = [softmax(row) for row in log_p]
        likelihoods.append(
            math.fsum(
                act[i] * (max(row) + math.log(sum(math.exp(x - max(row)) for x in row))) for i, row in enumerate(log_p)
            )
        )
    return means, mixing, history, likelihoods
