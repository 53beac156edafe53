"""What every model answers, and how: one output, one loss, one way to decode."""

from typing import Annotated, Any, NamedTuple, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from capsnet.routing import Routing, Trace, get, option_names

Count: TypeAlias = Annotated[int, Field(ge=1)]  # what create_model refuses to take less of
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Output(NamedTuple):
    """A model's output. ``lengths`` (B, J) are the presences of the classes, whatever the model calls them inside."""

    lengths: Tensor
    poses: Tensor | None = None  # (B, J, D)
    reconstruction: Tensor | None = None  # (B, C, H, W), or (B, K, C, H, W) where K pictures were asked for
    logits: Tensor | None = None  # (B, J)
    trace: Trace | None = None


class Loss(NamedTuple):
    """The number to minimise, and the named parts it is the sum of."""

    total: Tensor
    parts: dict[str, Tensor]


class ReceptiveField(NamedTuple):
    """The pixels that a child sees, on both axes alike: ``size`` of them from ``start + stride * position`` on."""

    size: int
    stride: int
    start: int = 0

    @classmethod
    def of_windows(cls, *windows: tuple[int, int]) -> "ReceptiveField":
        """That of square unpadded windows (size, stride) on top of each other, from the image upwards."""
        size = stride = 1
        for window, step in windows:
            size, stride = size + (window - 1) * stride, stride * step
        return cls(size, stride)


class Margins(NamedTuple):
    """What the margin loss [Eq. 4] asks: lengths above ``present`` for present classes, below ``absent`` for others."""

    present: float = 0.9
    absent: float = 0.1


class Model(nn.Module):
    """Base class of all models.

    ``config`` rebuilds the model (``create_model(**config)``). ``class_names``, ``preprocessing`` and ``card`` (where
    the weights come from) are saved with the weights, so that a file can be used on its own.

    A model describes itself; None means that there is no such thing:

    - ``pose_dim``: numbers per class capsule.
    - ``grid``: how the children of the class capsules lie in the image, (H, W, types).
    - ``receptive_field``: the pixels that a child at (y, x) of the grid sees. Children that compete for what they see
      also depend on their neighbours, through the couplings.
    - ``margins``: those of its loss.
    - ``draws``: whether ``decode`` works.
    - ``routed_layers()``: its layers that route, by name; ``class_routing``: the routing of the class capsules.
    """

    takes_texts = False  # word numbers (B, L) instead of images
    pose_dim: int | None = None
    grid: tuple[int, int, int] | None = None
    receptive_field: ReceptiveField | None = None
    margins: Margins | None = None

    def __init__(self, image_size: tuple[Count, Count], in_channels: Count, num_classes: Count) -> None:
        super().__init__()
        height, width = image_size
        self.image_size = (height, width)
        self.in_channels = in_channels
        self.num_classes = num_classes
        self.config: dict[str, Any] = {}
        self.class_names = tuple(str(k) for k in range(num_classes))
        self.preprocessing: dict[str, Any] = {}
        self.card: dict[str, Any] = {}

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        """Images (B, C, H, W) in [0, 1] -> ``Output``.

        ``labels`` choose which capsules are decoded: (B,) or (B, J) multi-hot into one picture, (B, K, J) into K.
        """
        raise NotImplementedError

    def loss(
        self,
        output: Output,
        targets: Tensor,
        images: Tensor,
        weights: Tensor | None = None,
        *,
        step: int | None = None,
    ) -> Loss:
        """The model's own objective for ``targets`` (B,) or (B, J) multi-hot.

        ``images`` are what the reconstruction should look like, of its shape: the input, or K objects of it apart.
        ``weights`` (B,) say how much each example counts; None counts all alike. ``step`` is the number of training
        steps before this one, for objectives that change during training; None means that they no longer do.
        """
        raise NotImplementedError

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Poses (B, J, D) as pictures: classes (B,) -> (B, C, H, W), classes (B, K) -> (B, K, C, H, W)."""
        raise ValueError(f"{self.config.get('name', type(self).__name__)} has no decoder")

    def forward_features(self, images: Tensor) -> Any:
        """What the class layer gets: ``Capsules`` (or, in a network without capsules, feature maps) of the images."""
        raise ValueError(f"{self.config.get('name', type(self).__name__)} has no features of its own")

    @property
    def draws(self) -> bool:
        return False

    def routed_layers(self) -> dict[str, nn.Module]:
        """The layers that route, by their names in ``named_modules``; the parents of the last one are the classes."""
        named = self.named_modules()
        return {name: layer for name, layer in named if name and isinstance(getattr(layer, "routing", None), Routing)}

    @property
    def class_routing(self) -> Routing | None:
        """The routing of the class capsules, or None where nothing is routed."""
        routings: list[Any] = [layer.routing for layer in self.routed_layers().values()]
        return routings[-1] if routings else None

    def extra_repr(self) -> str:
        height, width = self.image_size
        return f"input={self.in_channels}x{height}x{width}, classes={self.num_classes}"

    def example_inputs(self, count: int) -> Tensor:
        """A batch of random inputs of the right shape and kind, to try the model with."""
        return torch.rand(count, self.in_channels, *self.image_size)

    def num_parameters(self) -> int:
        """How many trainable numbers the model has."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def check_images(self, images: Tensor) -> None:
        """Refuse images that the model cannot take, in one sentence."""
        expected = (self.in_channels, *self.image_size)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            raise ValueError(
                f"expected images of shape (B, {', '.join(map(str, expected))}), got {tuple(images.shape)}"
            )
        if not images.is_floating_point():
            raise ValueError(f"expected floating-point images in [0, 1], got {images.dtype}: divide pixels by 255")
        own = next(self.parameters()).dtype
        if images.dtype != own and not torch.is_autocast_enabled(images.device.type):
            raise ValueError(f"expected images of {own}, as the weights are, got {images.dtype}")


def build_routing(
    name: str, iterations: int | None = None, squash: str | None = None, options: dict[str, Any] | None = None
) -> Routing:
    """A model's routing. ``iterations`` and ``squash`` go to routings that have them. For a routing without iterations a
    number of them is an error; without a squash, the squash applies to the layers only."""
    chosen = dict(options or {})
    if iterations is not None:
        chosen["iterations"] = iterations
    if squash is not None and "squash" in option_names(name):
        chosen.setdefault("squash", squash)
    return get(name, **chosen)
