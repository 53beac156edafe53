"""A routing from outside the package: layer-normalised poses, whose length is not a presence."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from capsnet import routing
from capsnet.routing import Edges, Formula, Routed, Routing
from capsnet.routing.steps import agree, couple, gather, stack_trace, weigh


@dataclass(frozen=True, kw_only=True)
class LayerNormRouting(Routing):
    """Dynamic routing with layer-normalised poses instead of squashed ones."""

    name: ClassVar[str] = "layer-norm"
    sentence: ClassVar[str] = "Each child sends its vote to the parents whose normalised pose it agrees with."
    iterations: int = 2

    @property
    def presence_is_length(self) -> bool:
        return False

    @property
    def formula(self) -> Formula:
        return Formula("c_ij = exp(b_ij) / Σ_k exp(b_ik)", "a_j = |s_j|^2 / (1 + |s_j|^2)")

    def route(
        self, votes: Tensor, weights: Tensor | None, edges: Edges | None, params: dict[str, Tensor], trace: bool
    ) -> Routed:
        logits = votes.new_zeros(votes.shape[:-1])  # (B, I, J)
        pose = act = votes.new_zeros(())
        history = []
        for iteration in range(self.iterations):
            coupling = couple(logits, edges)
            total = gather(weigh(coupling, weights, edges), votes)  # (B, J, D)
            pose = torch.nn.functional.layer_norm(total, total.shape[-1:])
            square = total.square().sum(dim=-1)
            act = square / (1 + square)
            if trace:
                history.append((coupling, logits, pose, act))
            if iteration < self.iterations - 1:
                logits = logits + agree(votes, pose)
        return Routed(pose, act, stack_trace(history) if trace else None)


routing.register(LayerNormRouting)
