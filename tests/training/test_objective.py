"""The gradient of a step does not depend on how the batch is divided."""

import dataclasses

import pytest
import torch

import capsnet
from capsnet.training import TrainConfig, objective


def test_micro_batches_add_up_to_the_whole_gradient(tiny: capsnet.Model, quick: TrainConfig) -> None:
    """The gradient itself, in float64, where nothing but the order of sums differs."""
    model = tiny.double().train()
    batch = capsnet.data.Batch(torch.rand(7, 1, 20, 22).double(), torch.arange(7) % 3, torch.arange(7))
    weights, scaler = torch.tensor([0.5, 1.0, 2.0]).double(), torch.amp.GradScaler("cpu", enabled=False)
    gradients = []
    for parts in (1, 3, 7):
        config = dataclasses.replace(quick, accumulate=parts)
        model.zero_grad()
        whole = objective.Objective(model, "fp32")
        losses = objective.backward(config, whole, model, scaler, batch, objective.Piece(7, 7), weights, 0)
        gradients.append([losses["loss"], *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for other in gradients[1:]:
        assert other[0] == pytest.approx(gradients[0][0], rel=1e-6)
        for mine, first in zip(other[1:], gradients[0][1:], strict=True):
            torch.testing.assert_close(mine, first)
