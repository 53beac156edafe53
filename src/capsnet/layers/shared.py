"""Capsules for any number of children: one matrix per parent instead of one per pair."""

import torch
from torch import Tensor, nn

from capsnet.layers._routed import RoutedLayer
from capsnet.layers._shapes import check_counts
from capsnet.layers.capsules import Children, split_children
from capsnet.routing import Routed, Routing
from capsnet.routing.base import check_children


class SharedCaps(RoutedLayer):
    """Votes u_hat[j|i] = W[j] u[i], then a routing.

    There may be any number of children, such as the words of a text, and their order does not matter. ``mask`` is False
    for padding. An example without children gives parents of zero.

    Args:
        parents: their number J.
        child_dim, parent_dim: dimensions of children and parents.
        routing: a name or a routing object. A learned tensor whose shape depends on the number of children (the prior
            of self-attention) is left out (neutral).

    Shapes: u (B, I, child_dim), act and mask (B, I), any I -> pose (B, J, parent_dim), act (B, J). ``Capsules`` or
    ``Routed`` hold both u and act.
    """

    def __init__(
        self,
        parents: int,
        child_dim: int = 8,
        parent_dim: int = 16,
        routing: str | Routing = "dynamic",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_counts(parents=parents, child_dim=child_dim, parent_dim=parent_dim)
        weight = nn.Parameter(torch.empty(parents, parent_dim, child_dim, device=device, dtype=dtype))  # (J, D, K)
        super().__init__(routing, weight, parents, parent_dim, None, "vector")

    def votes(self, u: Tensor) -> Tensor:
        """(B, I, child_dim) -> (B, I, J, parent_dim), as one matrix product."""
        J, D, K = self.weight.shape
        if u.ndim != 3 or u.shape[2] != K:
            raise ValueError(f"expected children of shape (B, I, {K}), got {tuple(u.shape)}")
        return nn.functional.linear(u, self.weight.reshape(J * D, K)).unflatten(2, (J, D))

    def forward(
        self, u: Children, act: Tensor | None = None, *, mask: Tensor | None = None, trace: bool = False
    ) -> Routed:
        u, act = split_children(u, act)
        if u.ndim == 3 and u.shape[1] == 0:
            return self._without_children(u, trace)
        if mask is None:
            return self.route(self.votes(u), act, trace=trace)
        check_children(u.shape[:2], act, mask)
        mask = mask.bool()
        empty = ~mask.any(dim=1, keepdim=True)  # (B, 1)
        # An empty example is routed as if all its padding were zero children: a routing that divides by the total of
        # the children would give NaN, which stays in the gradient even where the result is replaced afterwards.
        u = u.masked_fill(~mask.unsqueeze(-1), 0)
        act = None if act is None else act.masked_fill(~mask, 0).masked_fill(empty, 1)
        pose, presence, history = self.route(self.votes(u), act, mask=mask | empty, trace=trace)
        return Routed(pose.masked_fill(empty.unsqueeze(-1), 0), presence.masked_fill(empty, 0), history)

    def _without_children(self, u: Tensor, trace: bool) -> Routed:
        """The result of one padding child, which the trace leaves out."""
        one = nn.functional.pad(u, (0, 0, 0, 1))  # (B, 1, K)
        routed = self(one, mask=torch.zeros(one.shape[:2], dtype=torch.bool, device=u.device), trace=trace)
        if routed.trace is None:
            return routed
        past = routed.trace
        none = {"couplings": past.couplings[:, :, :0], "logits": past.logits[:, :, :0], "votes": past.votes[:, :0]}
        return routed._replace(trace=past._replace(**none))

    def extra_repr(self) -> str:
        J, D, K = self.weight.shape
        return f"any x {K}D -> {J} x {D}D, {self.routing}"
