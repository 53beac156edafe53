"""Two kinds of pose, and how weights turn each into votes.

A *vector* pose is mapped linearly, vote = W u. A *matrix* pose is a 4x4 matrix M, stored as its 16 numbers row by row,
and multiplied from the right, vote = M W: 16 weights instead of 256.
"""

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from capsnet._names import check_name

Pose: TypeAlias = Literal["vector", "matrix"]
SIDE = 4  # of a matrix pose


def empty_weight(
    children: int, parents: int, in_dim: int, out_dim: int, pose: Pose, device: Any = None, dtype: Any = None
) -> nn.Parameter:
    """Weights (K, J, D', D) for vectors, (K, J, 4, 4) for matrices, to be filled by ``start_weight``."""
    check_name("kind of pose", pose, ("vector", "matrix"))
    if pose == "matrix":
        if (in_dim, out_dim) != (SIDE * SIDE, SIDE * SIDE):
            raise ValueError(f"matrix poses have 16 dimensions, got in_dim={in_dim} and out_dim={out_dim}")
        in_dim = out_dim = SIDE
    return nn.Parameter(torch.empty(children, parents, out_dim, in_dim, device=device, dtype=dtype))


def start_weight(weight: Tensor, pose: Pose) -> None:
    """Vectors: N(0, 0.1^2), as ``DenseCaps``. Matrices: the identity and N(0, 0.2^2).

    Votes that start near the child's pose agree where the children do. With random matrices alone the mean of many
    votes is near zero, and after three layers it is smaller than the minimum variance.
    """
    nn.init.normal_(weight, std=0.2 if pose == "matrix" else 0.1)
    if pose == "matrix":
        with torch.no_grad():
            weight.add_(torch.eye(SIDE, dtype=weight.dtype, device=weight.device))


def child_dim(weight: Tensor, pose: Pose) -> int:
    return SIDE * SIDE if pose == "matrix" else weight.shape[3]


def linear_weight(weight: Tensor, pose: Pose) -> Tensor:
    """The weights as matrices (K, J, D', D) that map the numbers of a pose, stored in a row.

    M W for a row-by-row M is one product with a block-diagonal 16 x 16 matrix: four times the multiplications, but
    half the time, because the votes come out in their final order and need not be copied.
    """
    if pose == "vector":
        return weight
    rows = torch.eye(SIDE, dtype=weight.dtype, device=weight.device)
    return torch.einsum("rs,kjmc->kjscrm", rows, weight).reshape(*weight.shape[:2], SIDE * SIDE, SIDE * SIDE)


def cast_votes(children: Tensor, weight: Tensor) -> Tensor:
    """Children (K, N, D), matrices (K, J, D', D) -> votes (K, N, J, D'), by one batched matrix product."""
    return torch.bmm(children, weight.flatten(1, 2).transpose(1, 2)).unflatten(2, weight.shape[1:3])
