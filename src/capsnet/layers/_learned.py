"""The tensors that a routing declares and a layer owns."""

import torch
from torch import Tensor, nn

from capsnet.routing import Routing


def learned_tensors(
    routing: Routing,
    parents: int,
    dim: int,
    children: int | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.ParameterDict:
    """The learned tensors of a layer whose parents see ``children`` capsules each, None for any number of them.

    A layer for any number of children cannot own a tensor with one entry per child, such as self-attention's prior
    (I, J): it has those tensors only whose shapes are the same for one child and for two. The others are neutral.
    """
    if children is None:
        one, two = (routing.param_shapes(I, parents, dim) for I in (1, 2))
        shapes = {name: shape for name, shape in one.items() if two.get(name) == shape}
    else:
        shapes = routing.param_shapes(children, parents, dim)
    starts = {name: _start(routing, name, shape).to(device, dtype) for name, shape in shapes.items()}
    return nn.ParameterDict({name: nn.Parameter(start) for name, start in starts.items()})


def reset_learned(routing: Routing, tensors: nn.ParameterDict) -> None:
    """Set the learned tensors to the routing's start values."""
    for name, tensor in tensors.items():
        tensor.data.copy_(_start(routing, name, tuple(tensor.shape)))


def _start(routing: Routing, name: str, shape: tuple[int, ...]) -> Tensor:
    return routing.param_init(name, shape).clone()
