"""Class weights: each class has the same total weight in the loss."""

import dataclasses

import numpy as np
import pytest
import torch

import capsnet
from capsnet.data import ArrayDataset
from capsnet.functional import margin_loss, reconstruction_loss, weighted_mean
from capsnet.training import TrainConfig
from capsnet.training.balance import class_weights, example_weights


def dataset(targets: list, classes: int) -> ArrayDataset:
    names = [str(k) for k in range(classes)]
    return ArrayDataset(np.zeros((len(targets), 1, 2, 2), np.uint8), np.array(targets), names)


def test_class_weights_are_inverse_to_counts() -> None:
    few = dataset([0, 0, 0, 0, 0, 0, 1, 1, 2], 3)
    weights = class_weights(few)
    assert weights.tolist() == pytest.approx([9 / (3 * 6), 9 / (3 * 2), 9 / (3 * 1)])
    each = example_weights(weights, torch.from_numpy(few.targets))
    assert each.mean() == pytest.approx(1)
    assert [float(each[few.targets == k].sum()) for k in range(3)] == pytest.approx([3, 3, 3])


def test_class_without_examples_has_weight_zero() -> None:
    assert class_weights(dataset([0, 0, 2, 2], 3)).tolist() == pytest.approx([1, 0, 1])


def test_example_weight_is_the_mean_over_its_labels() -> None:
    several = dataset([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]], 3)
    weights = class_weights(several)
    assert weights.tolist() == pytest.approx([4 / (2 * 3), 4 / (2 * 1), 0])
    each = example_weights(weights, torch.from_numpy(several.targets))
    assert each.tolist() == pytest.approx([2 / 3, (2 / 3 + 2) / 2, 2 / 3, 1])


def test_losses_take_weights() -> None:
    lengths, targets = torch.rand(4, 3), torch.tensor([0, 1, 2, 0])
    weights = torch.tensor([0.5, 2.0, 0.0, 1.0])
    each = torch.stack([margin_loss(lengths[n : n + 1], targets[n : n + 1]) for n in range(4)])
    torch.testing.assert_close(margin_loss(lengths, targets, weights=weights), (each * weights).sum() / 4)
    torch.testing.assert_close(weighted_mean(each), each.mean())
    drawn, images = torch.rand(4, 2, 1, 3, 3), torch.rand(4, 2, 1, 3, 3)
    errors = (drawn - images).square().sum(dim=(1, 2, 3, 4))
    torch.testing.assert_close(
        reconstruction_loss(drawn, images, 0.1, weights=weights), 0.1 * (errors * weights).mean()
    )
    for name in ("capsnet", "cnn-small"):
        model = capsnet.create_model(name, image_size=(20, 20), num_classes=3).eval()
        pictures = torch.rand(4, 1, 20, 20)
        output = model(pictures, labels=targets)
        doubled = model.loss(output, targets, pictures, torch.full((4,), 2.0)).total
        torch.testing.assert_close(doubled, 2 * model.loss(output, targets, pictures).total)


def test_class_weights_change_the_training(quick: TrainConfig, tmp_path) -> None:
    finals = []
    for flag in (False, True):
        config = dataclasses.replace(quick, class_weights=flag, limit=35, batch_size=20, epochs=1)
        model = capsnet.train(config, out=tmp_path / str(flag), figures=False).model
        finals.append(sum(p.detach().double().sum().item() for p in model.parameters()))
    assert finals[0] != finals[1]
