"""Named, complete run configurations: what ``capsnet train NAME`` starts from.

    from capsnet import recipes, train
    train(recipes.get("mnist", epochs=5))

``register`` adds one, also from outside the package.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from capsnet._names import check_name
from capsnet.data.augment import Augment
from capsnet.training.config import TrainConfig

_RECIPES: dict[str, Callable[[], TrainConfig]] = {}


def register(name: str, recipe: Callable[[], TrainConfig]) -> None:
    """Register a recipe under a name. The first line of its docstring describes it."""
    if name in _RECIPES:
        raise ValueError(f"a recipe named {name!r} is registered already")
    if not re.fullmatch(r"[\w-][\w.-]*", name):  # it names a folder
        raise ValueError(f"a recipe's name is letters, digits, '-', '_' and '.', got {name!r}")
    _RECIPES[name] = recipe


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


def demo() -> TrainConfig:
    """A small CapsNet on all of MNIST in under five minutes on two CPU cores: what `make demo` runs."""
    return TrainConfig(
        model="capsnet-small", epochs=3, batch_size=128, lr=2e-3, schedule="one-cycle", augment=Augment(shift=1)
    )


def smoke() -> TrainConfig:
    """The small CapsNet on 2,000 digits, one epoch, to check the installation: a few seconds."""
    return TrainConfig(model="capsnet-small", epochs=1, batch_size=50, limit=2000, schedule="constant")


def mnist() -> TrainConfig:
    """The paper's network as the paper trained it: Adam, x 0.96 every 2000 steps, shifts of up to 2 pixels."""
    return TrainConfig(model="capsnet", epochs=50, batch_size=128, augment=Augment(shift=2))


def mnist_fast() -> TrainConfig:
    """The paper's network on a modern schedule: one-cycle, averaged weights, far fewer epochs."""
    return TrainConfig(
        model="capsnet", epochs=10, batch_size=128, lr=2e-3, schedule="one-cycle", augment=Augment(shift=2), ema=0.999
    )


def baseline() -> TrainConfig:
    """The paper's convolutional baseline, 35.4 million parameters: slow without a GPU."""
    return TrainConfig(model="baseline-cnn", epochs=20, batch_size=128, augment=Augment(shift=2))


def cnn_small() -> TrainConfig:
    """A small convolutional network to compare the small CapsNet with, trained the same way as `demo`."""
    return dataclasses.replace(demo(), model="cnn-small")


def multimnist() -> TrainConfig:
    """Two overlapping digits, classified and drawn apart: the small CapsNet, new pairs in each epoch."""
    return dataclasses.replace(demo(), data="multimnist", epochs=8, augment=Augment(), ema=0.999)


def efficient() -> TrainConfig:
    """Efficient-CapsNet on MNIST: 161,824 parameters before the decoder, shifts and affine augmentation."""
    return TrainConfig(
        model="efficient-capsnet",
        epochs=8,
        batch_size=128,
        optimizer="adamw",
        lr=3e-3,
        schedule="one-cycle",
        augment=Augment(shift=2, rotate=15, scale=0.12, shear=0.15),
        ema=0.999,
    )


def fashion() -> TrainConfig:
    """Fashion-MNIST with Efficient-CapsNet: clothes instead of digits, shifted and mirrored."""
    return dataclasses.replace(efficient(), data="fashion-mnist", epochs=10, augment=Augment(shift=2, flip=True))


def fashion_residual() -> TrainConfig:
    """Fashion-MNIST with residual-capsnet, 30 epochs: better than `fashion`."""
    return dataclasses.replace(fashion(), model="residual-capsnet", epochs=30, weight_decay=0.05)


def multimnist_efficient() -> TrainConfig:
    """Two overlapping digits with Efficient-CapsNet, 32 primary capsules: quick, 45 minutes on one core."""
    return dataclasses.replace(
        efficient(),
        data="multimnist",
        model_options={"channels": [32, 64, 64, 256], "strides": [1, 2, 1, 2]},
        epochs=20,
        augment=Augment(),
    )


def multimnist_residual() -> TrainConfig:
    """Two overlapping digits with residual-capsnet, 7.8 million pairs, hours: the bundled `capsnet-multimnist`."""
    return dataclasses.replace(efficient(), model="residual-capsnet", data="multimnist", epochs=130, augment=Augment())


def multimnist_residual_cnn() -> TrainConfig:
    """The stem of `multimnist-residual` with linear layers instead of capsules, trained the same way."""
    return dataclasses.replace(multimnist_residual(), model="residual-cnn")


def multimnist_kuramoto() -> TrainConfig:
    """Two overlapping digits whose parts are taught to go to the digit they lie on: the bundled `kuramoto-multimnist`.

    Its stem starts from a plain network's that was trained on such pairs.
    """
    taught = {"coupling_weight": 0.3, "routing_options": {"beta": 4.0, "grow": 0.5}}
    return dataclasses.replace(
        multimnist_residual(),
        model_options={"primary": "grid", "primary_dim": 16, "squash": "paper"} | taught,
        routing="kuramoto",
        decoder=False,
        init="capsnet-multimnist-cnn",
        lr=1e-3,
        epochs=6,
    )


