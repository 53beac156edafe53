"""Capsules for any number of children: one matrix per parent instead of one per pair."""

import torch
from torch import Tensor, nn

from capsnet.layers._learned import learned_tensors, reset_learned
from capsnet.layers.capsules import Children, split_children
from capsnet.routing import Routed, Routing, get


class SharedCaps(nn.Module):
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
        super().__init__()
        self.routing = get(routing)
        self.weight = nn.Parameter(torch.empty(parents, parent_dim, child_dim, device=device, dtype=dtype))  # (J, D, K)
        self.routing_params = learned_tensors(self.routing, parents, parent_dim, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """W ~ N(0, 0.1^2) as in ``DenseCaps``; the routing's tensors by its ``param_init``."""
        nn.init.normal_(self.weight, std=0.1)
        reset_learned(self.routing, self.routing_params)

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
            return self._route(u, act, None, trace)
        children = tuple(u.shape[:2])
        if tuple(mask.shape) != children:
            raise ValueError(f"mask must have shape (B, I) = {children}, got {tuple(mask.shape)}")
        mask = mask.bool()
        empty = ~mask.any(dim=1, keepdim=True)  # (B, 1)
        # An empty example is routed as if all its padding were zero children: a routing that divides by the total of
        # the children would give NaN, which stays in the gradient even where the result is replaced afterwards.
        u = u.masked_fill(~mask.unsqueeze(-1), 0)
        act = None if act is None else act.masked_fill(~mask, 0).masked_fill(empty, 1)
        pose, presence, history = self._route(u, act, mask | empty, trace)
        return Routed(pose.masked_fill(empty.unsqueeze(-1), 0), presence.masked_fill(empty, 0), history)

    def _route(self, u: Tensor, act: Tensor | None, mask: Tensor | None, trace: bool) -> Routed:
        return self.routing(self.votes(u), act, mask=mask, params=dict(self.routing_params.items()), trace=trace)

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
