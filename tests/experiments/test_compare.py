"""Routings side by side: what is measured, by hand, and the verb from the command line."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from capsnet import cli, create_model, recipes, routing
from capsnet.data import ArrayDataset
from capsnet.experiments import Declined, compare, reproduce
from capsnet.experiments._report import Measure
from capsnet.experiments.compare import config, contenders, entropy, findings, plan, setting
from capsnet.experiments.lab import Lab

DOTS = np.zeros((2, 1, 4, 4), np.uint8)


def test_entropy_by_hand() -> None:
    even, decided = torch.full((1, 5, 4), 0.25), torch.eye(4)[None]
    assert entropy(even) == pytest.approx(1)
    assert entropy(decided) == pytest.approx(0, abs=1e-6)
    half = torch.tensor([[[0.5, 0.5, 0.0, 0.0]]])
    assert entropy(half) == pytest.approx(math.log(2) / math.log(4))
    assert entropy(0.1 * half) == pytest.approx(0.5)  # attention's do not sum to 1 over the parents


def test_all_but_the_routing_is_equal(tmp_path: Path) -> None:
    lab = Lab("compare", "quick", 1, tmp_path)
    assert set(routing.list_routings()) < set(contenders(lab))
    configs = plan(lab)
    for one in configs:
        same = {"model", "data", "epochs", "batch_size", "lr", "schedule", "decoder", "seed", "augment", "limit"}
        assert all(getattr(one, key) == getattr(configs[0], key) for key in same)
    assert config(lab, "em-full", 0).model_options == {"routing_options": {"covariance": "full"}, "squash": "unit"}
    assert "squash" not in config(lab, "dynamic", 0).model_options
    chosen = Lab("compare", "quick", 1, tmp_path, options={"routings": ("uniform", "kmeans")})
    assert list(contenders(chosen)) == ["uniform", "kmeans"]
    wrong = Lab("compare", "quick", 1, tmp_path, options={"routings": ("kmean",)})
    with pytest.raises(ValueError, match=r"unknown routing 'kmean'. Did you mean 'kmeans'\?"):
        contenders(wrong)


def test_each_routing_is_told_what_it_knows(tmp_path: Path) -> None:
    """The recipe `matrix` sets an inverse temperature, which none but EM has heard of."""
    recipe = recipes.get("matrix")
    lab = Lab("compare", "quick", 1, tmp_path, options={"recipe": "matrix"})
    options = {one.recipe: one.create_options() for one in plan(lab)}
    stated = recipe.model_options["routing_options"]["inverse_temperature"]
    assert options["compare-em"]["routing_options"]["inverse_temperature"] == stated
    assert "routing_options" not in options["compare-dynamic"]
    for told in options.values():
        create_model("matrix-capsnet-small", **told)
    assert options["compare-em"]["iterations"] == options["compare-dynamic"]["iterations"] == recipe.iterations == 2
    assert "iterations" not in options["compare-uniform"]


def test_a_recipe_keeps_its_length_but_for_smoke(tmp_path: Path) -> None:
    quick, smoke = (Lab("compare", budget, 1, tmp_path, options={"recipe": "mnist"}) for budget in ("quick", "smoke"))
    assert {one.epochs for one in plan(quick)} == {50}
    assert setting(quick) == [
        "The recipe `mnist`. Trained: `capsnet` on `mnist`, 50 epochs of 50,000, batches of 128, paper schedule."
    ]
    assert {(one.epochs, one.limit) for one in plan(smoke)} == {(1, 400)}
    file = tmp_path / "config.json"
    file.write_text(recipes.get("mnist", epochs=7).to_json())
    assert {one.epochs for one in plan(Lab("compare", "quick", 1, tmp_path, options={"recipe": str(file)}))} == {7}
    assert "the numbers mean nothing. Trained: `capsnet` on `mnist`, 1 epoch of 400" in setting(smoke)[0]


def test_how_long_a_recipe_takes_is_said_first(tmp_path: Path) -> None:
    asked: list[str] = []
    with pytest.raises(Declined):
        reproduce(
            "compare",
            recipe="demo",
            routings=["uniform"],
            out=tmp_path,
            ask=lambda question: asked.append(question) is not None,
        )
    assert "one training run to do, about" in asked[0]
    assert not (tmp_path / "quick").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("compare", {"routing": ["em"]}, "unknown option of compare 'routing'. Did you mean 'routings'"),
        ("table1", {"epochs": 5}, "unknown option of table1 'epochs'. Known: none"),
        ("compare", {"recipe": "mnits"}, "unknown recipe 'mnits'"),
        ("compare", {"recipe": "cnn-small"}, "cnn-small, the network of cnn-small, has no routing"),
    ],
)
def test_what_nobody_understands_is_refused(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reproduce(name, budget="smoke", out=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_all_layers_run_other_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix capsules are routed three times; each layer gets its own back."""
    model = create_model("matrix-capsnet-small", widths=(4, 2, 2, 2), iterations=2)
    layers: list[Any] = [layer for layer in model.modules() if hasattr(layer, "routing")]
    assert len(layers) == 3
    seen: list[set[int]] = []

    def evaluated(*_: Any) -> Any:
        seen.append({layer.routing.iterations for layer in layers})
        return SimpleNamespace(accuracy=SimpleNamespace(value=0.75))

    monkeypatch.setattr(compare, "evaluate", evaluated)
    errors = compare.other_iterations(SimpleNamespace(model=model), ArrayDataset(DOTS, np.array([0, 1])))  # pyright: ignore
    assert errors == {"1": 25.0, "2": 25.0, "3": 25.0, "5": 25.0}
    assert seen == [{1}, {2}, {3}, {5}]
    assert {layer.routing.iterations for layer in layers} == {2}


def test_chance_is_known_for_one_class_a_picture() -> None:
    measures = [Measure("em", [50.0]), Measure("dynamic", [3.0])]
    said = compare.at_chance(measures, ArrayDataset(DOTS, np.array([0, 1])))
    assert said == ["`em` stayed at chance (50.0 %): in this network and with these settings it did not train."]
    assert compare.at_chance(measures, ArrayDataset(DOTS, np.array([[0, 1], [1, 1]]))) == []


def test_the_verdict_needs_intervals_apart() -> None:
    control = Measure("uniform", [3.0], interval=(2.5, 3.5))
    better, same = Measure("dynamic", [1.0], interval=(0.8, 1.2)), Measure("em", [2.9], interval=(2.4, 3.4))
    said = " ".join(findings([control, better, same]))
    assert "better: dynamic; worse: nobody" in said
    assert "Lowest test error: dynamic" in said


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["compare", "--routings", "uniform", "attention", "--budget", "smoke", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "s / epoch" in said
    assert "attention" in said
    document = json.loads((tmp_path / "smoke" / "compare" / "compare.json").read_text())
    assert document["command"] == "capsnet compare --routings uniform attention --budget smoke --seeds 1"
    assert set(document["raw"]["attention"]["test iterations"]) == {"1", "2", "3", "5"}
    assert document["raw"]["uniform"]["test iterations"] == {}
    assert document["raw"]["uniform"]["entropy"] == pytest.approx(1)
    assert document["raw"]["uniform"]["peak megabytes"] > 1
