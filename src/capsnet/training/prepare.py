"""The data sets and the model of a configuration."""

import dataclasses
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch

from capsnet import data
from capsnet.data import Dataset, Given
from capsnet.inference import check_kind
from capsnet.models import Model, create_model, model_options
from capsnet.training.config import TrainConfig
from capsnet.weights import list_weights, transfer

log = logging.getLogger("capsnet")


def recorded(config: TrainConfig, source: Given | None = None) -> TrainConfig:
    """The configuration with absolute paths of data, initial weights and teacher, as it is saved.

    Of data that were given in Python it records a fingerprint, so that a run is not resumed with others.
    """
    return dataclasses.replace(
        config,
        data=source.spec if source else data.canonical(config.data),
        init=_absolute(config.init),
        teacher=_absolute(config.teacher),
    )


def _absolute(model: str | None) -> str | None:
    """The name of a model, or the absolute path if it is a file or folder."""
    if model is None or model in list_weights() or not Path(model).exists():
        return model
    return str(Path(model).resolve())


def load_splits(config: TrainConfig, source: Given | None = None) -> tuple[Dataset, Dataset | None, Dataset]:
    """Training, validation (None with ``train+validation``) and test split, with the configuration's limits.

    All are opened before training, so that a damaged file is found before the first epoch.
    """
    load = source.load if source else partial(data.load, config.data)
    training, test = load(config.train_on), load("test")
    if training.image_size != test.image_size or training.channels != test.channels:
        raise ValueError(f"{config.data}: training images {training} and test images {test} differ in size")
    validation = load("validation") if config.train_on == "train" else None
    return (
        first(training, config.limit),
        None if validation is None else first(validation, config.eval_limit),
        first(test, config.eval_limit),
    )


def first(dataset: Dataset, limit: int | None) -> Dataset:
    """The first ``limit`` examples of a data set; None: all."""
    return dataset if limit is None or limit >= len(dataset) else dataset.subset(range(limit), name=dataset.name)


def build(config: TrainConfig, dataset: Dataset) -> Model:
    """The model of a config, sized for a data set; its initial weights depend on the seed only."""
    options = model_options(config.model)
    check_kind(config.model, "vocabulary" in options, dataset)
    sizes: dict[str, Any] = {
        "image_size": dataset.image_size,
        "in_channels": dataset.channels,
        "num_classes": dataset.num_classes,
    }
    if dataset.vocabulary:
        sizes["vocabulary"] = len(dataset.vocabulary)
    if "multi_label" in options and dataset.batch([0]).targets.ndim == 2:
        sizes["multi_label"] = True  # one sigmoid per class instead of a softmax
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = create_model(config.model, **(sizes | config.create_options()))
    model.class_names = dataset.class_names
    model.preprocessing = {} if dataset.preprocess is None else dataset.preprocess.model_dump()
    if config.init is not None:
        new = transfer(model, config.init)
        log.info("starting from %s%s", config.init, f"; newly initialised: {', '.join(new)}" if new else "")
    return model
