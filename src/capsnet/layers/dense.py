"""Fully connected capsules: one matrix for each pair of child and parent [Eq. 2]."""

import torch
from torch import Tensor, nn

from capsnet.kernels import Memory
from capsnet.kernels.votes import form_votes
from capsnet.layers._routed import RoutedLayer
from capsnet.layers._shapes import check_counts
from capsnet.layers.capsules import Children, split_children
from capsnet.routing import Routed, Routing
from capsnet.routing.base import check_children, child_weights


class DenseCaps(RoutedLayer):
    """Votes u_hat[j|i] = W[ij] u[i], then a routing.

    The layer owns the weights W and the tensors that the routing declares (``routing.param_shapes``). Couplings are
    recomputed per example, not learned.

    Args:
        children, parents: their numbers I and J.
        child_dim, parent_dim: their dimensions.
        routing: a name or a routing object.

    Shapes: u (B, I, child_dim), act and mask (B, I) -> pose (B, J, parent_dim), act (B, J). ``Capsules`` or ``Routed``
    hold both u and act.
    """

    def __init__(
        self,
        children: int,
        parents: int,
        child_dim: int = 8,
        parent_dim: int = 16,
        routing: str | Routing = "dynamic",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_counts(children=children, parents=parents, child_dim=child_dim, parent_dim=parent_dim)
        weight = nn.Parameter(torch.empty(children, parents, parent_dim, child_dim, device=device, dtype=dtype))
        super().__init__(routing, weight, parents, parent_dim, children, "vector")
        self._memory = Memory()  # scratch of the fused form, not in the state_dict

    def votes(self, u: Tensor) -> Tensor:
        """(B, I, child_dim) -> (B, I, J, parent_dim), as one matrix product per child."""
        I, _, _, K = self.weight.shape
        if u.ndim != 3 or u.shape[1:] != (I, K):
            raise ValueError(f"expected children of shape (B, {I}, {K}), got {tuple(u.shape)}")
        return form_votes(u, self.weight)

    def forward(
        self, u: Children, act: Tensor | None = None, *, mask: Tensor | None = None, trace: bool = False
    ) -> Routed:
        """Without votes in memory, unless a trace is wanted or there are few examples (``kernels.cost``)."""
        u, act = split_children(u, act)
        check_children(u.shape[:2], act, mask)
        params = dict(self.routing_params.items())
        if mask is not None:  # padding may contain NaN
            u = u.masked_fill(~mask.bool().unsqueeze(-1), 0)
        if not trace and u.shape[1:] == (self.weight.shape[0], self.weight.shape[3]):
            routed = self.routing.fused(u, self.weight, child_weights(u, act, mask), params, self._memory)
            if routed is not None:
                return routed
        return self.route(self.votes(u), act, mask=mask, trace=trace)

    def extra_repr(self) -> str:
        I, J, D, K = self.weight.shape
        return f"{I} x {K}D -> {J} x {D}D, {self.routing}"
