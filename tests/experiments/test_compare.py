"""``compare``: which routings take part with which settings, what is measured, and the command."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from capsnet import cli, create_model, recipes, routing
from capsnet.data import ArrayDataset
from capsnet.experiments import Declined, Measure, Report, _compared, _nets, compare, reproduce
from capsnet.experiments.compare import config, contenders, plan, setting
from capsnet.experiments.lab import Lab
from capsnet.models.capsnet import CapsNet
from capsnet.routing import _registry
from capsnet.training import TrainConfig

DOTS = np.zeros((2, 1, 4, 4), np.uint8)


def test_configs_differ_in_the_routing_only(tmp_path: Path) -> None:
    lab = Lab("compare", "quick", 1, tmp_path)
    assert contenders(lab) == routing.list_forms()
    configs = plan(lab)
    for one in configs:
        first = next(other for other in configs if other.data == one.data)
        same = {"model", "epochs", "batch_size", "lr", "schedule", "decoder", "seed", "augment", "limit"}
        assert all(getattr(one, key) == getattr(first, key) for key in same)
    assert [one.data for one in configs[:: len(contenders(lab))]] == ["multimnist", "shapes:kind=crowded"]
    full = config(lab, "MultiMNIST", "em-full", 0).model_options
    assert (full["routing_options"], full["squash"]) == ({"covariance": "full"}, "unit")
    assert config(lab, "MultiMNIST", "dynamic", 0).model_options["squash"] == "paper"
    chosen = Lab("compare", "quick", 1, tmp_path, options={"routings": ("uniform", "kmeans")})
    assert contenders(chosen) == ["uniform", "kmeans"]
    wrong = Lab("compare", "quick", 1, tmp_path, options={"routings": ("kmean",)})
    with pytest.raises(ValueError, match=r"unknown routing 'kmean'. Did you mean 'kmeans'\?"):
        contenders(wrong)


def test_routing_gets_only_options_it_has(tmp_path: Path) -> None:
    """The recipe `matrix` sets an inverse temperature, which only EM has."""
    recipe = recipes.get("matrix")
    lab = Lab("compare", "quick", 1, tmp_path, options={"recipe": "matrix"})
    options = {one.recipe: one.create_options() for one in plan(lab)}
    stated = recipe.model_options["routing_options"]["inverse_temperature"]
    assert options["compare-em"]["routing_options"]["inverse_temperature"] == stated
    assert "routing_options" not in options["compare-dynamic"]
    for one in options.values():
        create_model("matrix-capsnet-small", **one)
    assert options["compare-em"]["iterations"] == options["compare-dynamic"]["iterations"] == recipe.iterations == 2
    assert "iterations" not in options["compare-uniform"]


def test_recipe_keeps_its_length_except_in_smoke(tmp_path: Path) -> None:
    quick, smoke = (Lab("compare", budget, 1, tmp_path, options={"recipe": "mnist"}) for budget in ("quick", "smoke"))
    assert {one.epochs for one in plan(quick)} == {50}
    words = "The recipe `mnist`. Trained: `capsnet` on `mnist`, 50 epochs of 50,000, batches of 128, paper schedule."
    assert setting(quick)[0] == words
    assert "`fixed-point` is `dynamic` with update set." in setting(quick)
    apart = ", ".join(f"`{name}`" for name in routing.list_forms() if routing.get(name).wants_presence)
    assert "`em`" in apart
    assert any(sentence.startswith(f"Children of {apart} have a presence") for sentence in setting(quick))
    assert {(one.epochs, one.limit) for one in plan(smoke)} == {(1, 400)}
    file = tmp_path / "config.json"
    file.write_text(recipes.get("mnist", epochs=7).to_json())
    assert {one.epochs for one in plan(Lab("compare", "quick", 1, tmp_path, options={"recipe": str(file)}))} == {7}
    assert "the numbers have no meaning. Trained: `capsnet` on `mnist`, 1 epoch of 400" in setting(smoke)[0]


def test_recipe_asks_with_an_estimate(tmp_path: Path) -> None:
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
def test_unknown_options_are_refused(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reproduce(name, budget="smoke", out=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_other_iterations_apply_to_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix capsules are routed three times; the model itself keeps its own iterations."""
    model = create_model("matrix-capsnet-small", widths=(4, 2, 2, 2), iterations=2)
    seen: list[list[int]] = []

    def iterations(model: Any) -> list[int]:
        return [layer.routing.iterations for layer in model.routed_layers().values()]

    def evaluated(model: Any, *_: Any) -> Any:
        seen.append(iterations(model))
        return SimpleNamespace(accuracy=SimpleNamespace(value=0.75))

    monkeypatch.setattr(_compared, "evaluate", evaluated)
    errors = _compared.other_iterations(SimpleNamespace(model=model), ArrayDataset(DOTS, np.array([0, 1])))  # pyright: ignore
    assert errors == {"1": 25.0, "2": 25.0, "3": 25.0, "5": 25.0}
    assert seen == [[1] * 3, [2] * 3, [3] * 3, [5] * 3]
    assert iterations(model) == [2] * 3


