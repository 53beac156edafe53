"""``CapsNetClassifier``."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from capsnet import data, weights
from capsnet.inference import evaluating
from capsnet.models import Model, create_model
from capsnet.sklearn._reading import Reader, is_data_set
from capsnet.training import TrainConfig, learn

LARGEST = 96  # pixels a side up to which small pictures are enlarged to suit a network


class CapsNetClassifier(ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A capsule network (or any other network for pictures of this package) for scikit-learn.

    ``X`` may be an array of pictures (N, H, W), (N, H, W, C) or (N, C, H, W) or a list of them, an array (N, features),
    a list of files or of Pillow images, or, without ``y``, a data set of (image, label) of torch, of Hugging Face or of
    this package. A classifier trained on one kind of pictures takes the other kinds, too.

    Pictures of uint8 are divided by 255, floats in [0, 1] stay as they are. Other numbers, and all features, are scaled
    to [0, 1] by the least and the largest number in training. Features become a picture of ``image_shape``, or of the
    smallest square that holds them. If the network needs larger pictures, each pixel is repeated.

    ``predict_proba`` gives the lengths of the class capsules divided by their sum. A length says whether a class is
    present, independently of the others, so these are shares and not calibrated probabilities.

    Args:
        model: the network, see ``capsnet.list_models()``.
        model_options: its options, as in ``create_model``; None leaves the defaults.
        image_shape: (H, W) or (H, W, C) of features, (H, W) of files and of pictures of a data set.
        epochs: passes over the training data.
        batch_size, lr: of the training by Adam; the learning rate goes up and down over the epochs (one-cycle), or is
            constant with early stopping.
        augment: a ``capsnet.data.Augment``; None does not augment.
        early_stopping: whether to hold out ``validation_fraction`` of each class, to stop after ``patience`` epochs
            without a better accuracy on it, and to keep the weights of the best epoch.
        class_weight: None, "balanced", or a dictionary of weights by class.
        n_jobs: CPU threads; None leaves them as they are, -1 takes all cores. They are restored afterwards.
        random_state: of initial weights, order, augmentation and the held-out examples.
        device: auto, cpu, cuda or mps.

    Attributes:
        classes_: the labels, sorted.
        model_: the trained ``capsnet.Model``.
        n_epochs_: epochs trained.
        validation_scores_: accuracy on the held-out examples after each epoch; empty without early stopping.
    """

    def __init__(
        self,
        model: str = "capsnet-small",
        model_options: Mapping[str, Any] | None = None,
        image_shape: tuple[int, ...] | None = None,
        epochs: int = 30,
        batch_size: int = 32,
        lr: float = 2e-3,
        augment: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.15,
        patience: int = 5,
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.model_options = model_options
        self.image_shape = image_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.augment = augment
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> "CapsNetClassifier":
        """Train the network; ``y`` are labels of any kind, and None if ``X`` is a data set of (image, label)."""
        self._reader = Reader(self.image_shape)
        if y is None and is_data_set(X):
            pictures, labels = self._reader.read_data_set(X)
        elif y is None:
            raise ValueError("CapsNetClassifier requires y to be passed, but the target y is None")
        else:
            pictures, labels = self._reader.read(self, X), column_or_1d(y, warn=True)
        check_consistent_length(pictures, labels)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least 2 classes, got 1 class: {self.classes_[0]!r}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._enlarged = self._find_factor(pictures.shape)
        training, validation = self._data_sets(self._repeated(pictures), numbers, seed)
        with _threads(self.n_jobs):
            options: dict[str, Any] = {"patience": self.patience, "device": self.device}
            done = learn(self._config(seed), training, validation, weights=self._weights(numbers), **options)
        self.model_, self.n_epochs_, self.validation_scores_ = done
        self._n_features_out = self._ask(pictures[:1], _poses).shape[1]  # of get_feature_names_out
        return self

    def predict(self, X: Any) -> NDArray:
        """The class whose capsule is longest. (N,)"""
        check_is_fitted(self)
        return self.classes_[self._lengths(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The lengths of the class capsules divided by their sum: shares, not calibrated probabilities. (N, J)"""
        lengths = self._lengths(X).astype(np.float64) + 1e-12
        return (lengths / lengths.sum(axis=1, keepdims=True)).astype(np.float32)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The poses of the class capsules, (N, J * D), or the last features of a network without poses, (N, F)."""
        check_is_fitted(self)
        return self._ask(self._reader.read_again(self, X), _poses)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy; ``y`` is None if ``X`` is a data set of (image, label)."""
        if y is None and is_data_set(X):
            check_is_fitted(self)
            y = Reader(self.image_shape).read_data_set(X)[1]
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The network as the bytes of a file of weights: no open files, no code."""
        kept: Any = super().__getstate__()
        state: dict[str, Any] = dict(kept)
        if isinstance(model := state.get("model_"), Model):
            with tempfile.TemporaryDirectory() as folder:
                state["model_"] = weights.save(model, Path(folder) / "model.safetensors").read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(content := state.get("model_"), bytes):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.safetensors"
                path.write_bytes(content)
                state = {**state, "model_": weights.load_file(path)}
        super().__setstate__(state)

    def _lengths(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        return self._ask(self._reader.read_again(self, X), lambda model, images: model(images).lengths)

    def _ask(
        self, pictures: NDArray[np.float32], ask: Callable[[Model, torch.Tensor], torch.Tensor]
    ) -> NDArray[np.float32]:
        """Answers in batches of one size: with it rounding changes, and with rounding the answer to an example.

        So the last batch has examples of the one before, and the order of the examples does not matter.
        """
        device, parts = next(self.model_.parameters()).device, []
        size = min(self.batch_size, len(pictures))
        with _threads(self.n_jobs), evaluating(self.model_):
            for start in range(0, len(pictures), size):
                first = min(start, len(pictures) - size)
                images = torch.from_numpy(self._repeated(pictures[first : first + size]))
                parts.append(ask(self.model_, images.to(device))[start - first :].float().cpu().numpy())
        return np.concatenate(parts)

    def _data_sets(
        self, pictures: NDArray[np.float32], numbers: NDArray, seed: int
    ) -> tuple[data.Dataset, data.Dataset | None]:
        names = tuple(map(str, self.classes_))
        dataset = data.ArrayDataset(pictures, numbers, names, name="X")
        if self._reader.preprocess is not None and self._enlarged == 1:
            dataset.preprocess = self._reader.preprocess
        if not self.early_stopping:
            return dataset, None
        return data.split_off(dataset, self.validation_fraction, seed=seed)

    def _find_factor(self, shape: tuple[int, ...]) -> int:
        """How often each pixel is repeated on both axes: as often as the network needs."""
        channels, height, width = shape[1:]
        sizes: dict[str, Any] = {"in_channels": channels, "num_classes": len(self.classes_)}
        first: ValueError | None = None
        for factor in range(1, max(1, LARGEST // max(height, width)) + 1):
            image_size = (factor * height, factor * width)
            try:
                with torch.random.fork_rng(devices=[]):
                    create_model(self.model, image_size=image_size, **sizes, **dict(self.model_options or {}))
                return factor
            except (ValueError, RuntimeError) as error:  # too small for its convolutions
                first = first or ValueError(str(error))
        raise first or ValueError(f"pictures of {height} x {width} do not suit {self.model}")

    def _repeated(self, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(pictures.repeat(self._enlarged, axis=2).repeat(self._enlarged, axis=3))

    def _weights(self, numbers: NDArray) -> torch.Tensor | None:
        if self.class_weight is None:
            return None
        values = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[numbers])
        return torch.from_numpy(np.asarray(values)).float()

    def _config(self, seed: int) -> TrainConfig:
        return TrainConfig(
            recipe="sklearn",
            model=self.model,
            model_options=dict(self.model_options or {}),
            augment=self.augment or data.Augment(),
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=float(self.lr),
            schedule="constant" if self.early_stopping else "one-cycle",
            keep="best" if self.early_stopping else "last",
            seed=seed,
            tensorboard=False,
        )


def _poses(model: Model, images: torch.Tensor) -> torch.Tensor:
    output = model(images)
    if output.poses is not None:
        return output.poses.flatten(1)
    features = model.forward_features(images)
    return (features if isinstance(features, torch.Tensor) else features[0]).flatten(1)


@contextmanager
def _threads(n_jobs: int | None) -> Iterator[None]:
    """Compute with this many threads, as joblib counts them: -1 is all cores, -2 all but one."""
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: 1 is one thread, -1 all cores")
    before = torch.get_num_threads()
    if n_jobs is not None:
        torch.set_num_threads(n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)
