"""Pathways: layers of modules of which a few are active (Fernando et al., *PathNet*, 2017, arXiv 1701.08734)."""

import math

import torch
from torch import Tensor, nn


class PathwayLayer(nn.Module):
    """M small modules side by side, each a linear layer and ReLU; the outputs of the active ones are summed.

    Args:
        inputs, outputs: numbers of each module.
        modules: M.
        mean: the mean of the active modules' outputs instead of their sum, as in the last layer of a PathNet.

    Shapes: x (B, inputs), active: distinct module numbers -> (B, outputs).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        modules: int = 10,
        mean: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if modules < 1:
            raise ValueError(f"a layer has at least 1 module, got {modules}")
        self.mean = mean
        self.weight = nn.Parameter(torch.empty(modules, outputs, inputs, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(modules, outputs, device=device, dtype=dtype))
        self.reset(range(modules))

    def reset(self, modules: "range | list[int]") -> None:
        """Initialise some modules anew, as ``nn.Linear`` does."""
        bound = 1 / math.sqrt(self.weight.shape[2])
        with torch.no_grad():
            for module in modules:
                nn.init.uniform_(self.weight[module], -bound, bound)
                nn.init.uniform_(self.bias[module], -bound, bound)

    def forward(self, x: Tensor, active: Tensor) -> Tensor:
        weight, bias = self.weight[active], self.bias[active]  # (N, outputs, inputs), (N, outputs)
        N, outputs, _ = weight.shape
        each = torch.relu(nn.functional.linear(x, weight.flatten(0, 1), bias.flatten())).unflatten(1, (N, outputs))
        return each.mean(dim=1) if self.mean else each.sum(dim=1)

    def extra_repr(self) -> str:
        modules, outputs, inputs = self.weight.shape
        return f"{modules} x ({inputs} -> {outputs}), mean={self.mean}"
