"""Configurations reload strictly, and a mistake in one is named."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from capsnet import recipes
from capsnet.training import TrainConfig, read_config
from capsnet.training.optim import learning_rate


@pytest.mark.parametrize("name", recipes.list_recipes())
def test_every_recipe_survives_the_round_trip(name: str, tmp_path: Path) -> None:
    config = recipes.get(name)
    assert config.recipe == name
    assert len(recipes.describe(name)) > 20
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    assert read_config(path) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 3}, r"unknown key 'epoch'\. Did you mean 'epochs'\?"),
        ({"augment": {"shfit": 2}}, r"unknown key 'shfit'\. Did you mean 'shift'\?"),
        ({"epochs": "many"}, r"epochs: .*got 'many'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"schedule": "cosine"}, "schedule: "),
        ({"lr": -1.0}, "lr must lie"),
        ({"ema": 1.5}, "ema must lie"),
        ({"clip": 0.0}, "clip must be positive"),
        ({"clip": math.nan}, "clip must be positive"),
        ({"weight_decay": math.nan}, "weight_decay must be"),
        ({"warm_up": 1.0}, "warm_up must be"),
        ({"seed": -1}, "seed must lie"),
        ({"recipe": "../up"}, "recipe's name"),
        ({"limit": 0}, "limit must be"),
        ({"augment": {"rotate": -5.0}}, "rotate must lie"),
    ],
)
def test_a_mistake_is_named(change: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dataclasses.asdict(recipes.get("demo")) | change))
    with pytest.raises(ValueError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\x00"])
def test_what_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_config(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no configuration"):
        read_config(tmp_path / "config.json")


def test_recipes_suggest_and_take_changes() -> None:
    assert recipes.get("mnist", epochs=3).epochs == 3
    with pytest.raises(ValueError, match="'mnist'"):
        recipes.get("mnits")
    with pytest.raises(ValueError, match="'epochs'"):
        recipes.get("mnist", epoch=3)


def test_the_papers_schedule() -> None:
    config = TrainConfig(lr=1e-3, schedule="paper")
    assert learning_rate(config, 0, 10) == 1e-3
    assert learning_rate(config, 2000, 10) == pytest.approx(0.96e-3)
    assert learning_rate(config, 3000, 10) == pytest.approx(1e-3 * 0.96**1.5)


@pytest.mark.parametrize("warm_up", [0, 0.05, 0.25])
@pytest.mark.parametrize("total", [1, 2, 5, 1000])
def test_one_cycle_goes_up_and_down_and_never_to_zero(total: int, warm_up: float) -> None:
    config = TrainConfig(lr=1e-3, schedule="one-cycle", warm_up=warm_up)
    rates = [learning_rate(config, step, total) for step in range(total)]
    assert all(0 < rate <= 1e-3 for rate in rates)
    if total == 1000:
        top = rates.index(max(rates))
        assert top == pytest.approx(1000 * warm_up, abs=2)
        assert max(rates) == pytest.approx(1e-3, rel=1e-3)
        assert rates[: top + 1] == sorted(rates[: top + 1])
        assert rates[top:] == sorted(rates[top:], reverse=True)
        assert rates[-1] == pytest.approx(1e-6, rel=0.1)


def test_a_configuration_equals_its_own_file(tmp_path: Path) -> None:
    config = TrainConfig(model_options={"decoder_widths": (8, 9)})
    (tmp_path / "config.json").write_text(config.to_json())
    assert read_config(tmp_path / "config.json") == config
    with pytest.raises(ValueError, match="what JSON can hold"):
        TrainConfig(model_options={"routing": object()})


def test_sizes_come_from_the_data() -> None:
    with pytest.raises(ValueError, match="must not set num_classes"):
        TrainConfig(model_options={"num_classes": 3}).create_options()
