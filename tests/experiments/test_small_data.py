"""``small-data``: folds that keep groups together, paired intervals, sentences, on generated folders."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capsnet import data, metrics, recipes
from capsnet.experiments import Report, _calibrated, _few_images, _linear, _paired, get, reproduce, small_data
from capsnet.experiments._paired import Answers
from capsnet.experiments.lab import Lab
from capsnet.metrics import Measure

SHARED = Path(__file__).parents[3] / "shared" / "data"


def write_images(root: Path, count: int = 12, *, split: bool = False) -> Path:
    """Dark and light noise, 16 x 16, in groups of two, with a CSV of labels."""
    rng, lines = np.random.default_rng(0), ["path,label,split" if split else "path,label,group"]
    (root / "images").mkdir(parents=True)
    for n in range(count):
        for label, base in (("dark", 0), ("light", 120)):
            Image.fromarray(rng.integers(base, base + 120, (16, 16), dtype=np.uint8)).save(
                root / "images" / f"{label}-{n}.png"
            )
            last = ("test", "validation", "train")[n % 3] if split else f"{label}-{n // 2}"
            lines.append(f"images/{label}-{n}.png,{label},{last}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A smoke run on a folder that is cut into folds, beside one with a test split of its own."""
    root = tmp_path_factory.mktemp("small")
    sources = [str(write_images(root / "grouped")), str(write_images(root / "divided", split=True) / "labels.csv")]
    folder = reproduce("small-data", budget="smoke", out=root / "out", data=sources)
    return folder, json.loads((folder / "small-data.json").read_text())


def test_report_has_every_model_on_every_set(finished: tuple[Path, dict]) -> None:
    _, document = finished
    rows = [row[:2] for row in document["tables"][0]["rows"]]
    assert rows == [[name, net] for name in ("grouped", "divided") for net in ("capsnet-image", "cnn-image", "linear")]
    sets = document["raw"]["sets"]
    assert (sets["grouped"]["folds"], sets["grouped"]["pictures"], sets["grouped"]["groups"]) == (2, 24, 12)
    assert (sets["divided"]["folds"], sets["divided"]["pictures"], sets["divided"]["groups"]) == (0, 8, 8)
    assert sets["grouped"]["models"]["linear"]["accuracy"] == [100.0]  # brightness is all it takes
    assert document["command"].startswith("capsnet reproduce small-data --data ")
    assert len(document["findings"]) == 5
    assert [row[:3] for row in document["tables"][1]["rows"]] == [
        [name, "capsnet-image", other] for name in ("grouped", "divided") for other in ("cnn-image", "linear")
    ]
    assert sets["grouped"]["models"]["linear"]["seconds"] > 0
    before, after = (sets["divided"]["models"]["linear"][f"calibration error{how}"] for how in ("", ", calibrated"))
    assert after[0] < before[0]  # eight pictures, all right, by a cautious model


def test_claims_are_read_from_the_report(finished: tuple[Path, dict]) -> None:
    folder, _ = finished
    [claim] = get("small-data").claims(Report.read(folder / "small-data.json", folder / "figures"))
    assert claim.verdict in ("holds", "does not hold", "undecided")
    assert "grouped" in claim.finding
    assert "divided" in claim.finding


def test_finished_trainings_are_kept(finished: tuple[Path, dict], monkeypatch: pytest.MonkeyPatch) -> None:
    from capsnet.experiments import lab

    folder, document = finished
    monkeypatch.setattr(lab, "train", None)
    sources = document["command"].partition("--data ")[2].partition(" --budget")[0].split()
    again = reproduce("small-data", budget="smoke", out=folder.parents[1], data=sources)
    assert json.loads((again / "small-data.json").read_text())["measures"] == document["measures"]


def test_folds_do_not_split_a_group(tmp_path: Path) -> None:
    task = _few_images.task(str(write_images(tmp_path / "own")), 3)
    lab = Lab("small-data", "smoke", 1, tmp_path)
    for config in _few_images.trainings(lab, task, "capsnet-image", seed=0):
        parts = [data.load(config.data, split) for split in ("train", "validation", "test")]
        groups = [set(part.groups) for part in parts if isinstance(part, data.FolderDataset)]
        assert all(groups)
        assert not groups[0] & groups[1]
        assert not (groups[0] | groups[1]) & groups[2]


