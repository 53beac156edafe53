"""Layers of complex numbers in plain loops over positions and points.

C complex channels are 2 C real ones, real parts first.
"""

import cmath
from collections.abc import Callable

import torch
from torch import Tensor


def convolution(x: Tensor, real: Tensor, imaginary: Tensor, bias: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """Complex weights (O, C, K, K) at each output position: x (2 C, H, W), bias (2 O,) -> (2 O, H', W')."""
    (O, C, K, _), (_, H, W) = real.shape, x.shape
    rows, columns = ((size + 2 * padding - K) // stride + 1 for size in (H, W))
    result = torch.empty(2 * O, rows, columns, dtype=x.dtype)
    for o in range(O):
        for row in range(rows):
            for column in range(columns):
                total = complex(bias[o], bias[O + o])
                for c in range(C):
                    for i in range(K):
                        for j in range(K):
                            h, w = row * stride + i - padding, column * stride + j - padding
                            if 0 <= h < H and 0 <= w < W:
                                weight = complex(real[o, c, i, j], imaginary[o, c, i, j])
                                total += weight * complex(x[c, h, w], x[C + c, h, w])
                result[o, row, column], result[O + o, row, column] = total.real, total.imag
    return result


def each(x: Tensor, function: Callable[[complex, int], complex]) -> Tensor:
    """A function of every number and its channel: x (B, 2 C, N) -> the same."""
    (B, channels, N), C = x.shape, x.shape[1] // 2
    result = torch.empty(B, channels, N, dtype=x.dtype)
    for b in range(B):
        for c in range(C):
            for k in range(N):
                z = function(complex(x[b, c, k], x[b, C + c, k]), c)
                result[b, c, k], result[b, C + c, k] = z.real, z.imag
    return result


def mod_relu(x: Tensor, bias: list[float]) -> Tensor:
    """The length grows by the channel's bias, down to 0, and the angle stays."""
    return each(x, lambda z, c: cmath.rect(max(0.0, abs(z) + bias[c]), cmath.phase(z)) if z else z)


def z_relu(x: Tensor) -> Tensor:
    """Numbers stay whose angle is between 0 and pi / 2."""
    return each(x, lambda z, _: z if 0 < cmath.phase(z) < cmath.pi / 2 else 0j)


def c_relu(x: Tensor) -> Tensor:
    return each(x, lambda z, _: complex(max(0.0, z.real), max(0.0, z.imag)))


def batch_norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    """Each complex channel of x (B, 2 C, H, W) whitened by the inverse square root of its covariance matrix.

    gain (3, C) has the entries rr, ri, ii of a symmetric matrix, shift (2, C).
    """
    result, C = torch.empty_like(x), x.shape[1] // 2
    for c in range(C):
        points = list(torch.stack([x[:, c].flatten(), x[:, C + c].flatten()], dim=1))  # N x (2,)
        mean = sum(points[1:], points[0]) / len(points)
        covariance = eps * torch.eye(2, dtype=x.dtype)
        for point in points:
            covariance += torch.outer(point - mean, point - mean) / len(points)
        values, vectors = torch.linalg.eigh(covariance)
        whiten = vectors @ torch.diag(values.rsqrt()) @ vectors.T
        rr, ri, ii = gain[:, c].tolist()
        matrix = torch.tensor([[rr, ri], [ri, ii]], dtype=x.dtype) @ whiten
        done = torch.stack([matrix @ (point - mean) + shift[:, c] for point in points])
        for part in range(2):
            result[:, part * C + c] = done[:, part].reshape(x[:, c].shape)
    return result
