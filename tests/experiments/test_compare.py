"""Routings side by side: what is measured, by hand, and the verb from the command line."""

import json
import math
from pathlib import Path

import pytest
import torch

from capsnet import cli, create_model, recipes, routing
from capsnet.experiments._report import Measure
from capsnet.experiments.compare import config, contenders, entropy, findings, plan
from capsnet.experiments.lab import Lab


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
    lab = Lab("compare", "quick", 1, tmp_path, options={"recipe": recipe})
    options = {one.recipe: one.create_options() for one in plan(lab)}
    stated = recipe.model_options["routing_options"]["inverse_temperature"]
    assert options["compare-em"]["routing_options"]["inverse_temperature"] == stated
    assert "routing_options" not in options["compare-dynamic"]
    for told in options.values():
        create_model("matrix-capsnet-small", **told)


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
