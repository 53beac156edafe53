"""Every registered model learns: its recipe on a slice of its data gives an accuracy far above chance.

Each takes less than a minute on two cores. ``make test`` has one for each kind of data and the network that routes with
EM, ``make test-slow`` all of them; the suite of models checks for each that some steps lower the loss.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

import capsnet
from capsnet import models, recipes

BUDGET = 120.0  # seconds of this process: a minute of two cores, whatever other programs do meanwhile

# recipe, changes for the slice, and the least accuracy on validation or test examples
SLICES: dict[str, tuple[str, dict[str, Any], float]] = {
    "capsnet": ("mnist-fast", {"limit": 512, "batch_size": 16, "epochs": 2}, 0.5),
    "capsnet-small": ("demo", {"limit": 1000, "batch_size": 20, "epochs": 2}, 0.8),
    "baseline-cnn": ("baseline", {"limit": 480, "batch_size": 16, "epochs": 1}, 0.5),
    "cnn-small": ("cnn-small", {"limit": 1000, "batch_size": 20, "epochs": 2}, 0.8),
    "efficient-capsnet": ("efficient", {"limit": 600, "batch_size": 16, "epochs": 2}, 0.7),
    "efficient-cnn": ("affine-cnn", {"limit": 1000, "batch_size": 8, "epochs": 2}, 0.5),
    "residual-capsnet": ("multimnist-residual", {"data": "mnist", "limit": 600, "batch_size": 16, "epochs": 2}, 0.7),
    "residual-cnn": ("multimnist-residual-cnn", {"data": "mnist", "limit": 600, "batch_size": 16, "epochs": 2}, 0.7),
    "akorn-small": ("akorn", {"limit": 1500, "batch_size": 16, "epochs": 1}, 0.4),
    "akorn-pyramid": (
        "multimnist-binding",
        {"data": "mnist", "init": None, "limit": 1500, "batch_size": 16, "epochs": 2},
        0.7,
    ),
    "rotating-small": ("rotating", {"limit": 2000, "batch_size": 32, "epochs": 2}, 0.7),
    "complex-cnn-small": ("complex-cnn", {"limit": 800, "batch_size": 16, "epochs": 1}, 0.7),
    "decoupled-cnn-small": ("decoupled-cnn", {"limit": 2000, "batch_size": 32, "epochs": 2}, 0.6),
    "pathnet": ("pathnet", {"limit": 2000, "batch_size": 32, "epochs": 2}, 0.7),
    "matrix-capsnet": (
        "matrix",
        {
            "model": "matrix-capsnet",
            "model_options": {"routing_options": {"inverse_temperature": 0.03}},  # at the recipe's 1 it does not
            "limit": 200,
            "eval_limit": 150,
            "batch_size": 2,
            "epochs": 1,
            "lr": 5e-3,
            "schedule": "constant",
        },
        0.3,
    ),
    "matrix-capsnet-small": ("matrix", {"limit": 1000, "batch_size": 8, "epochs": 1, "lr": 5e-3}, 0.4),
    "capsnet-image": ("images", {"data": "shapes", "limit": 200, "epochs": 3, "batch_size": 8}, 0.6),
    "cnn-image": ("images-cnn", {"data": "shapes", "limit": 200, "epochs": 3, "batch_size": 8}, 0.6),
    "text-capsnet": ("text", {"limit": 2000, "epochs": 3}, 0.6),
    "text-cnn": ("text-baseline", {"limit": 2000, "epochs": 3}, 0.6),
}
QUICK = ("capsnet-small", "matrix-capsnet-small", "capsnet-image", "text-capsnet")


def test_every_model_has_a_learning_case() -> None:
    assert sorted(SLICES) == sorted(models.list_models())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in models.list_models()]
)
def test_model_learns_far_above_chance_within_a_minute(name: str, tmp_path: Path) -> None:
    recipe, changes, least = SLICES[name]
    config = dataclasses.replace(recipes.get(recipe), tensorboard=False, **({"eval_limit": 200} | changes))
    assert config.model == name
    started = time.process_time()
    result = capsnet.train(config, out=tmp_path, figures=False)
    assert result.test.accuracy.value >= least
    assert time.process_time() - started < BUDGET
