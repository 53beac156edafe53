"""Convolutional capsules: parents that see a patch of children, with weights shared over positions.

Hinton, Sabour, Frosst, *Matrix capsules with EM routing*, ICLR 2018. Capsules lie on a grid: poses (B, H, W, T, D) and
activations (B, H, W, T) of T types; flattened, children are ordered (y, x, type). A pose is a vector or a 4x4 matrix
of 16 numbers, row by row.

The votes dominate the memory: B x H' x W' x K*K*T x T' x D' numbers, K*K / stride^2 times those of a 1x1 window.
"""

import torch
from torch import Tensor

from capsnet.kernels import Memory, windows
from capsnet.layers._poses import SIDE, Pose, cast_votes, child_dim, empty_weight, linear_weight
from capsnet.layers._routed import RoutedLayer
from capsnet.layers.capsules import Children, split_children
from capsnet.routing import Edges, Routed, Routing


class ConvCaps(RoutedLayer):
    """Capsules of ``out_types`` types at each position of a K x K window that moves by ``stride``, without padding.

    Neighbouring windows overlap, and a child's couplings are normalised over *all* its parents, at every position that
    sees it.

    Args:
        in_types, out_types: types of children T and of parents T'.
        kernel_size, stride: of the window.
        in_dim, out_dim: dimensions of vector poses; matrix poses have 16.
        pose: "vector" or "matrix".
        routing: a name or a routing object.

    Shapes: poses (B, H, W, T, D) and act (B, H, W, T), or both as ``Capsules`` or ``Routed`` ->
    pose (B, H', W', T', D'), act (B, H', W', T') with H' = (H - K) // stride + 1. A trace keeps the routing's own
    shapes, (R, B, H' * W', K*K*T, T').
    """

    def __init__(
        self,
        in_types: int,
        out_types: int,
        kernel_size: int = 3,
        stride: int = 1,
        in_dim: int = 16,
        out_dim: int = 16,
        pose: Pose = "vector",
        routing: str | Routing = "dynamic",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        children = kernel_size * kernel_size * in_types
        weight = empty_weight(children, out_types, in_dim, out_dim, pose, device, dtype)  # (K*K*T, T', D', D)
        super().__init__(routing, weight, out_types, out_dim, children, pose)
        self.in_types, self.kernel_size, self.stride = in_types, kernel_size, stride
        self._memory = Memory()  # scratch of the fused form, not in the state_dict

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """(H', W', T') of the parents that an H x W grid of children has."""
        if min(height, width) < self.kernel_size:
            window = f"{self.kernel_size}x{self.kernel_size}"
            raise ValueError(f"a grid of {height} x {width} capsules is too small for a {window} window")
        down, right = ((size - self.kernel_size) // self.stride + 1 for size in (height, width))
        return down, right, self.weight.shape[1]

    def edges(self, height: int, width: int, device: torch.device | None = None) -> Edges:
        """Which children, numbered in the order (y, x, type), each position sees: index (P, K*K*T).

        Computed at each call: this is much cheaper than the votes.
        """
        children = height * width * self.in_types
        numbers = torch.arange(children, device=device)
        seen = windows(numbers.view(1, height, width, self.in_types, 1), self.kernel_size, self.stride)
        return Edges(seen.reshape(-1, self.weight.shape[0]), children)

    def windows(self, poses: Tensor) -> Tensor:
        """(B, H, W, T, D) -> (B, P, K*K*T, D): the children that each position sees."""
        T, D = self.in_types, child_dim(self.weight, self.pose)
        if poses.ndim != 5 or poses.shape[3:] != (T, D):
            raise ValueError(f"expected poses of shape (B, H, W, {T}, {D}), got {tuple(poses.shape)}")
        B, H, W = poses.shape[:3]
        down, right, _ = self.grid(H, W)
        K = self.weight.shape[0]  # not -1, which an empty batch does not allow
        return windows(poses, self.kernel_size, self.stride).reshape(B, down * right, K, D)

    def votes(self, poses: Tensor) -> Tensor:
        """(B, H, W, T, D) -> (B, P, K*K*T, T', D'), as one matrix product per child of a window."""
        return self._votes(self.windows(poses), linear_weight(self.weight, self.pose))

    def _votes(self, children: Tensor, weight: Tensor) -> Tensor:
        votes = cast_votes(children.flatten(0, 1).transpose(0, 1), weight)  # (K*K*T, B * P, T', D')
        return votes.unflatten(1, children.shape[:2]).permute(1, 2, 0, 3, 4)

    def forward(
        self, poses: Children, act: Tensor | None = None, *, trace: bool = False, start: Tensor | None = None
    ) -> Routed:
        """Uses the routing's fused form if it has a faster one.

        With ``start``, poses of the parents or 0, it makes one iteration from them (see ``routing.base``).
        """
        poses, act = split_children(poses, act)
        children, weight = self.windows(poses), linear_weight(self.weight, self.pose)
        H, W = poses.shape[1:3]
        check_presence(act, poses)
        weights, edges, routed = None if act is None else act.flatten(1), self.edges(H, W, poses.device), None
        if not trace and start is None:
            params = dict(self.routing_params.items())
            routed = self.routing.fused_windows(children, weight, weights, edges, params, self._memory)
        if routed is None:
            start = start if start is None or start.ndim == 0 else start.flatten(1, 2)  # (B, P, T', D')
            routed = self.route(self._votes(children, weight), weights, edges=edges, trace=trace, start=start)
        pose, presence, history = routed  # (B, P, T', D'), (B, P, T')
        down, right, _ = self.grid(H, W)
        return Routed(pose.unflatten(1, (down, right)), presence.unflatten(1, (down, right)), history)

    def extra_repr(self) -> str:
        return (
            f"{self.in_types} -> {self.weight.shape[1]} types of {self.pose} capsules, "
            f"kernel_size={self.kernel_size}, stride={self.stride}, {self.routing}"
        )


class ClassCaps(RoutedLayer):
    """One capsule per class, seen by every child of the grid, with weights shared over positions.

    The weights do not depend on the position, so it is added to the votes (*coordinate addition*): the centre of the
    child's cell, ((y + 1/2) / H, (x + 1/2) / W), is added to the first two entries of a vector vote and, as in the
    paper, to the first two of the right-hand column of a matrix vote, the translation of a pose.

    Args:
        in_types, classes: types of children T and number of parents J.
        in_dim, out_dim, pose, routing: as in ``ConvCaps``. A learned tensor of the routing whose shape depends on the
            number of children is left out (neutral), so the grid may have any size.

    Shapes: as in ``ConvCaps`` -> pose (B, J, D'), act (B, J); the trace's grid is (H, W, T).
    """

    def __init__(
        self,
        in_types: int,
        classes: int,
        in_dim: int = 16,
        out_dim: int = 16,
        pose: Pose = "vector",
        routing: str | Routing = "dynamic",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if out_dim < 2:
            raise ValueError(f"a place has two coordinates: votes need out_dim of at least 2, got {out_dim}")
        weight = empty_weight(in_types, classes, in_dim, out_dim, pose, device, dtype)  # (T, J, D', D), (T, J, 4, 4)
        super().__init__(routing, weight, classes, out_dim, None, pose)

    def coordinates(self, height: int, width: int) -> Tensor:
        """(H, W, D'): what is added to the votes of the children in each cell."""
        D = SIDE * SIDE if self.pose == "matrix" else self.weight.shape[2]
        row, column = (SIDE - 1, 2 * SIDE - 1) if self.pose == "matrix" else (0, 1)
        unit = torch.eye(D, dtype=self.weight.dtype, device=self.weight.device)
        centres = [(torch.arange(size, dtype=unit.dtype, device=unit.device) + 0.5) / size for size in (height, width)]
        return centres[0].view(-1, 1, 1) * unit[row] + centres[1].view(1, -1, 1) * unit[column]

    def votes(self, poses: Tensor) -> Tensor:
        """(B, H, W, T, D) -> (B, H * W * T, J, D'), as one matrix product per type."""
        T, D = self.weight.shape[0], child_dim(self.weight, self.pose)
        if poses.ndim != 5 or poses.shape[3:] != (T, D):
            raise ValueError(f"expected poses of shape (B, H, W, {T}, {D}), got {tuple(poses.shape)}")
        B, H, W = poses.shape[:3]
        children = poses.permute(3, 0, 1, 2, 4).reshape(T, B * H * W, D)
        votes = cast_votes(children, linear_weight(self.weight, self.pose)).unflatten(
            1, (B, H, W)
        )  # (T, B, H, W, J, D')
        placed = votes + self.coordinates(H, W).unsqueeze(2).to(votes.dtype)
        return placed.permute(1, 2, 3, 0, 4, 5).flatten(1, 3)

    def forward(
        self, poses: Children, act: Tensor | None = None, *, trace: bool = False, start: Tensor | None = None
    ) -> Routed:
        """With ``start``, poses of the parents or 0, it makes one iteration from them (see ``routing.base``)."""
        poses, act = split_children(poses, act)
        votes = self.votes(poses)
        check_presence(act, poses)
        routed = self.route(votes, None if act is None else act.flatten(1), trace=trace, start=start)
        if routed.trace is None:
            return routed
        H, W, T = poses.shape[1:4]
        return routed._replace(trace=routed.trace._replace(grid=(H, W, T)))

    def extra_repr(self) -> str:
        T, J = self.weight.shape[:2]
        return f"{T} types -> {J} classes of {self.pose} capsules, {self.routing}"


def check_presence(act: Tensor | None, poses: Tensor) -> None:
    if act is not None and act.shape != poses.shape[:4]:
        raise ValueError(f"act must have shape (B, H, W, T) = {tuple(poses.shape[:4])}, got {tuple(act.shape)}")
