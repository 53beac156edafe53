"""A linear model on pixels: what any network has to beat. Multinomial logistic regression with an L2 penalty.

It is the same as scikit-learn's ``LogisticRegression`` on standardised pixels (a test compares them), so that the
experiment does not need that package.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from capsnet.data import Dataset

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # C of scikit-learn: small is a strong penalty


def answer(train: Dataset, validation: Dataset, test: Dataset) -> tuple[NDArray, NDArray, float]:
    """The probabilities of the validation and of the test pictures (N, J), and the strength, which is chosen on the
    validation split."""
    (x, y), (x_val, y_val), (x_test, _) = (pixels(part) for part in (train, validation, test))
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    x, x_val, x_test = ((part - mean) / scale for part in (x, x_val, x_test))
    fits = [fit(x, y, train.num_classes, strength) for strength in STRENGTHS]
    losses = [-log_softmax(logits(x_val, w), axis=1)[np.arange(len(y_val)), y_val].mean() for w in fits]
    best = int(np.argmin(losses))
    sure, said = (softmax(logits(part, fits[best]), axis=1) for part in (x_val, x_test))
    return sure, said, STRENGTHS[best]


def pixels(dataset: Dataset) -> tuple[NDArray, NDArray]:
    """(N, C * H * W) in [0, 1] and (N,)"""
    batch = dataset.batch(np.arange(len(dataset)))
    return batch.images.flatten(1).double().numpy(), batch.targets.numpy()


def logits(x: NDArray, weights: NDArray) -> NDArray:
    """Shapes: (N, D), (D + 1, J) -> (N, J); the last row is the bias."""
    return x @ weights[:-1] + weights[-1]


def fit(x: NDArray, y: Sequence[int] | NDArray, classes: int, strength: float) -> NDArray:
    """Weights (D + 1, J) that minimise strength * sum of weighted cross-entropies + |weights|² / 2 without the bias.

    Examples are weighted so that each class counts the same, as ``class_weights`` does in training.
    """
    y = np.asarray(y)
    hot = np.eye(classes)[y]
    weight = strength * (len(y) / (classes * np.maximum(hot.sum(axis=0), 1)))[y][:, None]  # (N, 1)
    shape = (x.shape[1] + 1, classes)

    def loss(flat: NDArray) -> tuple[float, NDArray]:
        w = flat.reshape(shape)
        logs = log_softmax(logits(x, w), axis=1)
        slope = weight * (np.exp(logs) - hot)  # (N, J)
        gradient = np.vstack([x.T @ slope + w[:-1], slope.sum(axis=0)])
        return float(-(weight * hot * logs).sum() + np.square(w[:-1]).sum() / 2), gradient.ravel()

    return minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x.reshape(
        shape
    )