def test_what_did_not_train_is_named() -> None:
    measures = [Measure("em", [50.0]), Measure("kmeans", [30.0]), Measure("dynamic", [3.0])]
    one_class, two = np.array([0, 1]), np.array([[0, 1], [1, 1]])
    for targets in (one_class, two):  # half of the pictures have the commonest answer
        sentences = compare.untrained("dots", measures, ArrayDataset(DOTS, targets))
        assert sentences == [
            "dots: `em` stayed at chance (50.0 %): here it did not train.",
            "dots: `kmeans` hardly trained: its error, 30.0 %, is more than half of that of the best constant answer, "
            "50.0 %.",
        ]


def test_findings_need_an_interval_of_the_difference_apart_from_zero() -> None:
    """Both are 0.3 points better, and the intervals of the errors overlap: of one the difference is well known."""
    control = Measure("uniform", [3.0], interval=(2.5, 3.5), n=5000)
    better, same = Measure("dynamic", [2.7], interval=(2.2, 3.2)), Measure("em", [2.7], interval=(2.2, 3.2))
    facts: dict[str, Any] = {"seconds per epoch": None, "peak megabytes": 10.0, "parameters": 5, "entropy": None}
    facts |= {"test iterations": {}, "shares": {}, "gaps": {}}
    known, unknown = ({"values": [-0.3], "interval": (-0.3 - w, -0.3 + w), "n": 5000} for w in (0.1, 0.5))
    compared = {
        "uniform": facts,
        "dynamic": facts | {"gaps": {"uniform": known}},
        "em": facts | {"gaps": {"uniform": unknown}},
    }
    report = Report(raw={compare.PAIRS: compared})
    compare.describe(report, "dots", [control, better, same], compared)
    assert "lower error: dynamic; higher error: none" in report.findings[1]
    assert "dots: lowest test error: dynamic" in report.findings[0]
    assert report.tables[0].rows[0] == ["uniform", control.shown(), "-", "10", "5", "-", "-", "-", "-"]
    report.measures = [m._replace(name=f"{compare.PAIRS}, {m.name}") for m in (control, better)]
    [claim] = compare.claims(report)
    assert (claim.verdict, claim.finding) == (
        "holds",
        "2.70 % against 3.00 %, -0.30 (-0.40 to -0.20) points on 5,000 pictures; one training each.",
    )
    shares = {"own": 0.25, "first": 0.5, "chance": 0.1}
    report = Report()
    compare.describe(report, "dots", [control], {"uniform": facts | {"shares": shares}})
    assert report.tables[0].rows[0][6:8] == ["25.0 %", "50.0 %"]
    assert "to own object" not in " ".join(report.findings)  # explained once for all data sets
    [sentence] = compare.explained({"dots": 0.1, "lines": 1 / 3})
    assert sentence.endswith("chance is 10.0 % (dots), 33.3 % (lines).")
    assert compare.explained({}) == []


