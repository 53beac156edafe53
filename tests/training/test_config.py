"""Configurations are read strictly, and errors name the value."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from capsnet import recipes
from capsnet.training import TrainConfig, read_config
from capsnet.training.optim import learning_rate


@pytest.mark.parametrize("name", recipes.list_recipes())
def test_recipe_survives_the_round_trip(name: str, tmp_path: Path) -> None:
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
        ({"lr": float("nan")}, "lr must be a finite number, got nan"),
        ({"epochs": "many"}, "epochs must be a valid integer, got 'many'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"schedule": "cosine"}, "schedule must be 'paper', 'one-cycle' or 'constant', got 'cosine'"),
        ({"lr": -1.0}, "lr must be greater than 0, got -1.0"),
        ({"ema": 1.5}, "ema must be less than 1, got 1.5"),
        ({"clip": 0.0}, "clip must be greater than 0"),
        ({"clip": math.nan}, "clip must be a finite number"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite number"),
        ({"warm_up": 1.0}, "warm_up must be less than 1, got 1.0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"recipe": "../up"}, r"recipe must match pattern .*, got '\.\./up'"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"augment": {"rotate": -5.0}}, "augment: rotate must lie between 0 and 180, got -5.0"),
        ({"epochs": "3"}, "epochs must be a valid integer, got '3'"),
        ({"lr": math.nan}, "lr must be"),
        ({"ema": math.nan}, "ema must be"),
        ({"model_options": [1]}, "model_options must be a valid dictionary"),
    ],
)
def test_config_file_error_names_the_value(change: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dataclasses.asdict(recipes.get("demo")) | change))
    with pytest.raises(ValueError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "\x00"])
def test_read_config_refuses_other_files(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_config(path)


def test_read_config_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no configuration"):
        read_config(tmp_path / "config.json")


def test_recipe_registered_from_outside_is_listed_described_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "_RECIPES", dict(recipes._RECIPES))

    def mine() -> TrainConfig:
        """One epoch of mine.

        More about it.
        """
        return TrainConfig(epochs=1)

    recipes.register("mine", mine)
    assert recipes.list_recipes()[-1] == "mine"
    assert recipes.describe("mine") == "One epoch of mine."
    assert recipes.get("mine", seed=3) == TrainConfig(recipe="mine", epochs=1, seed=3)
    with pytest.raises(ValueError, match="a recipe named 'mine' is registered already"):
        recipes.register("mine", mine)
    with pytest.raises(ValueError, match=r"a recipe's name is letters, digits, .* got 'a/b'"):
        recipes.register("a/b", mine)
    with pytest.raises(ValueError, match=r"unknown recipe 'mien'\. Did you mean 'mine'\? Known: demo, .*, mine"):
        recipes.get("mien")


def test_recipes_suggest_and_take_changes() -> None:
    assert recipes.get("mnist", epochs=3).epochs == 3
    with pytest.raises(ValueError, match="'mnist'"):
        recipes.get("mnits")
    with pytest.raises(ValueError, match="'epochs'"):
        recipes.get("mnist", epoch=3)


def test_paper_schedule_decays_continuously() -> None:
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


def test_config_equals_its_own_file(tmp_path: Path) -> None:
    config = TrainConfig(model_options={"decoder_widths": (8, 9)})
    (tmp_path / "config.json").write_text(config.to_json())
    assert read_config(tmp_path / "config.json") == config
    with pytest.raises(ValueError, match="what JSON can hold"):
        TrainConfig(model_options={"routing": object()})


def test_model_options_must_not_set_sizes() -> None:
    with pytest.raises(ValueError, match="must not set num_classes"):
        TrainConfig(model_options={"num_classes": 3}).create_options()


@pytest.mark.parametrize("change", [{"epochs": 0}, {"seed": -1}, {"keep": "first"}, {"batch_size": 2.5}])
def test_config_made_in_python_is_checked_too(change: dict) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(change))} must be .*, got "):
        TrainConfig(**change)
    with pytest.raises(ValueError, match=f"^{next(iter(change))} must be .*, got "):
        dataclasses.replace(TrainConfig(), **change)


def test_file_that_leaves_out_the_model_does_not_get_the_recipes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"recipe": "efficient", "epochs": 3}')
    assert read_config(file).model == "capsnet-small"
    assert "mine.json has no model: it gets capsnet-small" in caplog.text
    caplog.clear()
    file.write_text(recipes.get("efficient").to_json())
    assert read_config(file).model == "efficient-capsnet"
    assert not caplog.text
