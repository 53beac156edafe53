"""What capsule layers pass to each other, also in ``nn.Sequential``."""

from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

from capsnet.functional import Squash, full_precision, length
from capsnet.routing import Routed


class Capsules(NamedTuple):
    """Poses (B, I, D), or (B, H, W, T, D) on a grid, and how present each capsule is: (B, I) or (B, H, W, T).

    ``act`` is None if the presence is the length of the pose.
    """

    pose: Tensor
    act: Tensor | None = None


Children: TypeAlias = Tensor | Capsules | Routed  # what capsule layers take: poses alone, or with presences


def squash_capsules(s: Tensor, squash: Squash) -> Capsules:
    """Squash the last axis, in float32 under autocast. ``act`` is None if the presence is the length."""
    s = full_precision(s)
    return Capsules(squash.function(s, -1)) if squash.presence_is_length else Capsules(*squash(s))


def split_children(children: Children, act: Tensor | None) -> Capsules:
    """Poses and presences of a layer's input; ``act``, if not None, replaces the presences."""
    if isinstance(children, Tensor):
        return Capsules(children, act)
    return Capsules(children[0], children[1] if act is None else act)


def presences(capsules: Children) -> Tensor:
    """How present each capsule is: its presence, or where it has none, its length."""
    pose, act = split_children(capsules, None)
    return length(pose) if act is None else act


class Lengths(nn.Module):
    """How present each capsule is: the last module of an ``nn.Sequential`` that classifies.

    Shapes: ``Routed`` or ``Capsules`` of I capsules, or poses (B, I, D) -> (B, I).
    """

    def forward(self, capsules: Children) -> Tensor:
        return presences(capsules)


class Poses(nn.Module):
    """The poses without presences, so that the next capsule layer does not weigh its children by them.

    Shapes: ``Routed`` or ``Capsules`` of I capsules -> (B, I, D).
    """

    def forward(self, capsules: Children) -> Tensor:
        return split_children(capsules, None).pose
