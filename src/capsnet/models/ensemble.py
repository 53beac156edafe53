"""Several trained networks as one model: the mean of their capsule lengths."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from capsnet._limits import MOST_REPEATS
from capsnet.models._registry import ENSEMBLE, create_model
from capsnet.models.base import Loss, Model, Output


class Ensemble(Model):
    """Networks with the same classes and input; ``lengths`` is the mean of theirs.

    Networks that were trained from different seeds err on different examples, so their mean errs less often than each
    of them. The mean is still a length between 0 and 1, so the threshold of 0.5 keeps its meaning.

    Poses of different networks are not comparable, so they are not averaged: ``poses`` and ``reconstruction`` are those
    of the first member with a decoder (else the first with poses, or None). It decodes the capsule that is longest
    *on average*.

    Args:
        members: at least two models with the same input, classes and preprocessing. An ensemble among them is replaced
            by its members.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        networks = [network for model in members for network in _networks(model)]
        if len(networks) < 2:
            raise ValueError(f"an ensemble has at least two members, got {len(networks)}")
        first = members[0]
        for number, other in enumerate(members[1:], start=2):
            _check_alike(first, other, number)
        super().__init__(first.image_size, first.in_channels, first.num_classes)
        self.takes_texts = first.takes_texts
        self.members = nn.ModuleList(networks)
        self.class_names, self.preprocessing = first.class_names, first.preprocessing
        drawing, posing = [m for m in networks if m.draws], [m for m in networks if m.pose_dim]
        self.pose_dim = (drawing + posing + networks)[0].pose_dim
        self.margins = first.margins if all(model.margins == first.margins for model in networks) else None
        if all(model.config for model in networks):
            self.config = {"name": ENSEMBLE, "members": [model.config for model in networks]}
        self.card = {"summary": f"the mean of {len(networks)} networks", "members": [m.card for m in members]}
        if "data" in first.card and all(model.card.get("data") == first.card["data"] for model in members):
            self.card["data"] = first.card["data"]

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        """The mean of the members. There is no trace."""
        outputs: list[Output] = [member(images, labels) for member in self.members]
        lengths = torch.stack([output.lengths for output in outputs]).mean(dim=0)  # (B, J)
        drawing = [(m, o) for m, o in zip(_networks(self), outputs, strict=True) if m.draws]
        if not drawing:
            return Output(lengths, next((output.poses for output in outputs if output.poses is not None), None))
        member, output = drawing[0]
        if labels is None:
            assert output.poses is not None
            return Output(lengths, output.poses, member.decode(output.poses, lengths.argmax(dim=1)))
        return Output(lengths, output.poses, output.reconstruction)

    def loss(
        self, output: Output, targets: Tensor, images: Tensor, weights: Tensor | None = None, *, step: int | None = None
    ) -> Loss:
        raise ValueError("an ensemble is not trained: train its members")

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        for member in _networks(self):
            if member.draws:
                return member.decode(poses, classes)
        raise ValueError("no member of the ensemble has a decoder")

    @property
    def draws(self) -> bool:
        return any(member.draws for member in _networks(self))

    def example_inputs(self, count: int) -> Tensor:
        return _networks(self)[0].example_inputs(count)

    def routed_layers(self) -> dict[str, nn.Module]:
        """None of the ensemble; the members have theirs."""
        return {}


def rebuild(config: Mapping[str, Any]) -> Model:
    """The untrained model that a ``model.config`` describes: a registered one, or an ensemble of such."""
    if config.get("name") != ENSEMBLE:
        return create_model(**config)
    members = config.get("members")
    if not isinstance(members, list | tuple) or not all(isinstance(member, dict) for member in members):
        raise ValueError("an ensemble lists the configs of its members")
    if len(members) > MOST_REPEATS:
        raise ValueError(f"an ensemble has at most {MOST_REPEATS} members, got {len(members):,}")
    return Ensemble([create_model(**member) for member in members])


def _networks(model: Model) -> list[Model]:
    """The single networks of a model: an ensemble's members, else itself."""
    if not isinstance(model, Ensemble):
        return [model]
    return [member for member in model.members if isinstance(member, Model)]


def _check_alike(first: Model, other: Model, number: int) -> None:
    """Refuse members whose outputs cannot be averaged."""
    for what, one, two in (
        ("kind of input", *("texts" if m.takes_texts else "pictures" for m in (first, other))),
        ("image size", first.image_size, other.image_size),
        ("channels", first.in_channels, other.in_channels),
        ("classes", list(first.class_names), list(other.class_names)),
        ("preprocessing", *(json.loads(json.dumps(m.preprocessing)) for m in (first, other))),  # as in a file
    ):
        if one != two:
            raise ValueError(
                f"the members of an ensemble must agree in {what}: the first has {_short(one)}, "
                f"number {number} has {_short(two)}"
            )


def _short(value: Any) -> str:
    text = str(value) or "none"
    return text if len(text) <= 120 else f"{text[:117]}..."
