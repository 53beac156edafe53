"""Pictures of several objects: each capsule draws its object; and the limits of a run."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import capsnet
from capsnet import data
from capsnet import functional as F
from capsnet.inference import PRESENT
from capsnet.training import TrainConfig, loop, report
from capsnet.training import run as run_folder
from capsnet.training.objective import MicroBatch


@pytest.fixture
def pairs(quick: TrainConfig, idx_folder: Path) -> TrainConfig:
    return dataclasses.replace(quick, data=f"multimnist:{idx_folder},shift=2,pairs=60", lr=3e-3, batch_size=20)


def test_loss_compares_each_capsule_with_its_source(pairs: TrainConfig) -> None:
    """The loss of a step by hand: margin on both classes, two pictures, each against its digit."""
    training, _, _ = loop.load_splits(pairs)
    state = loop.new_state(pairs, loop.build(pairs, training))
    state.examples, batch = len(training), training.batch(range(20))
    assert batch.sources is not None
    with torch.no_grad():
        output = state.model(batch.images)
        assert output.poses is not None
        expected = F.margin_loss(output.lengths, batch.targets)
        for k in range(2):
            classes = batch.sources.classes[:, k]
            drawn = state.model.decode(output.poses, classes)
            expected = expected + F.reconstruction_loss(drawn, batch.sources.images[:, k])
    run = run_folder.Run(Path())
    loop.train_step(state, [MicroBatch(batch, 1.0)], 20, None, run)
    assert loop.read_losses(state, run)["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_decoding_several_classes_equals_one_at_a_time(tiny: capsnet.Model) -> None:
    images, classes = torch.rand(4, 1, 20, 22), torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1]])
    labels = torch.nn.functional.one_hot(classes, 3)
    together = tiny(images, labels=labels)
    assert together.reconstruction.shape == (4, 2, 1, 20, 22)
    for k in range(2):
        torch.testing.assert_close(together.reconstruction[:, k], tiny(images, labels=classes[:, k]).reconstruction)
    torch.testing.assert_close(together.reconstruction, tiny.decode(together.poses, classes))
    with pytest.raises(ValueError, match=r"need labels \(B, K, J\), got \(3, 2, 3\)"):
        tiny(images, labels=labels[:3])


def test_run_on_pairs_reports_exact_match_and_half_credit(pairs: TrainConfig, tmp_path: Path) -> None:
    result = capsnet.train(pairs, out=tmp_path / "run")
    exact, half = result.test.accuracy, result.test.half_credit
    assert half is not None
    assert exact.value <= half.value <= (1 + exact.value) / 2
    assert f"**Test accuracy {exact}**" in (page := (tmp_path / "run" / "README.md").read_text())
    assert f"With half credit for one object of two: {half}." in page
    assert str(result) == f"{tmp_path / 'run'}: {result.test}"
    assert "with exactly the true classes (95 %: " in str(result.test)
    assert "Parameter" not in repr(result)
    assert "reconstruction_error" not in result.test.metrics
    assert (tmp_path / "run" / "figures" / "reconstructions.png").is_file()
    again = capsnet.evaluate(tmp_path / "run")
    assert again.metrics == result.test.metrics


def test_stop_at_ends_the_run(quick: TrainConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(quick, epochs=30, schedule="constant", stop_at=0.3, ema=None)
    capsnet.train(config, out=tmp_path / "run", figures=False)
    lines = run_folder.Run(tmp_path / "run").records("epoch")
    assert 1 <= len(lines) < 30
    assert lines[-1]["val_accuracy"] >= 0.3
    assert all(line["val_accuracy"] < 0.3 for line in lines[:-1])
    text = (tmp_path / "run" / "README.md").read_text()
    reached = f"{lines[-1]['val_accuracy']:.2%}"
    assert f"`train` split, {len(lines)} of 30 epochs (stopped at {reached} validation accuracy), seed 0." in text


@pytest.mark.parametrize(
    ("limit", "said"), [(None, "all examples"), (30, "the first 30 examples"), (999, "all examples")]
)
def test_readme_says_how_many_examples_were_used(
    quick: TrainConfig, tmp_path: Path, limit: int | None, said: str
) -> None:
    capsnet.train(dataclasses.replace(quick, epochs=1, limit=limit), out=tmp_path / "run", figures=False)
    assert f"; {said} of the `train` split, 1 epoch, seed 0." in (tmp_path / "run" / "README.md").read_text()


def test_figure_uses_the_threshold_of_the_metrics(
    quick: TrainConfig, pairs: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several labels all capsules of 0.5 or more are the answer; of pairs the two longest are."""
    thresholds: list[float | None] = []
    monkeypatch.setattr(report.figures, "reconstructions", lambda path, *given: thresholds.append(given[-1]) or path)
    capsnet.train(dataclasses.replace(pairs, epochs=1), out=tmp_path / "pairs")
    (tmp_path / "own").mkdir()
    for n in range(24):
        picture = np.random.default_rng(n).integers(0, 255, (20, 20), dtype=np.uint8)
        Image.fromarray(picture).save(tmp_path / "own" / f"{n}.png")
    rows = ["path,labels", *(f"own/{n}.png,{('a', 'b', 'a|b', '')[n % 4]}" for n in range(24))]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    several = dataclasses.replace(quick, data=f"folder:{tmp_path / 'labels.csv'},size=20", epochs=1, batch_size=8)
    capsnet.train(several, out=tmp_path / "several")
    assert thresholds == [None, PRESENT]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop_at": 1.5}, "stop_at must be at most 1, got 1.5"),
        ({"stop_at": 0.9, "keep": "last"}, "stop_at needs a validation split and the best epoch"),
        ({"eval_limit": 0}, "eval_limit must be at least 1, got 0"),
    ],
)
def test_bad_limits_are_refused(quick: TrainConfig, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(quick, **change)


def test_limits_take_the_first_examples(quick: TrainConfig, pairs: TrainConfig) -> None:
    for config in (quick, pairs):
        limited = dataclasses.replace(config, limit=7, eval_limit=5)
        training, validation, test = loop.load_splits(limited)
        assert validation is not None
        assert (len(training), len(validation), len(test)) == (7, 5, 5)
        full = data.load(config.data, "test")
        assert torch.equal(test.batch(range(5)).images, full.batch(range(5)).images)


def test_multi_hot_targets_give_a_cnn_sigmoids(pairs: TrainConfig) -> None:
    training, _, _ = loop.load_splits(pairs)
    cnn = dataclasses.replace(pairs, model="cnn-small", model_options={})
    assert loop.build(cnn, training).config["multi_label"] is True
    single = dataclasses.replace(cnn, data=pairs.data.replace("multimnist", "mnist").partition(",")[0])
    assert loop.build(single, loop.load_splits(single)[0]).config["multi_label"] is False


def test_short_epochs_do_not_each_write_a_checkpoint(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(loop, "save_checkpoint", lambda state, path: saved.append(state.step))
    config = dataclasses.replace(quick, limit=10, batch_size=10, epochs=9, checkpoint_every=4)
    capsnet.train(config, out=tmp_path / "run", figures=False)
    assert saved == [4, 8, 9]
