"""Every suggestion of a space is a configuration that builds; the recipe's own values are one of them."""

import dataclasses
import json
import random
from typing import Any

import pytest
import torch

from capsnet import recipes, routing
from capsnet.models import create_model, model_options
from capsnet.routing import _registry
from capsnet.search import describe, list_spaces
from capsnet.search.spaces import SPACES, change, current_values, default_params, halves
from capsnet.training import TrainConfig
from capsnet.training.config import check_config

SAMPLES = 4
pytestmark = pytest.mark.filterwarnings("error::UserWarning")  # Optuna's, if a space leaves out the recipe's own value
LARGE = ("baseline", "mnist", "mnist-fast")  # the same options as the small networks, seconds to build


class RandomTrial:
    """A trial that chooses values at random, the ends of ranges more often."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.params: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        assert low < high
        assert low > 0 or not log
        return self._take(name, self.random.choice([low, high, self.random.uniform(low, high)]))

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self._take(name, self.random.randint(low, high))

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        assert len(choices) == len(set(choices))
        return self._take(name, self.random.choice(choices))

    def _take(self, name: str, value: Any) -> Any:
        assert name not in self.params
        self.params[name] = value
        return value


def usable_pairs() -> list[tuple[str, str]]:
    pairs = []
    for recipe in recipes.list_recipes():
        for space in list_spaces():
            try:
                default_params(space, recipes.get(recipe))
            except ValueError:
                continue
            pairs.append((recipe, space))
    return pairs


@pytest.mark.parametrize(("recipe", "space"), usable_pairs())
def test_every_suggestion_builds(recipe: str, space: str) -> None:
    config = recipes.get(recipe)
    for sample in range(SAMPLES):
        trial = RandomTrial(f"{recipe} {space} {sample}")
        SPACES[space](trial, current_values(config))
        changed = change(config, trial.params)
        assert check_config(json.loads(changed.to_json())) == changed
        if recipe in LARGE:
            continue
        model = create_model(changed.model, **changed.create_options())
        batch = torch.rand(2, model.in_channels, *model.image_size)
        if "vocabulary" in model_options(config.model):
            batch = torch.randint(1, 900, (2, 9))
        labels = torch.tensor([0, 1])
        loss = model.loss(model(batch, labels=labels), labels, batch).total
        assert loss.isfinite()


@pytest.mark.parametrize(("recipe", "space"), usable_pairs())
def test_default_params_rebuild_the_recipe(recipe: str, space: str) -> None:
    config = recipes.get(recipe)
    options = {"image_size": (28, 28)} if "vocabulary" not in model_options(config.model) else {}
    same = change(config, default_params(space, config))
    assert (same.lr, same.batch_size, same.augment) == (config.lr, config.batch_size, config.augment)
    if recipe in LARGE:
        return
    with torch.random.fork_rng():
        first, second = (
            (torch.manual_seed(0), create_model(c.model, **(options | c.create_options())))[1] for c in (config, same)
        )
    assert repr(first) == repr(second)
    built = [{k: v for k, v in model.config.items() if k not in ("iterations", "routing_options")}
             for model in (first, second)]  # fmt: skip
    assert built[0] == built[1]


def test_change_keeps_only_options_of_the_chosen_routing() -> None:
    """A routing without iterations gets none, even if the recipe has some."""
    config = recipes.get("matrix")  # EM, two iterations, a temperature
    plain = change(config, {"routing": "uniform"})
    assert (plain.iterations, plain.model_options) == (None, {})
    warm = change(config, {"routing": "em", "iterations": 3, "routing_options.inverse_temperature": 0.1})
    assert (warm.iterations, warm.model_options) == (
        3,
        {"routing_options": {"inverse_temperature": 0.1, "start_cost": 3.0}},
    )


def test_change_sets_widths_and_parts() -> None:
    wide = change(recipes.get("demo"), {"decoder_widths": "128-256", "augment.rotate": 5.0})
    assert (wide.model_options, wide.augment.rotate, wide.augment.shift) == ({"decoder_widths": [128, 256]}, 5.0, 1)
    assert halves((256, 512)) == ["128-256", "256-512", "512-1024"]
    assert halves(1) == [1, 2]


@pytest.mark.parametrize("lr", [0.0003, 0.5, 1.0, 3.0, 9.5])
def test_rate_contains_any_learning_rate_of_the_recipe(lr: float) -> None:
    config = dataclasses.replace(recipes.get("demo"), lr=lr)
    assert default_params("rate", config)["lr"] == lr
    for seed in range(20):
        trial = RandomTrial(str(seed))
        SPACES["rate"](trial, current_values(config))
        assert lr / 10 <= trial.params["lr"] <= max(lr, 1.0)
        assert change(config, trial.params).lr == trial.params["lr"]


def test_routing_suggests_options_of_registered_routings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A routing from outside the package is a candidate, with the options it declares."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Warm(routing.Uniform):
        name = "warm"
        iterations: int = 2
        inverse_temperature: float = 0.5

    monkeypatch.setattr(_registry, "_ROUTINGS", dict(_registry._ROUTINGS))
    routing.register(Warm)
    config = dataclasses.replace(recipes.get("demo"), routing="warm")
    assert default_params("routing", config) == {
        "routing": "warm",
        "iterations": 2,
        "routing_options.inverse_temperature": 0.5,
    }
    plain = change(config, {"routing": "uniform"})
    assert (plain.routing, plain.iterations, plain.model_options.get("routing_options")) == ("uniform", None, None)


def test_loss_contains_a_weight_of_zero() -> None:
    config = recipes.get("demo")
    config = dataclasses.replace(config, model_options=config.model_options | {"reconstruction_weight": 0.0})
    assert default_params("loss", config)["reconstruction_weight"] == 0


def test_space_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="changes nothing of cnn-small: use one of rate, augment, all"):
        default_params("routing", recipes.get("cnn-small"))
    with pytest.raises(ValueError, match="Did you mean 'routing'"):
        default_params("rooting", TrainConfig())


def test_every_space_has_a_description() -> None:
    assert {"rate", "routing", "loss", "squash", "capsules", "augment", "all"} == set(list_spaces())
    for name in list_spaces():
        assert 20 < len(describe(name)) < 110
