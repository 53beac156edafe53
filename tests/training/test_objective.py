"""The gradient of a step does not depend on how the batch is divided."""

import dataclasses

import numpy as np
import pytest
import torch

import capsnet
import capsnet.training
from capsnet.training import TrainConfig, objective


def test_micro_batches_add_up_to_the_whole_gradient(tiny: capsnet.Model, quick: TrainConfig) -> None:
    """In float64, where only the order of sums differs."""
    model, images, targets = tiny.double().train(), torch.rand(7, 1, 20, 22).double(), torch.arange(7) % 3
    weights, scaler = torch.tensor([0.5, 1.0, 2.0]).double(), torch.amp.GradScaler("cpu", enabled=False)
    gradients = []
    for count in (1, 3, 7):
        model.zero_grad()
        whole = objective.Objective(model, "fp32")
        parts = [
            objective.MicroBatch(capsnet.data.Batch(images[index], targets[index], index), len(index) / 7)
            for index in torch.arange(7).tensor_split(count)
        ]
        losses = objective.backward(quick, whole, model, scaler, parts, weights, 0)
        gradients.append([losses["loss"].item(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for other in gradients[1:]:
        assert other[0] == pytest.approx(gradients[0][0], rel=1e-6)
        for mine, first in zip(other[1:], gradients[0][1:], strict=True):
            torch.testing.assert_close(mine, first)


def test_own_micro_batches_hold_each_example_once(quick: TrainConfig) -> None:
    training, index = capsnet.training.load_splits(quick)[0], np.array([5, 3, 9, 1, 7])
    parts = objective.own_micro_batches(dataclasses.replace(quick, accumulate=3), training, index, epoch=1)
    assert [part.batch.indices.tolist() for part in parts] == [[5, 3], [9, 1], [7]]
    assert [part.weight for part in parts] == pytest.approx([0.4, 0.4, 0.2])
    batch = training.batch(index, augment=quick.augment, seed=quick.seed, epoch=1)
    assert torch.equal(torch.cat([part.batch.images for part in parts]), batch.images)
