"""Pathways: layers of modules of which a few are active (Fernando et al., *PathNet*, 2017, arXiv 1701.08734)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from capsnet.layers._shapes import check_counts, check_shape


class PathwayLayer(nn.Module):
    """M small modules side by side, each a linear layer and ReLU; the outputs of the active ones are summed.

    ``fix`` makes buffers of the weights of some modules: gradients, weight decay and the momentum of an optimiser that
    goes on reach only parameters. A state dict has the fixed weights in the place of the parameters.

    Args:
        inputs, outputs: numbers of each module.
        modules: M.
        mean: the mean of the active modules' outputs instead of their sum, as in the last layer of a PathNet.

    Shapes: x (B, inputs), active: distinct module numbers, by default all -> (B, outputs).
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
        check_counts(inputs=inputs, outputs=outputs, modules=modules)
        self.mean = mean
        self.weight = nn.Parameter(torch.empty(modules, outputs, inputs, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(modules, outputs, device=device, dtype=dtype))
        self.fixed: Tensor | None  # (M,)
        self.fixed_weight: Tensor | None
        self.fixed_bias: Tensor | None
        for name in ("fixed", "fixed_weight", "fixed_bias"):
            self.register_buffer(name, None, persistent=False)
        self.reset(range(modules))

    def reset(self, modules: "range | list[int]") -> None:
        """Initialise some modules anew, as ``nn.Linear`` does. Fixed ones do not change."""
        bound = 1 / math.sqrt(self.weight.shape[2])
        with torch.no_grad():
            for module in modules:
                nn.init.uniform_(self.weight[module], -bound, bound)
                nn.init.uniform_(self.bias[module], -bound, bound)

    def fix(self, modules: Tensor) -> None:
        """Keep the weights that the modules of a mask (M,) have now; those of all others can be trained."""
        M = len(self.weight)
        if modules.shape != (M,) or modules.dtype is not torch.bool:
            raise ValueError(f"expected a mask of {M} bools, got {modules.dtype} of shape {tuple(modules.shape)}")
        self._restore()
        self.fixed = modules.clone() if modules.any() else None
        self._keep()

    def _keep(self) -> None:
        """The parameters of fixed modules become the weights in use."""
        found = self.fixed is not None
        self.fixed_weight = self.weight.detach().clone() if found else None
        self.fixed_bias = self.bias.detach().clone() if found else None

    def _restore(self) -> None:
        """The weights in use become the parameters of fixed modules, which an optimiser may have changed."""
        with torch.no_grad():
            for parameter, used in zip((self.weight, self.bias), self.weights(), strict=True):
                if used is not parameter:
                    parameter.copy_(used)

    def _save_to_state_dict(self, *args: Any, **options: Any) -> None:
        self._restore()
        super()._save_to_state_dict(*args, **options)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._restore()  # for what is not in the state
        super()._load_from_state_dict(*args, **options)
        self._keep()

    def weights(self) -> tuple[Tensor, Tensor]:
        """Weights (M, outputs, inputs) and biases (M, outputs) in use."""
        if self.fixed is None or self.fixed_weight is None or self.fixed_bias is None:
            return self.weight, self.bias
        fixed = self.fixed[:, None]
        weight = torch.where(fixed[:, None], self.fixed_weight, self.weight)
        return weight, torch.where(fixed, self.fixed_bias, self.bias)

    def forward(self, x: Tensor, active: Tensor | Sequence[int] | None = None) -> Tensor:
        check_shape(x, "B", self.weight.shape[2])
        weight, bias = self.weights()
        if active is not None:
            chosen = self._check_active(torch.as_tensor(active, device=x.device))
            weight, bias = weight[chosen], bias[chosen]  # (N, outputs, inputs), (N, outputs)
        N, outputs, _ = weight.shape
        each = torch.relu(nn.functional.linear(x, weight.flatten(0, 1), bias.flatten())).unflatten(1, (N, outputs))
        return each.mean(dim=1) if self.mean else each.sum(dim=1)

    def _check_active(self, active: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:  # values are not known there
            return active
        M, numbers = len(self.weight), active.tolist()
        known = active.ndim == 1 and all(type(k) is int and 0 <= k < M for k in numbers)
        if not known or not numbers or len(set(numbers)) < len(numbers):
            raise ValueError(f"expected distinct module numbers from 0 to {M - 1}, at least one, got {numbers}")
        return active

    def extra_repr(self) -> str:
        modules, outputs, inputs = self.weight.shape
        return f"{modules} x ({inputs} -> {outputs}), mean={self.mean}"