def multimnist_binding() -> TrainConfig:
    """Two overlapping digits whose pixels oscillate in phase with their digit: oscillators are told which pixels belong
    together.

    The stem starts from a plain network's that was trained on such pairs.
    """
    return dataclasses.replace(
        multimnist_residual(),
        model="akorn-pyramid",
        model_options={"channels": 8, "mask_weight": 10.0},
        init="capsnet-multimnist-cnn",
        batch_size=32,
        lr=2e-3,
        clip=10.0,
        epochs=20,
    )


def affine() -> TrainConfig:
    """Shifted digits, to be tested on rotated and sheared ones, with Efficient-CapsNet.

    The shift adds to the data's own 6 pixels: affNIST's digits are as far off centre.
    """
    return dataclasses.replace(
        efficient(),
        data="expanded-mnist",
        model_options={"strides": [1, 2, 1, 2]},
        decoder=False,
        augment=Augment(shift=4),
    )


def affine_cnn() -> TrainConfig:
    """The convolutions of `affine` with a linear layer instead of capsules, trained the same way."""
    return dataclasses.replace(affine(), model="efficient-cnn", decoder=None)


def affine_residual() -> TrainConfig:
    """Digits shifted by up to 6 pixels, as published, with residual-capsnet: the bundled `capsnet-affine`."""
    return dataclasses.replace(
        efficient(), model="residual-capsnet", data="expanded-mnist", decoder=False, augment=Augment(), epochs=12
    )


def affine_residual_cnn() -> TrainConfig:
    """The stem of `affine-residual` with linear layers instead of capsules, trained the same way."""
    return dataclasses.replace(affine_residual(), model="residual-cnn", decoder=None)


def matrix() -> TrainConfig:
    """Matrix capsules with EM routing at CPU widths, on MNIST: two iterations, a growing margin.

    The short warm-up lets the network learn before the margin has grown, in 2000 steps.
    """
    return TrainConfig(
        model="matrix-capsnet-small",
        iterations=2,
        model_options={"routing_options": {"inverse_temperature": 1.0, "start_cost": 3.0}},
        epochs=3,
        batch_size=32,
        lr=1e-2,
        schedule="one-cycle",
        warm_up=0.05,
        ema=0.999,
    )


def akorn() -> TrainConfig:
    """A small network of oscillators on MNIST."""
    return dataclasses.replace(demo(), model="akorn-small")


def rotating() -> TrainConfig:
    """A small autoencoder of rotating features on MNIST, which also classifies."""
    return dataclasses.replace(demo(), model="rotating-small")


def complex_cnn() -> TrainConfig:
    """A small convolutional network of complex numbers, trained the same way as `cnn-small`."""
    return dataclasses.replace(demo(), model="complex-cnn-small")


def decoupled_cnn() -> TrainConfig:
    """The small convolutional network with decoupled convolutions, trained the same way as `cnn-small`."""
    return dataclasses.replace(demo(), model="decoupled-cnn-small")


def pathnet() -> TrainConfig:
    """PathNet on MNIST along one path: its modules can be reused by other tasks, see `capsnet reproduce pathnet`."""
    return TrainConfig(model="pathnet", epochs=3, batch_size=64, lr=2e-3, schedule="one-cycle")


def images() -> TrainConfig:
    """Your own images (`--data folder:PATH`), a few hundred: augmented; rare classes have larger weights."""
    return TrainConfig(
        model="capsnet-image",
        data="folder",
        epochs=60,
        batch_size=16,
        optimizer="adamw",
        lr=2e-3,
        weight_decay=0.05,
        schedule="one-cycle",
        augment=Augment(shift=3, rotate=10, scale=0.1, flip=True, brightness=0.1),
        class_weights=True,
        clip=1.0,
        ema=0.99,
        keep="last",  # the accuracy on twenty images, or on classes of other sizes, chooses epochs of the warm-up
    )


def images_cnn() -> TrainConfig:
    """The stem of `images` with pooling and linear layers instead of capsules, trained the same way."""
    return dataclasses.replace(images(), model="cnn-image")


def text() -> TrainConfig:
    """Capsules for texts: the topics of generated sentences, n-grams routed by shared matrices."""
    return TrainConfig(model="text-capsnet", data="sentences", epochs=4, batch_size=64, lr=3e-3, schedule="one-cycle")


def text_baseline() -> TrainConfig:
    """The convolutional network for texts (n-grams, max-pooling), trained the same way as `text`."""
    return dataclasses.replace(text(), model="text-cnn")


for _recipe in (
    demo,
    smoke,
    mnist,
    mnist_fast,
    baseline,
    cnn_small,
    multimnist,
    efficient,
    fashion,
    fashion_residual,
    multimnist_efficient,
    multimnist_residual,
    multimnist_residual_cnn,
    multimnist_kuramoto,
    multimnist_binding,
    affine,
    affine_cnn,
    affine_residual,
    affine_residual_cnn,
    matrix,
    akorn,
    rotating,
    complex_cnn,
    decoupled_cnn,
    pathnet,
    images,
    images_cnn,
    text,
    text_baseline,
):
    register(_recipe.__name__.replace("_", "-"), _recipe)
