"""Homogeneous vector capsules: Byerly et al., *No Routing Needed Between Capsules*, 2020 (arXiv 2001.09136)."""

import math

import torch
from torch import Tensor, nn

from capsnet.layers._routed import RoutedLayer
from capsnet.layers.capsules import Children, split_children
from capsnet.routing import Routed, Routing
from capsnet.routing.base import check_children


class HomogeneousCaps(RoutedLayer):
    """Votes u_hat[j|i] = w[ij] * u[i], element by element, then a routing.

    A dimension of a parent is made of the same dimension of its children, so dimensions stay apart, and a pair has D
    weights instead of a matrix. The authors' capsules need no routing: ``uniform``, the default. They normalise each
    batch and apply ReLU where the squash is here.

    Args:
        children, parents: their numbers I and J.
        dim: D, of both.
        routing: a name or a routing object.

    Shapes: u (B, I, D), act and mask (B, I) -> pose (B, J, D), act (B, J). ``Capsules`` or ``Routed`` hold both u and
    act.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        dim: int = 8,
        routing: str | Routing = "uniform",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        weight = nn.Parameter(torch.empty(children, parents, dim, device=device, dtype=dtype))
        super().__init__(routing, weight, parents, dim, children, "vector")

    def reset_parameters(self) -> None:
        """Weights N(0, 0.01 D): votes are as long as those of ``DenseCaps``, which sum D products each."""
        super().reset_parameters()
        with torch.no_grad():
            self.weight.mul_(math.sqrt(self.weight.shape[2]))

    def votes(self, u: Tensor) -> Tensor:
        """(B, I, D) -> (B, I, J, D)."""
        I, _, D = self.weight.shape
        if u.ndim != 3 or u.shape[1:] != (I, D):
            raise ValueError(f"expected children of shape (B, {I}, {D}), got {tuple(u.shape)}")
        return u.unsqueeze(2) * self.weight

    def forward(
        self, u: Children, act: Tensor | None = None, *, mask: Tensor | None = None, trace: bool = False
    ) -> Routed:
        u, act = split_children(u, act)
        check_children(u.shape[:2], act, mask)
        return self.route(self.votes(u), act, mask=mask, trace=trace)

    def extra_repr(self) -> str:
        I, J, D = self.weight.shape
        return f"{I} -> {J} x {D}D, {self.routing}"