def test_budget_day_is_the_recipe_as_it_is(tmp_path: Path) -> None:
    """Full width and all epochs, for both capsule networks and their twins; `quick` is less."""
    own = str(write_images(tmp_path / "pneumonia"))
    plans = {}
    for budget in get("small-data").budgets:
        lab = Lab("small-data", budget, 1, tmp_path, options={"data": [own]})
        plans[budget] = small_data.plan(lab)
        assert any("ResNet-18 is published" in line for line in small_data.differences(lab))
    recipe = recipes.get("images")
    nets = [net for pair in _few_images.PAIRS.items() for net in pair]
    assert [one.model for one in plans["day"]] == [net for net in nets for _ in range(5)]
    for one in plans["day"]:
        assert (one.epochs, one.batch_size) == (recipe.epochs, recipe.batch_size)
        assert one.model == "residual-cnn" or one.model_options == {}
    assert {one.epochs for one in plans["quick"]} == {20}
    assert {one.model for one in plans["quick"]} == {"capsnet-image", "cnn-image"}


def test_wrong_sets_are_refused_in_one_sentence(tmp_path: Path) -> None:
    own = str(write_images(tmp_path / "own"))
    with pytest.raises(ValueError, match="each set needs a name of its own, got own, own"):
        reproduce("small-data", budget="smoke", out=tmp_path, data=[own, own])
    with pytest.raises(ValueError, match="unknown data set 'nowhere'"):
        reproduce("small-data", budget="smoke", out=tmp_path, data=["nowhere"])
    with pytest.raises(ValueError, match="images of one class each"):
        reproduce("small-data", budget="smoke", out=tmp_path, data=["multimnist"])


def answers(right: list[list[bool]], groups: list[int]) -> Answers:
    """Two classes, all of class 0 or 1 by turns, answered rightly or wrongly."""
    targets = np.arange(len(groups)) % 2
    said = np.where(np.array(right), targets, 1 - targets)  # (S, N)
    return Answers(np.eye(2)[said], targets, np.zeros(said.shape, int), np.array(groups))


def test_paired_metrics_match_the_plain_ones() -> None:
    rng = np.random.default_rng(1)
    probabilities, targets = rng.dirichlet(np.ones(3), (2, 60)).round(1), rng.integers(0, 3, 60)
    one = Answers(probabilities, targets, np.zeros((2, 60), int), np.arange(60))
    plain = [metrics.accuracy(p, targets).value for p in probabilities]
    assert _paired.values(_paired.accuracy, one) == pytest.approx([100 * value for value in plain])
    areas = [np.mean([metrics.auc(p[:, j], targets == j) or 0.0 for j in range(3)]) for p in probabilities]
    assert _paired.values(_paired.auc, one) == pytest.approx(areas)
    twice = np.concatenate([probabilities, probabilities], axis=1)  # a weight of two is a picture twice
    weights = np.where(np.arange(60) < 30, 2.0, 1.0)[None]
    kept = np.r_[np.arange(60), 60 + np.arange(30)]
    double = Answers(twice[:, kept], np.tile(targets, 2)[kept], np.zeros((2, 90), int), np.arange(90))
    for metric in (_paired.accuracy, _paired.auc):
        assert metric(one, weights)[0].tolist() == pytest.approx(_paired.values(metric, double))


