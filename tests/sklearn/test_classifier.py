"""``CapsNetClassifier`` in scikit-learn's tools, and what it takes."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator
from torch.utils.data import Dataset, TensorDataset

import capsnet
from capsnet.sklearn import CapsNetClassifier

TINY = {"conv_channels": 4, "kernel_size": 3, "primary_types": 2, "primary_dim": 4, "pose_dim": 4, "decoder": False}
# the checks that scikit-learn itself may skip, and what it says: one needs a variable that SciPy reads when it is
# imported, one needs pandas, which nothing here depends on (its first half, objects that are no arrays, does run)
SKIPPED = {
    "check_array_api_input": "SCIPY_ARRAY_API is not set",
    "check_classifier_data_not_an_array": "pandas is not installed",
}
QUICK = (  # of about 60 checks, those of inputs, parameters and state that train once or twice
    "check_no_attributes_set_in_init",
    "check_fit_score_takes_y",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_n_features_in_after_fitting",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_fit2d_1sample",
    "check_fit1d",
    "check_requires_y_none",
    "check_dict_unchanged",
    "check_methods_subset_invariance",
    "check_methods_sample_order_invariance",
    "check_transformers_unfitted",
)


def tiny(**options: Any) -> CapsNetClassifier:
    settings: dict[str, Any] = {"epochs": 8, "batch_size": 16, "lr": 2e-2, "random_state": 0, "n_jobs": 1}
    return CapsNetClassifier("capsnet", TINY, **settings | options)


def copy_of(classifier: CapsNetClassifier) -> Any:
    return clone(classifier)


def bars(count: int = 40) -> tuple[NDArray[np.uint8], NDArray[np.str_]]:
    """Pictures of 8 x 8: a bright bar that lies or stands."""
    images = np.random.default_rng(0).integers(0, 30, (count, 8, 8), dtype=np.uint8)
    labels = np.array(["lies", "stands"])[np.arange(count) % 2]
    for image, label in zip(images, labels, strict=True):
        (image[3:5] if label == "lies" else image[:, 3:5])[...] = 230
    return images, labels


@pytest.fixture(scope="module")
def fitted() -> CapsNetClassifier:
    return tiny().fit(*bars())


def test_it_learns_and_answers(fitted: CapsNetClassifier) -> None:
    images, labels = bars()
    assert fitted.score(images, labels) == 1
    assert fitted.classes_.tolist() == ["lies", "stands"]
    shares = fitted.predict_proba(images)
    assert np.allclose(shares.sum(axis=1), 1)
    output = fitted.model_(torch.from_numpy(images / 255).float()[:, None])
    lengths = output.lengths.detach().numpy()
    assert np.allclose(shares, lengths / lengths.sum(axis=1, keepdims=True), atol=1e-5)
    assert np.allclose(fitted.transform(images), output.poses.detach().flatten(1).numpy(), atol=1e-5)  # type: ignore[union-attr]


def test_equal_seeds_give_equal_networks(fitted: CapsNetClassifier) -> None:
    torch.rand(3)  # another state of torch's generator
    before = torch.random.get_rng_state()
    again = copy_of(fitted).fit(*bars())
    assert np.array_equal(again.predict_proba(bars()[0]), fitted.predict_proba(bars()[0]))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_pickle_holds_the_bytes_of_the_weights(fitted: CapsNetClassifier) -> None:
    content = pickle.dumps(fitted)
    assert b"capsnet-weights" in content
    assert b"torch" not in content  # no tensors, no modules
    again = pickle.loads(content)
    assert np.array_equal(again.predict_proba(bars()[0]), fitted.predict_proba(bars()[0]))
    assert isinstance(again.model_, capsnet.Model)


def test_layouts_of_pictures_give_the_same(fitted: CapsNetClassifier) -> None:
    images, labels = bars()
    expected = fitted.predict_proba(images)
    for other in (images[..., None], images[:, None], torch.from_numpy(images)):
        assert np.array_equal(fitted.predict_proba(other), expected)
    floats = tiny(epochs=1).fit(images / 255, labels)
    assert np.allclose(floats.predict_proba(images / 255), tiny(epochs=1).fit(images, labels).predict_proba(images))
    for other in (images / 255, images.astype(float)):  # the same pictures in another scale
        assert np.allclose(fitted.predict_proba(other), expected, atol=1e-5)
    assert np.allclose(floats.predict_proba(images), floats.predict_proba(images / 255), atol=1e-5)
    with pytest.raises(ValueError, match=r"uint8, or floats in \[0, 1\], got float64 up to 2"):
        floats.predict(images.astype(float))
    with pytest.raises(ValueError, match=r"expected pictures of \(C, H, W\) = \(1, 8, 8\), got \(1, 9, 8\)"):
        fitted.predict(np.zeros((2, 9, 8)))


def test_features_become_a_scaled_and_enlarged_picture() -> None:
    images, labels = bars()
    features = images.reshape(len(images), -1)[:, :60] / 10 - 3  # 8 x 8 is the smallest square that holds 60
    classifier = tiny(epochs=1).fit(features, labels)
    assert classifier.model_.image_size == (8, 8)
    assert getattr(classifier, "n_features_in_") == 60  # noqa: B009
    read = classifier._reader.read_again(classifier, features)
    assert (read.min(), read.max()) == (0, 1)
    assert (read[:, 0, 7, 4:] == 0).all()  # where there are no features
    assert classifier._reader.read_again(classifier, features * 9).max() == 1
    small = tiny(epochs=1, image_shape=(3, 2)).fit(features[:, :6], labels)
    assert small.model_.image_size == (6, 4) or min(small.model_.image_size) >= 5
    with pytest.raises(ValueError, match=r"image_shape \(3, 2\) has no room for 7 features"):
        tiny(image_shape=(3, 2)).fit(features[:, :7], labels)


def test_files_and_data_sets(tmp_path: Path) -> None:
    images, labels = bars(12)
    files = [str(tmp_path / f"{k}.png") for k in range(12)]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    classifier = tiny(epochs=1, image_shape=(8, 8)).fit(files, labels)
    assert classifier.predict(files).shape == (12,)
    assert capsnet.predict(files[0], classifier.model_)[0].label == classifier.predict(files)[0]
    pairs = TensorDataset(torch.from_numpy(images), torch.arange(12) % 2)
    numbered = tiny(epochs=1).fit(pairs)
    assert numbered.classes_.tolist() == [0, 1]
    assert 0 <= numbered.score(pairs) <= 1
    assert np.allclose(classifier.predict_proba(images), classifier.predict_proba(files), atol=1e-6)
    with pytest.raises(
        ValueError, match=r"trained on numbers from -\d+ to \d.*give an array of such numbers, not files"
    ):
        tiny(epochs=1).fit(images - 9.0, labels).predict(files)


def test_lists_of_arrays_and_of_pillow_images() -> None:
    images, labels = bars(12)
    expected = tiny(epochs=1).fit(images, labels).predict_proba(images)
    for pictures in (list(images), [torch.from_numpy(one) for one in images], [Image.fromarray(one) for one in images]):
        classifier = tiny(epochs=1).fit(pictures, labels)
        assert classifier.model_.image_size == (8, 8)
        assert np.allclose(classifier.predict_proba(pictures), expected, atol=1e-6)
    assert cross_val_score(tiny(epochs=1), [Image.fromarray(one) for one in images], labels, cv=2).shape == (2,)
    odd = [Image.fromarray(images[0]), Image.fromarray(images[1, :6])]
    for pictures in (odd, [one.crop((0, 0, 6, 6)) for one in odd]):  # several sizes; a size that no file is brought to
        classifier = tiny(epochs=1).fit(pictures, labels[:2])
        assert classifier.model_.image_size == (32, 32)
        assert classifier.predict(pictures).shape == (2,)
    assert tiny(epochs=1, image_shape=(9, 8)).fit(odd, labels[:2]).model_.image_size == (9, 8)
    with pytest.raises(ValueError, match=r"must have one shape, got \(8, 8\) and \(6, 8\): resize them"):
        tiny().fit([images[0], images[1, :6]], labels[:2])


def test_trained_on_arrays_it_takes_every_kind_of_picture(fitted: CapsNetClassifier, tmp_path: Path) -> None:
    images, labels = bars(6)
    expected = fitted.predict_proba(images)
    files = [tmp_path / f"{k}.png" for k in range(6)]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    pairs = [(torch.from_numpy(image / np.float32(255)), label) for image, label in zip(images, labels, strict=True)]

    class Pairs(Dataset):
        def __len__(self) -> int:
            return len(pairs)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, str]:
            return pairs[index]

    for pictures in (files, [Image.fromarray(one) for one in images], Pairs(), capsnet.data.adapt(pairs)):
        assert np.allclose(fitted.predict_proba(pictures), expected, atol=1e-6)
    assert fitted.score(Pairs()) == fitted.score(images, labels) == 1


def test_early_stopping_keeps_the_best_epoch() -> None:
    images, labels = bars()
    classifier = tiny(early_stopping=True, patience=2, epochs=50, lr=1e-2).fit(images, labels)
    scores = classifier.validation_scores_
    assert classifier.n_epochs_ == len(scores) == scores.index(max(scores)) + 3 < 50


def test_class_weights_change_the_loss() -> None:
    images, labels = bars()
    labels[:30] = "lies"  # most labels are wrong, for the weights to decide
    shares = [
        tiny(class_weight=weight).fit(images, labels).predict_proba(images)[:, 1].mean()
        for weight in (None, "balanced", {"stands": 50.0})
    ]
    assert shares[0] < shares[1] < shares[2]
    with pytest.raises(ValueError, match=r"The classes, \['lies', 'stands'\], are not in class_weight"):
        tiny(class_weight={"stand": 50.0}).fit(images, labels)


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    tiny(epochs=1, n_jobs=2).fit(*bars(8))
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        tiny(n_jobs=0).fit(*bars(8))


def test_networks_without_poses_transform_to_features() -> None:
    images, labels = bars(12)
    options = {"channels": [4, 4, 4], "widths": [6], "dropout": 0.5}
    classifier = CapsNetClassifier("cnn-small", options, epochs=1, random_state=0).fit(images, labels)
    assert classifier.transform(images).ndim == 2
    again = copy_of(classifier).fit(images, labels)  # dropout is seeded, too
    assert np.array_equal(again.predict_proba(images), classifier.predict_proba(images))
    assert len(classifier.get_feature_names_out()) == classifier.transform(images).shape[1]


def test_features_that_it_transforms_to_have_names(fitted: CapsNetClassifier) -> None:
    names = fitted.get_feature_names_out().tolist()
    assert names == [f"capsnetclassifier{k}" for k in range(2 * TINY["pose_dim"])]
    assert fitted.set_output(transform="default").transform(bars(4)[0]).shape == (4, len(names))


def test_scikit_learns_tools_take_it() -> None:
    images, labels = bars()
    assert cross_val_score(tiny(epochs=4), images, labels, cv=2).shape == (2,)
    search = GridSearchCV(tiny(), {"epochs": [1, 8]}, cv=2).fit(images, labels)
    assert search.best_params_ == {"epochs": 8}
    flat = images.reshape(len(images), -1)
    assert make_pipeline(StandardScaler(), tiny(epochs=1)).fit(flat, labels).predict(flat).shape == (40,)
    assert make_pipeline(tiny(), LogisticRegression()).fit(images, labels).score(images, labels) == 1  # on poses


def test_the_default_works_in_scikit_learns_tools() -> None:
    images, labels = bars(16)
    default = CapsNetClassifier().set_params(epochs=3, random_state=0)
    assert cross_val_score(default, images, labels, cv=2).tolist() == [1, 1]
    flat = images.reshape(len(images), -1)
    assert make_pipeline(StandardScaler(), default).fit(flat, labels).predict(flat).shape == (16,)


def named_checks() -> dict[str, Any]:
    checks: Any = estimator_checks_generator(tiny())
    return {run.func.__name__: partial(run, estimator) for estimator, run in checks}


@pytest.mark.parametrize("name", QUICK)
def test_checks_of_scikit_learn_that_are_quick(name: str) -> None:
    named_checks()[name]()


@pytest.mark.parametrize("name", SKIPPED)
def test_checks_that_are_skipped_say_why(name: str) -> None:
    """Where pandas is installed or the variable is set they pass; older versions of scikit-learn do not have both."""
    said = SKIPPED[name]
    try:
        named_checks().get(name, lambda: None)()
    except SkipTest as skipped:
        said = str(skipped)
    assert SKIPPED[name] in said


@pytest.mark.slow
def test_all_checks_of_scikit_learn() -> None:
    results = check_estimator(tiny(epochs=30), on_skip=None, on_fail=None)
    failed = {row["check_name"]: str(row["exception"])[:300] for row in results if row["status"] == "failed"}
    assert not failed
    skipped = {row["check_name"]: str(row["exception"]) for row in results if row["status"] == "skipped"}
    assert skipped.keys() <= SKIPPED.keys(), skipped
    assert all(SKIPPED[name] in reason for name, reason in skipped.items()), skipped


def test_numbers_of_numpy_are_settings() -> None:
    images, labels = bars(12)
    search = GridSearchCV(tiny(), {"epochs": np.arange(1, 3)}, cv=2).fit(images, labels)
    assert search.best_params_["epochs"] in (1, 2)


def test_every_option_reaches_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained, with what settings and on how many examples, without training it."""
    seen: list[tuple[Any, ...]] = []

    def learned(config: Any, training: Any, validation: Any, **options: Any) -> Any:
        seen.append((config, len(training), validation and len(validation), options))
        return capsnet.create_model("capsnet", image_size=(8, 8), num_classes=2, **TINY), 0, []

    monkeypatch.setattr("capsnet.sklearn._classifier.learn", learned)
    augment = capsnet.data.Augment(shift=1)
    held = tiny(augment=augment, early_stopping=True, validation_fraction=0.4, patience=3, random_state=1)
    for classifier in (held, tiny(random_state=2)):
        classifier.fit(*bars())
    (config, training, validation, options), (plain, everything, nothing, _) = seen
    assert (config.epochs, config.batch_size, config.lr, config.augment) == (8, 16, 2e-2, augment)
    assert (config.schedule, config.keep, options["patience"]) == ("constant", "best", 3)
    assert (training, validation) == (24, 16)
    assert (plain.schedule, plain.keep, plain.augment) == ("one-cycle", "last", capsnet.data.Augment())
    assert (everything, nothing) == (40, None)
    assert config.seed != plain.seed
