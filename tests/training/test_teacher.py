"""Distillation: the lengths of a trained model are learned besides the labels."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import capsnet
from capsnet.models import Loss
from capsnet.training import TrainConfig, objective
from capsnet.training.teacher import distance, load_teacher
from tests.training.test_resume import interrupt


@pytest.fixture(scope="module")
def trained(quick: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capsnet.train(
        dataclasses.replace(quick, epochs=4), out=tmp_path_factory.mktemp("teacher") / "run", figures=False
    ).folder


def student(config: TrainConfig, **options: Any) -> capsnet.Model:
    return capsnet.create_model(config.model, **config.model_options, **({"image_size": (20, 20)} | options)).eval()


def test_distance_is_the_mean_squared_distance() -> None:
    lengths, taught = torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([[0.7, 0.2], [0.5, 0.0]])
    assert distance(lengths, taught).item() == pytest.approx((0.04 + 0.01 + 0.25) / 2)
    assert distance(lengths, taught, torch.tensor([2.0, 0.0])).item() == pytest.approx(0.1 / 2)


def test_objective_adds_the_weighted_distance(quick: TrainConfig, trained: Path) -> None:
    """The teacher gets no gradient and belongs to no state dict."""
    config = dataclasses.replace(quick, teacher=str(trained), teacher_weight=3.0)
    model = student(quick)
    batch = capsnet.data.load(quick.data, "train").batch(range(4))
    inputs, teacher = objective.loss_inputs(batch, model), load_teacher(config, model)
    plain = Loss(*objective.Objective(model, "fp32")(*inputs, 0))
    whole = objective.Objective(model, "fp32", teacher, config.teacher_weight)
    taught = Loss(*whole(*inputs, 0))
    expected = (model(batch.images).lengths - capsnet.load(trained)(batch.images).lengths).square().sum(1).mean()
    torch.testing.assert_close(taught.parts["teacher"], expected)
    torch.testing.assert_close(taught.total, plain.total + 3 * expected)
    assert {name.removeprefix("model.") for name in whole.state_dict()} == set(model.state_dict())


def test_bfloat16_compares_in_float32(quick: TrainConfig, trained: Path) -> None:
    model = student(quick)
    inputs = objective.loss_inputs(capsnet.data.load(quick.data, "train").batch(range(4)), model)
    teacher = load_teacher(dataclasses.replace(quick, teacher=str(trained)), model)
    losses = [Loss(*objective.Objective(model, p, teacher)(*inputs, 0)) for p in ("fp32", "bf16")]
    assert losses[1].parts["teacher"].dtype == torch.float32
    torch.testing.assert_close(losses[1].parts["teacher"], losses[0].parts["teacher"], rtol=0.05, atol=1e-3)


def test_a_large_weight_gives_the_lengths_of_the_teacher(quick: TrainConfig, trained: Path, tmp_path: Path) -> None:
    """With a large weight the network stays at the lengths of its half-trained teacher; without one it goes on."""
    config = dataclasses.replace(quick, epochs=8, seed=5, keep="last")
    images = capsnet.data.load(quick.data, "test").batch(range(50)).images
    expected = capsnet.load(trained).eval()(images).lengths
    apart = [
        distance(capsnet.train(one, out=tmp_path / str(k), figures=False).model(images).lengths, expected).item()
        for k, one in enumerate([config, dataclasses.replace(config, teacher=str(trained), teacher_weight=20.0)])
    ]
    assert apart[1] < 0.1 * apart[0]


def test_resumed_run_equals_an_uninterrupted_one(
    quick: TrainConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is stored as an absolute one, so that a run is resumed from any folder."""
    monkeypatch.chdir(trained.parent)
    config = dataclasses.replace(quick, epochs=2, teacher=trained.name)
    whole = capsnet.train(config, out=tmp_path / "whole", figures=False)
    interrupt(config, 1, out=tmp_path / "half")
    monkeypatch.chdir(tmp_path)
    resumed = capsnet.train(capsnet.read_config("half/config.json"), out="half", resume="half", figures=False)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name
    assert capsnet.read_config(tmp_path / "whole" / "config.json").teacher == str(trained)
    assert whole.model.card["teacher"] == str(trained)
    assert f"taught by {trained}" in (tmp_path / "whole" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 3}, r"must agree in classes: the network has \['0', '1', '2'\], the teacher"),
        ({"image_size": (28, 28)}, r"must agree in image size: the network has \(28, 28\), the teacher \(20, 20\)"),
        ({"in_channels": 3}, "must agree in channels: the network has 3, the teacher 1"),
    ],
)
def test_teacher_must_fit(quick: TrainConfig, trained: Path, options: dict[str, Any], message: str) -> None:
    config = dataclasses.replace(quick, teacher=str(trained))
    with pytest.raises(ValueError, match=message):
        load_teacher(config, student(quick, **options))


def test_wrong_teacher_leaves_no_folder(quick: TrainConfig, trained: Path, tmp_path: Path) -> None:
    """So the corrected command can use the same folder."""
    config = dataclasses.replace(quick, data="mnist", teacher=str(trained))
    with pytest.raises(ValueError, match="must agree in image size"):
        capsnet.train(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
