"""The base of layers that own weights, and the tensors that their routing learns."""

from typing import Any

from torch import Tensor, nn

from capsnet.layers._poses import Pose, start_weight
from capsnet.routing import Routed, Routing, get


class RoutedLayer(nn.Module):
    """Weights, a routing and the learned tensors that it declares for parents that see ``children`` capsules each.

    ``children`` is None for any number of them. Such a layer cannot own a tensor with one entry per child, such as the
    prior (I, J) of self-attention: it owns those whose shape is the same for one child and for two, and leaves the
    others out of every call, which makes them neutral.
    """

    def __init__(
        self, routing: str | Routing, weight: nn.Parameter, parents: int, dim: int, children: int | None, pose: Pose
    ) -> None:
        super().__init__()
        self.routing = get(routing)
        self.weight = weight
        self.pose: Pose = pose
        counts = (1, 2) if children is None else (children, children)
        one, other = (self.routing.param_shapes(I, parents, dim) for I in counts)
        shapes = {name: shape for name, shape in one.items() if other.get(name) == shape}
        self.routing_params = nn.ParameterDict({name: weight.new_empty(shape) for name, shape in shapes.items()})
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weights by ``start_weight`` and the routing's tensors by its ``param_init``."""
        start_weight(self.weight, self.pose)
        for name, tensor in self.routing_params.items():
            tensor.data.copy_(self.routing.param_init(name, tuple(tensor.shape)))

    def route(self, votes: Tensor, act: Tensor | None, **options: Any) -> Routed:
        """Call the routing with the learned tensors."""
        return self.routing(votes, act, params=dict(self.routing_params.items()), **options)
