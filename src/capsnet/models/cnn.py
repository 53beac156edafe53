"""Convolutional networks to compare with: the paper's baselines and others [Section 5, Section 6]."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from capsnet.layers.decoupled import Angle, DecoupledConv2d, Length
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Side


class CNN(ScoringModel):
    """Convolutions with SAME padding, fully connected layers, dropout, class scores.

    The defaults are the paper's MNIST baseline: 5x5 x 256, 256, 128 without pooling, FC 328 and 192: 35,445,522
    parameters. ``pool`` adds 2x2 max-pooling after each convolution, as in the paper's MultiMNIST baseline.
    ``multi_label``: independent classes (sigmoid) instead of exclusive ones (softmax). ``init``: the initial weights,
    PyTorch's, or He et al.'s for ReLU, without which the large baseline learns nothing in its first hundred steps.

    ``length`` makes the convolutions decoupled, and ``angle`` goes with it: h and g of ``layers.DecoupledConv2d``.

    ``strides``, ``batch_norm`` (after each ReLU) and ``padded=False`` make the stem of an Efficient-CapsNet.
    """

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        channels: tuple[Count, ...] = (256, 256, 128),
        kernel_sizes: tuple[Count, ...] = (5, 5, 5),
        widths: tuple[Count, ...] = (328, 192),
        pool: bool = False,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5,
        multi_label: bool = False,
        init: Literal["torch", "he"] = "torch",
        strides: tuple[Count, ...] | None = None,
        batch_norm: bool = False,
        padded: bool = True,
        length: Length | None = None,
        angle: Angle = "cosine",
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        if len(channels) != len(kernel_sizes):
            raise ValueError(f"{len(channels)} convolutions but {len(kernel_sizes)} kernel sizes")
        if length is None and angle != "cosine":
            raise ValueError(f"angle is of decoupled convolutions: set length, too, got angle={angle!r} alone")
        strides = strides or (1,) * len(channels)
        if len(channels) != len(strides):
            raise ValueError(f"{len(channels)} convolutions but {len(strides)} strides")
        if padded and set(strides) - {1}:
            raise ValueError(
                f"convolutions that keep the size of their map have stride 1, got {strides}: set padded=False"
            )
        if length is not None and padded and not all(kernel % 2 for kernel in kernel_sizes):
            raise ValueError(
                f"decoupled convolutions that keep the size of their map have odd kernels, got {kernel_sizes}"
            )
        self.multi_label = multi_label
        height, width = self.image_size
        blocks: list[nn.Module] = []
        for (i, o), kernel, stride in zip(pairwise((in_channels, *channels)), kernel_sizes, strides, strict=True):
            if length is None:
                blocks += [nn.Conv2d(i, o, kernel, stride, padding="same" if padded else 0), nn.ReLU()]
            else:
                padding = kernel // 2 if padded else 0
                blocks += [DecoupledConv2d(i, o, kernel, stride, padding, length, angle), nn.ReLU()]
            if not padded:
                height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            if batch_norm:
                blocks.append(nn.BatchNorm2d(o))
            if pool:
                blocks.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
        if min(height, width) < 1:
            what = "pool" if pool and padded else "convolve"
            raise ValueError(
                f"images of {image_size[0]} x {image_size[1]} are too small to {what} {len(channels)} times"
            )
        self.features = nn.Sequential(*blocks)
        sizes = ((channels[-1] if channels else in_channels) * height * width, *widths)
        dense = [m for i, o in pairwise(sizes) for m in (nn.Linear(i, o), nn.ReLU())]
        self.head = nn.Sequential(nn.Flatten(), *dense, nn.Dropout(dropout), nn.Linear(sizes[-1], num_classes))
        for module in self.modules() if init == "he" else ():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward_features(self, images: Tensor) -> Tensor:
        """The maps of the last convolution."""
        self.check_images(images)
        return self.features(images)
