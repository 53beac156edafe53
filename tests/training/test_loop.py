"""The training loop: a run learns and writes its files."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import capsnet
from capsnet.data import Augment
from capsnet.training import TrainConfig, loop, read_config
from capsnet.training import report as report_module
from capsnet.training import run as run_folder
from tests.training.test_resume import weights_of


def test_train_learns_and_writes_a_run_folder(quick: TrainConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(quick, epochs=20, lr=2e-2, ema=None, tensorboard=True)
    result = capsnet.train(config, out=tmp_path / "run")
    assert result.test.accuracy.value > 0.5  # chance is 0.1
    assert result.folder == tmp_path / "run"
    names = {path.name for path in result.folder.iterdir()}
    files = {"config.json", "env.json", "metrics.jsonl", "results.json", "model.safetensors", "README.md"}
    assert names == files | {"figures", "tensorboard"}
    drawn = {path.name for path in (result.folder / "figures").iterdir()}
    assert drawn == {"reconstructions.png", "sweep.png", "confusion.png", "curves.png"}
    assert read_config(result.folder / "config.json") == config
    assert not (result.folder / ".lock").exists()
    epochs = run_folder.Run(result.folder).records("epoch")
    assert [line["epoch"] for line in epochs] == list(range(1, 21))
    assert epochs[-1]["train_loss"] < epochs[0]["train_loss"]
    text = (result.folder / "README.md").read_text()
    assert str(result.test.accuracy) in text
    assert "capsnet predict" in text
    environment = json.loads((result.folder / "env.json").read_text())
    assert environment["torch"] == torch.__version__
    # the saved weights are the tested ones
    again = capsnet.evaluate(result.folder, config.data)
    assert again.metrics == result.test.metrics
    assert json.loads((result.folder / "results.json").read_text())["accuracy"] == result.test.metrics["accuracy"]


def test_tensorboard_holds_curves_pictures_and_the_graph(quick: TrainConfig, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = capsnet.train(dataclasses.replace(quick, tensorboard=True, epochs=1), out=tmp_path / "run", figures=False)
    events = EventAccumulator(str(result.folder / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert "epoch/val_accuracy" in events.Tags()["scalars"]
    assert "reconstructions" in events.Tags()["images"]
    graph = " ".join(node.name for node in events.Graph().node)
    assert "primary" in graph
    assert "classes" in graph
    assert "decoder" in graph


def test_weights_survive_a_failing_figure_and_bad_names_are_refused(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_folder: Path
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("no font for this")

    config, out = dataclasses.replace(quick, epochs=1), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(report_module.figures, "learning_curves", fail)
        with pytest.raises(RuntimeError, match="no font"):
            capsnet.train(config, out=out)
    assert capsnet.load(out / "model.safetensors").card["epoch"] == 1
    assert not (out / "results.json").exists()
    assert capsnet.train(config, out=out, resume="auto").folder == out
    odd = tmp_path / os.fsdecode(b"sch\xf6n")
    with pytest.raises(ValueError, match=r"sch.udcf6n/run: the name of the run's folder is not UTF-8: rename it"):
        capsnet.train(config, out=odd / "run")  # no weights could be read from there
    shutil.copytree(idx_folder, odd)
    with pytest.raises(ValueError, match=r"sch.udcf6n: the name of the data is not UTF-8: rename it"):
        capsnet.train(dataclasses.replace(config, data=f"mnist:{odd}"), out=tmp_path / "other")


def test_weights_depend_on_the_seed_only(quick: TrainConfig, tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = capsnet.train(quick, out=tmp_path / "a", figures=False)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    second = capsnet.train(quick, out=tmp_path / "b", figures=False)
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's generator is not touched
    other = capsnet.train(dataclasses.replace(quick, seed=1), out=tmp_path / "c", figures=False)
    assert weights_of(first.folder) == weights_of(second.folder) != weights_of(other.folder)


def test_fine_tuning_starts_from_trained_weights(quick: TrainConfig, tmp_path: Path) -> None:
    first = capsnet.train(
        dataclasses.replace(quick, epochs=10, lr=1e-2, ema=None), out=tmp_path / "first", figures=False
    )
    short = dataclasses.replace(quick, epochs=1, lr=1e-6, ema=None)
    cold = capsnet.train(short, out=tmp_path / "cold", figures=False)
    warm = capsnet.train(dataclasses.replace(short, init=str(first.folder)), out=tmp_path / "warm", figures=False)
    assert str(first.folder) in (warm.folder / "README.md").read_text()
    assert warm.model.card["init"] == str(first.folder)
    assert warm.test.accuracy.value == pytest.approx(first.test.accuracy.value, abs=0.1)
    assert warm.test.accuracy.value > cold.test.accuracy.value + 0.2


def test_validation_chooses_the_epoch_and_the_test_split_is_seen_once(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capsnet import data

    splits: list[str] = []
    real = data.load
    monkeypatch.setattr(data, "load", lambda spec, split: splits.append(split) or real(spec, split))
    evaluated: list[str] = []
    for module in (loop, report_module):
        measure = module.evaluate
        monkeypatch.setattr(
            module, "evaluate", lambda m, d, _measure=measure, **k: evaluated.append(d.name) or _measure(m, d, **k)
        )
    capsnet.train(quick, out=tmp_path / "a", figures=False)
    assert sorted(splits) == ["test", "train", "validation"]
    assert evaluated == ["mnist validation", "mnist validation", "mnist test"]  # two epochs, then the test, once
    splits.clear()
    evaluated.clear()
    final = capsnet.train(dataclasses.replace(quick, train_on="train+validation"), out=tmp_path / "b", figures=False)
    assert sorted(splits) == ["test", "train+validation"]
    assert evaluated == ["mnist test"]
    assert "val_accuracy" not in run_folder.Run(final.folder).records("epoch")[-1]


def test_tested_pictures_are_not_augmented(quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[torch.Tensor] = []

    def seen(model: capsnet.models.CapsNet, *args: Any, **kwargs: Any) -> Any:
        if not model.training:
            tested.append(args[0])
        return forward(model, *args, **kwargs)

    forward = capsnet.models.CapsNet.forward
    monkeypatch.setattr(capsnet.models.CapsNet, "forward", seen)
    config = dataclasses.replace(quick, epochs=1, augment=Augment(shift=6), train_on="train+validation")
    capsnet.train(config, out=tmp_path, figures=False)
    pixels = torch.cat(tested)
    test = capsnet.data.load(quick.data, "test")
    assert torch.equal(pixels, test.batch(range(len(test))).images)


def test_limit_uses_the_first_examples_only(quick: TrainConfig) -> None:
    training, validation, _ = loop.load_splits(dataclasses.replace(quick, limit=30))
    assert len(training) == 30
    assert validation is not None
    assert len(validation) == 40


def test_model_without_decoder_trains(quick: TrainConfig, tmp_path: Path) -> None:
    result = capsnet.train(dataclasses.replace(quick, decoder=False, epochs=1), out=tmp_path / "run")
    assert {p.name for p in (result.folder / "figures").iterdir()} == {"confusion.png", "curves.png"}
    with pytest.raises(ValueError, match="'decoder'"):
        capsnet.train(
            dataclasses.replace(quick, model="cnn-small", model_options={}, decoder=False), out=tmp_path / "x"
        )
    assert not (tmp_path / "x").exists()  # a run that never began leaves no files


def test_config_records_the_data_that_was_used(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idx_folder: Path
) -> None:
    monkeypatch.setenv("CAPSNET_DATA", str(idx_folder))
    result = capsnet.train(dataclasses.replace(quick, data="mnist", epochs=1), out=tmp_path / "run", figures=False)
    assert read_config(result.folder / "config.json").data == f"mnist:{idx_folder}"
    monkeypatch.delenv("CAPSNET_DATA")
    assert capsnet.evaluate(result.folder).metrics == result.test.metrics  # the card names the data


def test_broken_test_file_is_found_before_training(quick: TrainConfig, tmp_path: Path, idx_folder: Path) -> None:
    broken = shutil.copytree(idx_folder, tmp_path / "broken")
    images = broken / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(ValueError, match="t10k-images-idx3-ubyte"):
        capsnet.train(dataclasses.replace(quick, data=f"mnist:{broken}"), out=tmp_path / "run", figures=False)
    assert not (tmp_path / "run").exists()
