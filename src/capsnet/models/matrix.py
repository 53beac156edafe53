"""Matrix capsules: Hinton, Sabour, Frosst, *Matrix capsules with EM routing*, ICLR 2018 [its Figure 1]."""

from typing import Any

import torch
from torch import Tensor, nn

from capsnet.functional import spread_loss, spread_margin
from capsnet.layers import Capsules, ClassCaps, ConvCaps, route_concurrently
from capsnet.layers.concurrent import join_traces
from capsnet.models.base import Count, Loss, Model, Output, ReceptiveField, Side, build_routing
from capsnet.models.residual import Repeats, ResidualBlock
from capsnet.routing import Routed, Routing, get, list_forms

LEAST = 17  # pixels: 17 -> 7 -> 7 -> 3 -> 1 positions


class MatrixCapsNet(Model):
    """Convolution, primary capsules with a 4x4 pose and an activation, two convolutional capsule layers, classes.

    Conv 5x5 stride 2, ReLU -> 1x1 convolutions to poses and activations -> 3x3 stride 2 -> 3x3 stride 1 -> one capsule
    per class with weights shared over positions and the position added to the votes. All parents of a child compete,
    across positions. The presence of a class is the activation of its capsule.

    The loss is the spread loss, whose margin grows from 0.2 to 0.9 during the first ``margin_steps`` training steps.

    Args:
        image_size, in_channels, num_classes: any; images of at least 17 x 17.
        widths: channels of the convolution, and types of primary, first and second convolutional capsules.
        routing: name of the routing, the same in all three places.
        iterations: its number of iterations; None leaves the routing's own default.
        routing_options: the routing's other hyper-parameters, e.g. ``{"inverse_temperature": 0.01}``.
        concurrent: all three layers iterate together, each from the poses of the iteration before, instead of one after
            the other (``layers.concurrent``). The routing must declare ``continues``, as ``inverted-attention`` does.
        margin_steps: over how many training steps the margin grows.
        blocks: the number of residual blocks after the convolution, which then has BatchNorm; 0 as in the paper.
    """

    pose_dim = 16

    def __init__(
        self,
        image_size: tuple[Side, Side] = (28, 28),
        in_channels: Count = 1,
        num_classes: Count = 10,
        widths: tuple[Count, Count, Count, Count] = (32, 32, 32, 32),
        routing: str = "em",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
        margin_steps: Count = 2000,
        concurrent: bool = False,
        blocks: Repeats = 0,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        height, width = self.image_size
        if min(height, width) < LEAST:
            raise ValueError(
                f"images of {height} x {width} are too small for a 5x5 and two 3x3 windows with strides 2, 2 and 1: "
                f"at least {LEAST} x {LEAST} are needed"
            )
        channels, primary, first, second = widths
        self.margin_steps = margin_steps
        self.primary_types = primary
        self.receptive_field = ReceptiveField.of_windows((5, 2), *[(3, 1, 1)] * (2 * blocks), (3, 2), (3, 1))
        self.conv = nn.Conv2d(in_channels, channels, 5, stride=2)
        norm = [nn.BatchNorm2d(channels)] if blocks else []
        self.stem = nn.Sequential(*norm, nn.ReLU(), *(ResidualBlock(channels) for _ in range(blocks)))
        self.poses = nn.Conv2d(channels, primary * 16, 1)  # channel = type * 16 + d
        self.presence = nn.Conv2d(channels, primary, 1)
        route = build_routing(routing, iterations, None, routing_options)
        if concurrent:
            _check_concurrent(route)
        self.concurrent = concurrent
        self.first = ConvCaps(primary, first, 3, 2, pose="matrix", routing=route)
        self.second = ConvCaps(first, second, 3, 1, pose="matrix", routing=route)
        self.classes = ClassCaps(second, num_classes, pose="matrix", routing=route)
        positions = self.first.grid(*((size - 5) // 2 + 1 for size in self.image_size))[:2]
        self.grid = self.second.grid(*positions)  # (H', W', types) of the classes' children
        self.register_load_state_dict_pre_hook(_drop_steps)

    def forward_features(self, images: Tensor) -> Capsules:
        return self._children(images)[-1]

    def _children(self, images: Tensor) -> list[Capsules]:
        """What the class capsules see; with concurrent routing, in each of their iterations."""
        self.check_images(images)
        maps = self.stem(self.conv(images.contiguous(memory_format=torch.channels_last)))  # (B, A, H, W)
        poses = self.poses(maps).movedim(1, -1).unflatten(-1, (self.primary_types, 16))  # (B, H, W, T, 16)
        presence = self.presence(maps).movedim(1, -1).sigmoid()  # (B, H, W, T)
        if not self.concurrent:
            poses, presence, _ = self.first(poses, presence)
            poses, presence, _ = self.second(poses, presence)
            return [Capsules(poses, presence)]
        # what a layer computes reaches the classes two iterations (of the first) or one (of the second) later
        last = self._iterations
        first = route_concurrently(self.first, [Capsules(poses, presence)] * last, max(1, last - 2))
        second = route_concurrently(self.second, first, max(1, last - 1))
        return [Capsules(*parents[:2]) for parents in second]

    @property
    def _iterations(self) -> int:
        return getattr(self.classes.routing, "iterations")  # noqa: B009 - not every routing has it

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        poses, presence, history = self._classes(self._children(images), trace)  # (B, J, 16), (B, J)
        return Output(lengths=presence, poses=poses, trace=history)

    def _classes(self, children: list[Capsules], trace: bool) -> Routed:
        if not self.concurrent:
            return self.classes(*children[0], trace=trace)
        parents = route_concurrently(self.classes, children, self._iterations, trace=trace)
        return parents[-1]._replace(trace=join_traces(parents)) if trace else parents[-1]

    def loss(
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        """Spread loss, with the margin of training step ``step``; None: fully grown."""
        steps = torch.tensor(self.margin_steps if step is None else step, device=output.lengths.device)
        margin = spread_margin((steps / self.margin_steps).clamp_max(1))
        total = spread_loss(output.lengths, targets, margin, weights=weights)
        return Loss(total, {"spread": total})


def _check_concurrent(route: Routing) -> None:
    if not route.continues:
        known = ", ".join(name for name in list_forms() if get(name).continues)
        raise ValueError(
            f"concurrent=True needs a routing that can start from given parents ({known}), which {route.name} cannot"
        )


def _drop_steps(_model: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Drop the number of training steps, which weights of earlier versions contain."""
    state_dict.pop(f"{prefix}steps", None)
