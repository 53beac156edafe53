"""Cross-validation: every image is tested once, a stopped one resumes, and the numbers add up."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import capsnet
from capsnet.training import Interrupted, TrainConfig, folds, loop
from capsnet.training.run import RESULTS
from tests.training.test_resume import interrupt


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


def test_cross_validation_tests_every_image_once(own: TrainConfig, tmp_path: Path) -> None:
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
    again = capsnet.cross_validate(own, 3, out=tmp_path / "cv", resume="auto")  # nothing remains to train
    assert again == result
    for other in (dataclasses.replace(own, epochs=13), dataclasses.replace(own, data=f"{own.data},seed=1")):
        with pytest.raises(ValueError, match="fold-0 is finished with another configuration"):
            capsnet.cross_validate(other, 3, out=tmp_path / "cv", resume="auto")
    with pytest.raises(ValueError, match="fold-0 is finished with another configuration"):
        capsnet.cross_validate(own, 4, out=tmp_path / "cv", resume="auto")


def stop_in_the_second(own: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stop every cross-validation after one fold. Returns the trained configurations."""
    real, trained = folds.train, list[str]()

    def train_one(config: TrainConfig, **options: object) -> object:
        if trained:
            raise Interrupted(tmp_path)
        trained.append(config.data)
        return real(config, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(folds, "train", train_one)
    with pytest.raises(Interrupted):
        capsnet.cross_validate(own, 3, out=tmp_path / "cv")
    return trained


def test_stopped_cross_validation_resumes(own: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = folds.train
    trained = stop_in_the_second(own, tmp_path, monkeypatch)
    monkeypatch.setattr(
        folds, "train", lambda config, **options: trained.append(config.data) or real(config, **options)
    )
    capsnet.cross_validate(own, 3, out=tmp_path / "cv", resume="auto")
    assert [spec.rpartition("fold=")[2] for spec in trained] == ["0", "1", "2"]


def test_cross_validation_refuses_other_images(
    own: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one more image the remaining folds differ: some images would be tested twice, some never."""
    stop_in_the_second(own, tmp_path, monkeypatch)
    shutil.copy(tmp_path / "own" / "left" / "0.png", tmp_path / "own" / "right" / "new.png")
    with pytest.raises(ValueError, match=r"are not those that the cross-validation in .* was begun with"):
        capsnet.cross_validate(own, 3, out=tmp_path / "cv", resume="auto")
    (tmp_path / "own" / "right" / "new.png").unlink()
    with pytest.raises(Interrupted):
        capsnet.cross_validate(own, 3, out=tmp_path / "cv", resume="auto")


def test_resume_refuses_another_number_of_examples(own: TrainConfig, tmp_path: Path) -> None:
    interrupt(own, 1, out=tmp_path / "run")
    files = [tmp_path / "own" / label / f"new{n}.png" for label in ("left", "right") for n in range(4)]
    for n, file in enumerate(files):
        Image.fromarray(np.full((20, 20), 10 * n, np.uint8)).save(file)
    with pytest.raises(ValueError, match=r"begun with 28 training examples, now there are 36: restore"):
        capsnet.train(own, out=tmp_path / "run", resume="auto")
    for file in files:
        file.unlink()
    assert capsnet.train(own, out=tmp_path / "run", resume="auto", figures=False).folder == tmp_path / "run"


def test_cross_validation_refuses_weights_trained_on_its_images(
    own: TrainConfig, quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = dataclasses.replace(own, epochs=1)
    capsnet.train(own, out="first", figures=False)
    other = dataclasses.replace(quick, epochs=1, init="first")  # by way of other data
    capsnet.train(other, out="second", figures=False)
    for init in ("first", "second"):
        start = dataclasses.replace(own, init=init, data=f"{own.data},seed=3")
        with pytest.raises(ValueError, match=rf"{tmp_path / init} was trained on folder:{tmp_path / 'own'}"):
            capsnet.cross_validate(start, 3, out="cv")
    capsnet.train(dataclasses.replace(own, epochs=1, seed=1), out="third", figures=False)
    capsnet.save(capsnet.ensemble(["first", "third"]), "both.safetensors")
    for teacher in ("first", "both.safetensors"):
        with pytest.raises(ValueError, match=rf"{tmp_path / teacher} was trained on .*: train without teacher"):
            capsnet.cross_validate(dataclasses.replace(own, teacher=teacher), 3, out="cv")
    Path("listed").mkdir()
    rows = [f"../own/{label}/{n}.png,{label}" for label in ("left", "right") for n in range(6)]
    Path("listed", "all.csv").write_text("\n".join(["path,label", *rows]))
    with pytest.raises(ValueError, match=rf"{tmp_path / 'first'} was trained on"):  # the same images under another path
        capsnet.cross_validate(dataclasses.replace(own, init="first", data="folder:listed/all.csv"), 2, out="cv")
    assert not Path("cv").exists()
    capsnet.train(dataclasses.replace(quick, epochs=1), out="elsewhere", figures=False)
    relative = dataclasses.replace(own, init="elsewhere", data=own.data.replace(str(tmp_path), "."))
    capsnet.cross_validate(relative, 3, out="cv")
    assert f"The networks started from {tmp_path / 'elsewhere'}." in Path("cv/README.md").read_text()
    config = capsnet.read_config("cv/config.json")  # valid in any current folder
    assert (config.init, config.data) == (str(tmp_path / "elsewhere"), own.data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds must be at least 2, got 1"),
        ({"data": "mnist"}, "mnist has its own test split: cross-validation is for folder"),
        ({"eval_limit": 5}, "eval_limit=5 would leave images untested: folds test every image once"),
        ({"resume": "runs/x"}, 'resume must be "no" or "auto" with folds'),
    ],
)
def test_cross_validation_refuses_bad_arguments(own: TrainConfig, tmp_path: Path, change: dict, message: str) -> None:
    config = dataclasses.replace(own, data=change.get("data", own.data), eval_limit=change.get("eval_limit"))
    with pytest.raises(ValueError, match=message):
        capsnet.cross_validate(config, change.get("folds", 3), out=tmp_path / "cv", resume=change.get("resume", "no"))


def test_folder_of_images_trains_and_predicts(own: TrainConfig, tmp_path: Path) -> None:
    training, validation, test = loop.load_splits(own)
    assert validation is not None
    assert len(training) + len(validation) + len(test) == 42
    result = capsnet.train(own, out=tmp_path / "run")
    assert result.model.class_names == ("left", "right")
    answer = capsnet.predict(tmp_path / "own" / "left" / "0.png", result.model)[0]
    assert answer.label in ("left", "right")
