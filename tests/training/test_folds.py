"""Cross-validation: every image is tested once, a stopped one goes on, and the numbers add up."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import capsnet
from capsnet.training import Interrupted, TrainConfig, folds, loop
from capsnet.training.run import RESULTS


@pytest.fixture
def own(quick: TrainConfig, tmp_path: Path) -> TrainConfig:
    """A folder of 24 + 18 small pictures, bright left or bright right."""
    generator = np.random.default_rng(0)
    for label, count in (("left", 24), ("right", 18)):
        (tmp_path / "own" / label).mkdir(parents=True)
        for n in range(count):
            pixels = generator.integers(0, 60, (20, 20), dtype=np.uint8)
            pixels[:, 1:8] += np.uint8(180 if label == "left" else 0)
            pixels[:, 12:19] += np.uint8(180 if label == "right" else 0)
            Image.fromarray(pixels).save(tmp_path / "own" / label / f"{n}.png")
    return dataclasses.replace(quick, data=f"folder:{tmp_path / 'own'},size=20", epochs=2, batch_size=10)


def test_every_image_is_tested_once(own: TrainConfig, tmp_path: Path) -> None:
    own = dataclasses.replace(own, epochs=12)
    result = capsnet.cross_validate(own, 3, out=tmp_path / "cv")
    parts = [json.loads((tmp_path / "cv" / f"fold-{k}" / RESULTS).read_text()) for k in range(3)]
    assert sum(part["accuracy"]["n"] for part in parts) == 42 == result.pooled.n
    right = sum(round(part["accuracy"]["value"] * part["accuracy"]["n"]) for part in parts)
    assert result.pooled.value == pytest.approx(right / 42)
    assert result.accuracies == [part["accuracy"]["value"] for part in parts]
    assert result.pooled.value > 0.9
    text = (tmp_path / "cv" / "README.md").read_text()
    assert "3-fold cross-validation" in text
    assert str(result) in text
    assert "--folds 3" in text
    with pytest.raises(ValueError, match="it is not empty; choose another --out, or --resume auto"):
        capsnet.cross_validate(own, 3, out=tmp_path / "cv")
    again = capsnet.cross_validate(own, 3, out=tmp_path / "cv", resume="auto")  # nothing left to do
    assert again == result
    for other in (dataclasses.replace(own, epochs=13), dataclasses.replace(own, data=f"{own.data},seed=1")):
        with pytest.raises(ValueError, match="fold-0 is finished with another configuration"):
            capsnet.cross_validate(other, 3, out=tmp_path / "cv", resume="auto")
    with pytest.raises(ValueError, match="fold-0 is finished with another configuration"):
        capsnet.cross_validate(own, 4, out=tmp_path / "cv", resume="auto")


def test_a_stopped_one_goes_on(own: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, trained = folds.train, []

    def stop_in_the_second(config: TrainConfig, **options: object) -> object:
        if len(trained) == 1:
            raise Interrupted(tmp_path)
        trained.append(config.data)
        return real(config, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(folds, "train", stop_in_the_second)
    with pytest.raises(Interrupted):
        capsnet.cross_validate(own, 3, out=tmp_path / "cv")
    monkeypatch.setattr(
        folds, "train", lambda config, **options: trained.append(config.data) or real(config, **options)
    )
    capsnet.cross_validate(own, 3, out=tmp_path / "cv", resume="auto")
    assert [spec.rpartition("fold=")[2] for spec in trained] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds must be at least 2, got 1"),
        ({"data": "mnist"}, "mnist has its own test split: cross-validation is for folder"),
        ({"resume": "runs/x"}, 'resume must be "no" or "auto" with folds'),
    ],
)
def test_bad_input_is_one_sentence(own: TrainConfig, tmp_path: Path, change: dict, message: str) -> None:
    config = dataclasses.replace(own, data=change.get("data", own.data))
    with pytest.raises(ValueError, match=message):
        capsnet.cross_validate(config, change.get("folds", 3), out=tmp_path / "cv", resume=change.get("resume", "no"))


def test_one_training_on_own_images_tests_on_unseen_ones(own: TrainConfig, tmp_path: Path) -> None:
    training, validation, test = loop.load_splits(own)
    assert validation is not None
    assert len(training) + len(validation) + len(test) == 42
    result = capsnet.train(own, out=tmp_path / "run")
    assert result.model.class_names == ("left", "right")
    answer = capsnet.predict(tmp_path / "own" / "left" / "0.png", result.model)[0]
    assert answer.label in ("left", "right")