def test_seeds_are_averaged() -> None:
    def seed(entropy: float, own: float, error: float) -> dict[str, Any]:
        shares = {"own": [0.1, own], "first": [0.2, 2 * own], "chance": 0.1}
        return {"entropy": entropy, "test iterations": {"1": error}, "shares": shares}

    means = _compared.averaged([seed(0.2, 0.1, 10.0), seed(0.6, 0.3, 20.0)])
    assert means["entropy"] == pytest.approx(0.4)
    assert means["test iterations"] == {"1": 15.0}
    assert means["shares"] == pytest.approx({"own": 0.2, "first": 0.4, "chance": 0.1})
    unknown: dict[str, Any] = {"entropy": None, "test iterations": {}, "shares": {}}
    assert _compared.averaged([unknown, unknown]) == unknown


def test_steps_are_measured_in_the_precision_of_the_training(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That which ``auto`` chose is recorded in the run."""
    seen: list[bool] = []

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(torch.is_autocast_enabled("cpu"))
        return real(self, *args, **options)

    real = CapsNet.forward
    monkeypatch.setattr(CapsNet, "forward", forward)
    (tmp_path / "env.json").write_text(json.dumps({"precision": "bf16"}))
    auto = dataclasses.replace(quick, precision="auto")
    trained: Any = SimpleNamespace(folder=tmp_path)
    for one in (_compared.as_trained(auto, trained), quick, auto):  # the last one: too short to measure
        _nets.training_step(one)()
    assert seen == [True, False, False]
    words = compare.precisions("dots", {"em": {"precision": "fp32"}, "uniform": {"precision": "bf16"}})
    assert words == ["dots: trained and timed in bf16 (uniform); fp32 (em)."]
    assert compare.precisions("dots", {"em": {"precision": "fp32"}}) == []


def test_external_routing_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered outside the package, in a module that the process which measures memory imports, too."""
    monkeypatch.setattr(_registry, "_ROUTINGS", dict(_registry._ROUTINGS))
    from tests.experiments import external_routing

    routing.register(external_routing.Halved)
    lab = Lab("compare", "quick", 1, tmp_path)
    assert {"halved", "halved-twice"} <= set(contenders(lab))
    assert config(lab, "MultiMNIST", "halved-twice", 0).model_options["routing_options"] == {"power": 2.0}
    cli.main(["compare", "--routings", "halved", "--budget", "smoke", "--seeds", "2", "--out", str(tmp_path)])
    document = json.loads((tmp_path / "smoke" / "compare" / "compare.json").read_text())
    assert document["raw"]["MultiMNIST"]["halved"]["peak megabytes"] > 1
    assert document["raw"]["MultiMNIST"]["halved"]["entropy"] == pytest.approx(1)
    assert len(document["raw"]["MultiMNIST"]["halved"]["seeds"]) == 2
    assert document["tables"][0]["rows"][0][0] == "halved"


def test_compare_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["compare", "--routings", "uniform", "attention", "--budget", "smoke", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "s / epoch" in printed
    assert "attention" in printed
    document = json.loads((tmp_path / "smoke" / "compare" / "compare.json").read_text())
    assert document["command"] == "capsnet compare --routings uniform attention --budget smoke --seeds 1"
    assert set(document["raw"]["MultiMNIST"]["attention"]["test iterations"]) == {"1", "2", "3", "5"}
    assert document["raw"]["MultiMNIST"]["uniform"]["test iterations"] == {}
    assert document["raw"]["MultiMNIST"]["uniform"]["entropy"] == pytest.approx(1)
    assert document["raw"]["MultiMNIST"]["uniform"]["shares"]["own"] == pytest.approx(0.1)
    assert sum("to own object" in sentence for sentence in document["findings"]) == 1
    assert document["raw"]["MultiMNIST"]["uniform"]["peak megabytes"] > 1