def test_groups_widen_the_interval_and_pairs_narrow_it() -> None:
    right = [[n % 4 != 0 for n in range(80)]]
    alone, four = answers(right, list(range(80))), answers(right, [n // 4 for n in range(80)])
    draws = [_paired.draw(one.groups, 1) for one in (alone, four)]
    samples = [_paired.resampled(_paired.accuracy, one, d) for one, d in zip((alone, four), draws, strict=True)]
    low, high = _paired.interval(samples[0])
    assert low < 75 < high
    assert _paired.interval(samples[1]) == (75, 75)  # each group is right in three of four
    gap = samples[0] - _paired.resampled(_paired.accuracy, alone, draws[0])
    assert _paired.interval(gap) == (0, 0)  # a network differs in nothing from itself
    assert small_data.order(_paired.interval(gap + 1e-14)) == 0  # nor by rounding


def test_auc_is_that_of_each_network_of_the_folds() -> None:
    scores = np.array([0.1, 0.2, 0.8, 0.9])  # in each fold the positive is ahead, though not over both
    one = Answers(
        np.stack([1 - scores, scores], axis=1)[None], np.array([0, 1, 0, 1]), np.array([[0, 0, 1, 1]]), np.arange(4)
    )
    assert _paired.values(_paired.auc, one) == [1.0]


def test_linear_model_is_logistic_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is an extra")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 7)), np.repeat([0, 1, 2], (20, 30, 40))
    x[:, 0] += y
    ours = _linear.fit(x, y, 3, 0.1)
    theirs = linear_model.LogisticRegression(C=0.1, class_weight="balanced", tol=1e-8, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(ours[:-1], theirs.coef_.T, atol=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "accuracy", "area"),
    [
        (0.5, 2.0, "is more often right than", "its AUC is higher"),
        (-2.0, -0.5, "is less often right than", "its AUC is lower"),
        (-0.5, 2.0, "is not shown to differ in accuracy from", "its AUC is not shown to differ"),
    ],
)
def test_sentences_are_true_either_way(low: float, high: float, accuracy: str, area: str) -> None:
    gaps = {
        "accuracy": Measure("", [(low + high) / 2], "points", interval=(low, high)),
        "AUC": Measure("", [(low + high) / 20], "", interval=(low / 10, high / 10)),
        "accuracy, calibrated": Measure("", [-(low + high)], "points", interval=(-2 * high, -2 * low)),
    }
    sentence, later = small_data.compared("a", "its twin `b`", gaps).split("Both calibrated, ")
    assert accuracy in sentence
    assert area in sentence
    assert f"({low:+.2f} to {high:+.2f}) points" in sentence
    opposite = {"more": "less often right", "less": "more often right", "not": "not shown to differ"}
    assert opposite[accuracy.split()[1]] in later


def test_calibration_moves_the_border_and_lowers_the_loss() -> None:
    rng = np.random.default_rng(0)
    logits = np.array([0.4, 0.0]) + rng.normal(size=(4000, 2))
    targets = (rng.random(4000) < 1 / (1 + np.exp(-2 * (logits[:, 1] - logits[:, 0]) - 1.2))).astype(int)
    cautious = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)  # twice as sure, and 0.6 to the right
    fitted = _calibrated.fit(cautious[:2000], targets[:2000])
    assert np.exp(fitted[0]) == pytest.approx(2, rel=0.1)
    assert fitted[2] - fitted[1] == pytest.approx(1.2, abs=0.2)
    better = _calibrated.apply(fitted, cautious[2000:])
    np.testing.assert_allclose(better.sum(axis=1), 1)
    errors = [metrics.calibration_error(p, targets[2000:]) for p in (cautious[2000:], better)]
    assert errors[1] < errors[0] / 2
    accuracies = [metrics.accuracy(p, targets[2000:]).value for p in (cautious[2000:], better)]
    assert accuracies[1] > accuracies[0]


def test_calibration_by_few_pictures_stays_finite() -> None:
    certain = np.array([[1.0, 0.0], [0.0, 1.0]])
    better = _calibrated.apply(_calibrated.fit(certain, np.array([0, 1])), certain)
    assert np.isfinite(better).all()
    assert better.argmax(axis=1).tolist() == [0, 1]


@pytest.mark.parametrize(("name", "folds", "counts"), [("pneumonia", 0, (400, 524, 624)), ("blood-cells", 5, None)])
def test_shared_sets_are_read(name: str, folds: int, counts: tuple[int, ...] | None) -> None:
    if not (SHARED / name / "labels.csv").is_file():
        pytest.skip(f"{name} is not part of the repository: {SHARED / name} is missing")
    task = _few_images.task(str(SHARED / name), 5)
    assert (task.name, task.folds) == (name, folds)
    if counts is not None:
        assert tuple(len(data.load(task.spec, split)) for split in ("train", "validation", "test")) == counts
