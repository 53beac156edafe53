"""The features of a picture are computed once for all panels, and change no answer."""

from typing import Any

import pytest
import torch

import capsnet
from capsnet.explorer._features import KEPT, Features
from capsnet.models import Model, reroute

SMALL = {
    "capsnet": {"conv_channels": 8, "primary_types": 2, "decoder_widths": (8,)},
    "matrix-capsnet-small": {"widths": (4, 2, 2, 2)},
    "cnn-small": {},
}


def build(name: str) -> Model:
    torch.manual_seed(0)
    return capsnet.create_model(name, **SMALL[name]).eval()


def count_calls(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls, compute = [0], model.forward_features

    def counted(images: torch.Tensor) -> Any:
        calls[0] += 1
        return compute(images)

    monkeypatch.setattr(model, "forward_features", counted)
    return calls


@pytest.mark.parametrize("name", SMALL)
@torch.inference_mode()
def test_outputs_equal_those_of_a_whole_pass(name: str) -> None:
    model, image = build(name), torch.rand(1, 1, 28, 28)
    features = Features(model)
    others = [(None, 1), ("uniform", None)] if name == "capsnet" else [(None, 1)] if model.routed_layers() else []
    for routing, iterations in [(None, None), *others, (None, None)]:
        rerouted = reroute(model, routing, iterations)
        output, seconds = features.run(rerouted, image, trace=True)
        expected = rerouted(image, trace=True)
        assert seconds > 0
        assert torch.equal(output.lengths, expected.lengths)
        if expected.trace is not None:
            assert output.trace is not None
            assert torch.equal(output.trace.couplings, expected.trace.couplings)
            assert output.trace.grid == expected.trace.grid


@torch.inference_mode()
def test_features_are_computed_once_for_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("capsnet")
    features, calls = Features(model), count_calls(model, monkeypatch)
    pictures = torch.rand(KEPT + 1, 1, 1, 28, 28)
    for iterations in (None, 1, 10):
        features.run(reroute(model, None, iterations), pictures[0])
    assert calls == [1]
    for picture in pictures[1:]:
        features.run(model, picture)
    assert len(features._kept) == KEPT
    features.run(model, pictures[0])  # forgotten
    assert calls == [KEPT + 2]


def test_changed_weights_are_noticed() -> None:
    model, image = build("capsnet"), torch.rand(1, 1, 28, 28)
    features = Features(model)
    with torch.no_grad():
        before = features.run(model, image)[0].lengths
        model.get_submodule("conv").weight.mul_(3)  # type: ignore[union-attr, operator]
        after = features.run(model, image)[0].lengths
        assert not torch.equal(before, after)
        assert torch.equal(after, model(image).lengths)
