"""Every experiment runs, end to end, on the smallest budget: the same code as the real one, on a few hundred images."""

import json
from pathlib import Path

import pytest
from PIL import Image

import capsnet
from capsnet.experiments import Declined, Report, describe, get, lab, list_experiments, register, reproduce

AGAIN = ("table1", "affine", "few-shot")  # trained by the experiment itself, by others, and in a loop


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that experiments share their networks as they do in use."""
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("name", list_experiments())
def test_experiment_runs_end_to_end(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "scramble-faces":
        pytest.importorskip("skimage", reason="the faces come with scikit-image")
        monkeypatch.setenv("CAPSNET_CACHE", str(out / "cache"))
    folder = reproduce(name, budget="smoke", out=out)
    assert folder == out / "smoke" / name
    document = json.loads((folder / f"{name}.json").read_text())
    assert document["title"] == describe(name)
    assert document["budget"] == "smoke"
    assert document["seeds"] == [0]
    assert f"capsnet reproduce {name} --budget smoke --seeds 1" == document["command"]
    assert {"capsnet", "torch", "processor", "started", "threads"} <= set(document["environment"])
    assert document["figures"]
    assert document["raw"]
    assert document["findings"]
    assert document["seconds"] > 0
    page = (folder / f"{name}.html").read_text()
    for figure in document["figures"]:
        assert figure["caption"] in page.replace("&#x27;", "'").replace("&quot;", '"').replace("&amp;", "&")
        with Image.open(folder / figure["file"]) as picture:
            assert min(picture.size) > 200
    assert page.count("data:image/") == len(document["figures"])
    planned = get(name).plan(lab.Lab(name, "smoke", 1, out))
    assert all((lab.Lab(name, "smoke", 1, out).where(config) / "results.json").is_file() for config in planned)
    if name not in AGAIN:
        return
    monkeypatch.setattr(lab, "train", None)  # a second time, nothing is trained
    before = (folder / f"{name}.json").stat().st_mtime_ns
    assert (reproduce(name, budget="smoke", out=out) / f"{name}.json").stat().st_mtime_ns > before


@pytest.mark.parametrize("name", list_experiments())
def test_experiment_describes_itself(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ("scramble-faces", "small-data"):
        pytest.importorskip("skimage", reason="the faces come with scikit-image")
        monkeypatch.setenv("CAPSNET_CACHE", str(out / "cache"))
    experiment = get(name)
    assert 10 < len(experiment.title) < 110
    assert len(experiment.about) > 300  # what the paper did, and which claim to look at
    for budget in experiment.budgets:
        plan = experiment.plan(lab.Lab(name, budget, 2, "unused"))
        assert all(config.tensorboard is False for config in plan)
        seeds = {config.seed for config in plan}
        assert seeds <= {0, 1}


def test_registered_experiment_can_be_reproduced(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capsnet.experiments import _registry

    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))

    @register("own", "An experiment from outside the package", budgets=("smoke",), options=("factor",))
    def run(lab: lab.Lab) -> Report:
        """What it does."""
        return Report(findings=["One finding."], raw={"value": 2 * lab.options["factor"]})

    assert list_experiments()[-1] == "own"
    assert "own" not in list_experiments("paper")
    assert describe("own") == "An experiment from outside the package"
    folder = reproduce("own", budget="smoke", out=out, factor=3)
    document = json.loads((folder / "own.json").read_text())
    assert (document["raw"], document["about"]) == ({"value": 6}, "What it does.")
    assert document["command"] == "reproduce('own', budget='smoke', seeds=1, factor=3)"
    with pytest.raises(ValueError, match="own has no budget paper"):
        reproduce("own", budget="paper", out=out, factor=3)
    with pytest.raises(ValueError, match="there is an experiment 'table1' already"):
        register("table1", "Another")(run)


def test_seeds_without_effect_are_said(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    reproduce("routing-toy", budget="smoke", seeds=2, out=out)
    assert "routing-toy has no networks that it trains with several seeds: seeds=2 has no effect" in caplog.text
    caplog.clear()
    reproduce("routing-toy", budget="smoke", out=out)
    assert "no effect" not in caplog.text


def test_paper_budget_asks_with_an_estimate(out: Path) -> None:
    asked: list[str] = []
    with pytest.raises(Declined, match="routing-toy was not started"):
        reproduce("routing-toy", budget="paper", out=out, ask=lambda question: bool(asked.append(question)))
    assert asked
    assert asked[0].startswith("routing-toy: ")


def test_reproduce_refuses_bad_input_in_one_sentence(out: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown experiment 'tabel1'. Did you mean 'table1'\?"):
        reproduce("tabel1", out=out)
    with pytest.raises(ValueError, match="unknown budget 'huge'"):
        reproduce("table1", budget="huge", out=out)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seeds must lie between 1 and 100, got 0"):
        reproduce("table1", seeds=0, out=out)


def test_shipped_budget_trains_nothing(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "train", None)
    folder = reproduce("affine", budget="shipped", out=out)
    document = json.loads((folder / "affine.json").read_text())
    assert document["budget"] == "shipped"
    caps, plain = capsnet.load("capsnet-affine").card, capsnet.load("capsnet-affine-cnn").card
    values = {measure["name"]: measure["values"] for measure in document["measures"]}
    assert values["CapsNet, affNIST"] == pytest.approx([100 * (1 - caps["test_accuracy"]["value"])])
    assert values["CNN, affNIST"] == pytest.approx([100 * (1 - plain["test_accuracy"]["value"])])
    assert document["seconds"] < min(caps["seconds"], plain["seconds"])  # of this command, not of their training
    assert document["bundled"].keys() == {"capsnet-affine", "capsnet-affine-cnn"}
    assert any("`capsnet-affine` and `capsnet-affine-cnn`" in sentence for sentence in document["differs"])


@pytest.mark.parametrize("name", list_experiments("shipped"))
def test_bundled_networks_cover_the_shipped_budget(name: str, out: Path) -> None:
    planned = get(name).plan(lab.Lab(name, "shipped", 1, out))
    assert planned
    assert all(lab.bundled_for(config) in capsnet.list_weights() for config in planned)


def test_shipped_budget_is_refused_where_there_is_none(out: Path) -> None:
    with pytest.raises(ValueError, match="choose another budget for table1"):
        reproduce("table1", budget="shipped", out=out)
    with pytest.raises(ValueError, match="one trained network each"):
        reproduce("perturb", budget="shipped", seeds=2, out=out)
