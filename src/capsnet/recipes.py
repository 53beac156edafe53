"""Recipes: named, complete run configurations. Each is a function, so reading one tells what it does.

from capsnet import recipes, train
train(recipes.get("mnist", epochs=5))
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from capsnet._names import check_name
from capsnet.data import Augment
from capsnet.training import TrainConfig


def demo() -> TrainConfig:
    """A small CapsNet on all of MNIST in under five minutes on two CPU cores: what `make demo` runs."""
    return TrainConfig(
        model="capsnet-small", epochs=3, batch_size=128, lr=2e-3, schedule="one-cycle", augment=Augment(shift=1)
    )


def smoke() -> TrainConfig:
    """The small CapsNet on 2,000 digits, one epoch: does everything work? A few seconds."""
    return TrainConfig(model="capsnet-small", epochs=1, batch_size=50, limit=2000, schedule="constant")


def mnist() -> TrainConfig:
    """The paper's network as the paper trained it: Adam, x 0.96 every 2000 steps, shifts of up to 2 pixels."""
    return TrainConfig(model="capsnet", epochs=50, batch_size=128, augment=Augment(shift=2))


def mnist_fast() -> TrainConfig:
    """The paper's network on a modern schedule: one-cycle, averaged weights, far fewer epochs."""
    return TrainConfig(
        model="capsnet",
        epochs=10,
        batch_size=128,
        lr=2e-3,
        schedule="one-cycle",
        augment=Augment(shift=2),
        ema=0.999,
    )


def baseline() -> TrainConfig:
    """The paper's convolutional baseline, 35.4 million parameters: slow without a GPU."""
    return TrainConfig(model="baseline-cnn", epochs=20, batch_size=128, augment=Augment(shift=2))


def cnn_small() -> TrainConfig:
    """A small convolutional network to hold the small CapsNet against, trained the same way as `demo`."""
    return dataclasses.replace(demo(), model="cnn-small")


_RECIPES: dict[str, Callable[[], TrainConfig]] = {
    "demo": demo,
    "smoke": smoke,
    "mnist": mnist,
    "mnist-fast": mnist_fast,
    "baseline": baseline,
    "cnn-small": cnn_small,
}


def list_recipes() -> list[str]:
    """The names that ``get`` knows."""
    return list(_RECIPES)


def describe(name: str) -> str:
    """One line about a recipe."""
    return (_RECIPES[check_name("recipe", name, _RECIPES)].__doc__ or "").strip().partition("\n")[0]


def get(name: str, **changes: Any) -> TrainConfig:
    """The configuration of a recipe, with changes: ``get("mnist", epochs=5, iterations=1)``."""
    recipe = _RECIPES[check_name("recipe", name, _RECIPES)]()
    for key in changes:
        check_name("setting", key, [field.name for field in dataclasses.fields(TrainConfig)])
    return dataclasses.replace(recipe, recipe=name, **changes)
