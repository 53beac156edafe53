"""Probabilities, corrected on validation pictures: vector scaling (Guo et al. 2017, *On Calibration of Modern Neural
Networks*) of log-probabilities, with one scale for all classes.

    q_j = softmax_j(a log p_j + b_j)

a sharpens or softens, b_j moves the border between classes. Log a and b are those of the highest posterior under
standard normal distributions, so that a few pictures that are all answered rightly do not make a infinite.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

TINY = 1e-6  # of a probability: the logarithm of 0 is not a number


def fit(probabilities: NDArray, targets: NDArray) -> NDArray:
    """Log a and b, from the answers to validation pictures. Shapes: (N, J), (N,) -> (1 + J,)"""
    hot = np.eye(probabilities.shape[1])[targets]

    def loss(x: NDArray) -> float:
        return float(-(hot * np.log(apply(x, probabilities) + TINY)).sum() + np.square(x).sum() / 2)

    return minimize(loss, np.zeros(1 + probabilities.shape[1]), method="L-BFGS-B").x


def apply(fitted: NDArray, probabilities: NDArray) -> NDArray:
    """Shapes: (1 + J,), (N, J) -> (N, J)"""
    return np.exp(log_softmax(np.exp(fitted[0]) * np.log(probabilities + TINY) + fitted[1:], axis=1))
