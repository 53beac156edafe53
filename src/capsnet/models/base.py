"""The interface of all models: output, loss, decoder, description."""

from typing import Annotated, Any, NamedTuple, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from capsnet._limits import MOST, MOST_REPEATS, MOST_SIDE
from capsnet.routing import Routing, Trace, get, option_names

# create_model checks these ranges; their upper ends keep a small file from asking for a huge network
Count: TypeAlias = Annotated[int, Field(ge=1, le=MOST)]
Few: TypeAlias = Annotated[int, Field(ge=1, le=MOST_REPEATS)]  # of what is repeated: layers, blocks, steps
Side: TypeAlias = Annotated[int, Field(ge=1, le=MOST_SIDE)]  # pixels
Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


class Output(NamedTuple):
    """A model's output. ``lengths`` (B, J) are the presences of the classes."""

    lengths: Tensor
    poses: Tensor | None = None  # (B, J, D)
    reconstruction: Tensor | None = None  # (B, C, H, W), or (B, K, C, H, W) for K pictures per example
    logits: Tensor | None = None  # (B, J)
    trace: Trace | None = None
    phases: Tensor | None = None  # (B, C, n, H, W): C oscillators per pixel that bind it to an object
    labels: Tensor | None = None  # those given to ``forward``, where the loss needs them
    presence: Tensor | None = None  # (B, I): of the children of the class capsules, where the loss needs it


class Loss(NamedTuple):
    """The number to minimise, and its named summands."""

    total: Tensor
    parts: dict[str, Tensor]


class ReceptiveField(NamedTuple):
    """The pixels that a child sees, on both axes alike: ``size`` of them from ``start + stride * position`` on."""

    size: int
    stride: int
    start: int = 0

    @classmethod
    def of_windows(cls, *windows: tuple[int, int] | tuple[int, int, int]) -> "ReceptiveField":
        """That of square windows (size, stride) or (size, stride, padding) on top of each other, from the image up."""
        size, stride, start = 1, 1, 0
        for window, step, *padding in windows:
            start -= stride * sum(padding)
            size, stride = size + (window - 1) * stride, stride * step
        return cls(size, stride, start)


class Margins(NamedTuple):
    """Of the margin loss [Eq. 4]: lengths above ``present`` for present classes, below ``absent`` for others."""

    present: float = 0.9
    absent: float = 0.1


class Model(nn.Module):
    """Base class of all models.

    ``config`` rebuilds the model (``create_model(**config)``). ``class_names``, ``preprocessing`` and ``card`` (where
    the weights come from) are saved with the weights.

    A model describes itself; None means that there is no such thing:

    - ``pose_dim``: numbers per class capsule.
    - ``grid``: how the children of the class capsules lie in the image, (H, W, types).
    - ``receptive_field``: the pixels that a child at (y, x) of the grid sees. After convolutional capsules it also
      depends on its neighbours, through the couplings; if the network standardises its images, on their mean and
      contrast.
    - ``margins``: those of its loss.
    - ``draws``: whether ``decode`` works.
    - ``routed_layers()``: its layers that route, by name; ``class_routing``: the routing of the class capsules.
    - ``transferred``: its integer tensors that belong to the weights. Others count steps of a training, and a training
      that starts from these weights begins to count anew.
    """

    takes_texts = False  # word numbers (B, L) instead of images
    pose_dim: int | None = None
    grid: tuple[int, int, int] | None = None
    receptive_field: ReceptiveField | None = None
    margins: Margins | None = None
    transferred: tuple[str, ...] = ()

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
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        """The model's objective for ``targets`` (B,) or (B, J) multi-hot.

        ``images`` are the targets of the reconstruction: the input, or its K objects. ``weights`` (B,) are those of the
        examples; None is 1. ``step`` is the number of training steps before this one, for objectives that change
        during training; None: after the change.
        """
        raise NotImplementedError

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Poses (B, J, D) as pictures: classes (B,) -> (B, C, H, W), classes (B, K) -> (B, K, C, H, W)."""
        hint = ": build it with decoder=True" if "decoder" in self.config else ""
        raise ValueError(f"{self.config.get('name', type(self).__name__)} has no decoder{hint}")

    def forward_features(self, images: Tensor) -> Any:
        """The input of the class layer: ``Capsules``, or feature maps in a network without capsules."""
        raise ValueError(f"{self.config.get('name', type(self).__name__)} has no forward_features")

    @property
    def draws(self) -> bool:
        return False

    def routed_layers(self) -> dict[str, nn.Module]:
        """The layers that route, by their names in ``named_modules``; the parents of the last one are the classes."""
        named = self.named_modules()
        return {name: layer for name, layer in named if name and isinstance(getattr(layer, "routing", None), Routing)}

    @property
    def class_routing(self) -> Routing | None:
        """The routing of the class capsules, or None."""
        routings: list[Any] = [layer.routing for layer in self.routed_layers().values()]
        return routings[-1] if routings else None

    def extra_repr(self) -> str:
        height, width = self.image_size
        return f"input={self.in_channels}x{height}x{width}, classes={self.num_classes}"

    def example_inputs(self, count: int) -> Tensor:
        """A batch of random inputs."""
        return torch.rand(count, self.in_channels, *self.image_size)

    def num_parameters(self) -> int:
        """The number of trainable parameters."""
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
        dtype = next(self.parameters()).dtype
        if images.dtype != dtype and not torch.is_autocast_enabled(images.device.type):
            raise ValueError(f"expected images of {dtype}, as the weights are, got {images.dtype}")


def build_routing(
    name: str, iterations: int | None = None, squash: str | None = None, options: dict[str, Any] | None = None
) -> Routing:
    """A model's routing. ``iterations`` is an error for a routing without iterations; ``squash`` is ignored by one
    without a squash, and then applies to the layers only."""
    settings = dict(options or {})
    if iterations is not None:
        settings["iterations"] = iterations
    if squash is not None and "squash" in option_names(name):
        settings.setdefault("squash", squash)
    return get(name, **settings)
