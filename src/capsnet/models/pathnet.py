"""PathNet: layers of reusable modules, and a path for each task (Fernando et al. 2017, arXiv 1701.08734)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from capsnet.layers.pathways import PathwayLayer
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Few, Side


class PathNet(ScoringModel):
    """L layers of M modules each, of which the N of the current path are active; a linear layer per task.

    The defaults are those of the paper's experiment with MNIST: 3 layers of 10 modules of 20 units, 3 active. Which
    path to use is found by evolution, see ``capsnet reproduce pathnet``; trained like any other network it keeps the
    path ``path``. ``freeze`` fixes the modules of a path for ever and initialises all others anew: the answers along
    that path, with that task's head, stay equal to the bit whatever is trained later, with any optimiser, in copies of
    the network and in those that start from its file.

    Args:
        image_size, in_channels, num_classes: any.
        layers, modules, units: L, M, and outputs per module.
        active: N modules per layer, at most M.
        multi_label: independent classes (sigmoid) instead of exclusive ones (softmax).
    """

    transferred = ("path", "frozen")

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        layers: Few = 3,
        modules: Few = 10,
        active: Few = 3,
        units: Count = 20,
        multi_label: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        if active > modules:
            raise ValueError(f"{active} modules cannot be active in a layer of {modules}")
        self.multi_label, self.modules_per_layer, self.active = multi_label, modules, active
        sizes = [in_channels * self.image_size[0] * self.image_size[1], *[units] * layers]
        self.layers = nn.ModuleList(
            PathwayLayer(inputs, units, modules, mean=number == layers - 1) for number, inputs in enumerate(sizes[:-1])
        )
        self.head = nn.Sequential(nn.Linear(units, num_classes))
        self.path: Tensor
        self.frozen: Tensor
        self.register_buffer("path", torch.arange(active).repeat(layers, 1))  # (L, N)
        self.register_buffer("frozen", torch.zeros(layers, modules, dtype=torch.bool))
        self.register_load_state_dict_post_hook(_fix_frozen)

    def choose(self, path: Sequence[Sequence[int]]) -> None:
        """Set the path: module numbers of each layer. A number that occurs twice is active once."""
        self.path.copy_(self.check_path(path))

    def check_path(self, path: Sequence[Sequence[int]] | Tensor) -> Tensor:
        """The path as (L, N) numbers; what is no path of this network is refused in one sentence."""
        (L, N), M = self.path.shape, self.modules_per_layer
        try:
            chosen = torch.as_tensor([list(genes) for genes in path])
        except (TypeError, ValueError):  # ragged, or no numbers at all
            chosen = torch.empty(0)
        whole = chosen.dtype in (torch.int32, torch.int64)
        if chosen.shape != (L, N) or not whole or int(chosen.min()) < 0 or int(chosen.max()) >= M:
            shown = path.tolist() if isinstance(path, Tensor) else path
            raise ValueError(f"a path has {L} x {N} module numbers from 0 to {M - 1}, got {shown}")
        return chosen

    def freeze(self) -> None:
        """Fix the modules of the current path, and initialise all other modules and the head anew."""
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, PathwayLayer)
            self.frozen[number, self.path[number]] = True
            layer.fix(self.frozen[number])
            layer.reset([k for k in range(self.modules_per_layer) if not self.frozen[number, k]])
        for head in self.head:
            head.reset_parameters()  # type: ignore[operator]

    def forward_features(self, images: Tensor) -> Tensor:
        """What the current path gives the head."""
        self.check_images(images)
        features = images.flatten(1)
        for layer, genes in zip(self.layers, self.path, strict=True):
            features = layer(features, genes.unique())
        return features


def _fix_frozen(model: PathNet, _: object) -> None:
    """After loading, with the loaded tensors. Not a method: the hook of a copy would belong to the original."""
    model.check_path(model.path)
    for layer, frozen in zip(model.layers, model.frozen, strict=True):
        assert isinstance(layer, PathwayLayer)
        layer.fix(frozen)
