"""Routings that sharpen during training: what a step uses, what is evaluated and saved, and an exact resume."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import capsnet
from capsnet.routing import Kuramoto
from capsnet.training import TrainConfig
from capsnet.training.growth import routing_at
from tests.training.test_resume import interrupt, weights_of

GROWING: dict[str, Any] = {"beta": 6.0, "grow": 0.5}


@pytest.fixture
def growing(quick: TrainConfig) -> TrainConfig:
    options = quick.model_options | {"routing_options": GROWING}
    return dataclasses.replace(quick, routing="kuramoto", model_options=options)


def test_block_has_the_routing_of_that_progress_and_restores_it(tiny: capsnet.Model) -> None:
    layer: Any = tiny.classes
    layer.routing = final = Kuramoto(**GROWING)
    with routing_at(tiny, 0.25):
        assert layer.routing.beta == 3.0
    assert layer.routing is final
    with pytest.raises(ValueError, match="expected images"), routing_at(tiny, 0.0):
        tiny(torch.zeros(1))
    assert layer.routing is final, "also after an error"


def test_training_grows_beta_and_evaluates_at_its_final_value(
    growing: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[float] = []
    tested: list[float] = []
    route = Kuramoto.route

    def recorded(self: Kuramoto, votes: torch.Tensor, *arguments: Any) -> Any:
        (trained if votes.requires_grad else tested).append(self.beta)
        return route(self, votes, *arguments)

    monkeypatch.setattr(Kuramoto, "route", recorded)
    with capsnet.kernels.using("plain"):
        result = capsnet.train(growing, out=tmp_path / "run", figures=False)
    steps = len(trained)
    assert trained == pytest.approx([min(6.0, 6.0 * 2 * step / steps) for step in range(steps)])
    assert trained[0] == 0
    assert set(tested) == {6.0}
    saved = capsnet.load(result.folder)
    assert saved.class_routing == result.model.class_routing == Kuramoto(**GROWING)


def test_resumed_run_equals_an_uninterrupted_one(growing: TrainConfig, tmp_path: Path) -> None:
    whole = capsnet.train(growing, out=tmp_path / "whole", figures=False)
    interrupt(growing, 2, out=tmp_path / "parts")
    parts = capsnet.train(growing, out=tmp_path / "parts", resume="auto", figures=False)
    assert weights_of(parts.folder) == weights_of(whole.folder)
