"""Every experiment runs, end to end, on the smallest budget: the same code as the real one, on a few hundred images."""

import json
from pathlib import Path

import pytest
from PIL import Image

from capsnet.experiments import Declined, describe, lab, list_experiments, reproduce
from capsnet.experiments._reproduce import find


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that experiments share their networks as they do in use."""
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("name", list_experiments())
def test_smoke(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    planned = find(name).plan(lab.Lab(name, "smoke", 1, out))
    assert all((lab.Lab(name, "smoke", 1, out).where(config) / "results.json").is_file() for config in planned)
    monkeypatch.setattr(lab, "train", None)  # a second time, nothing is trained
    before = (folder / f"{name}.json").stat().st_mtime_ns
    assert (reproduce(name, budget="smoke", out=out) / f"{name}.json").stat().st_mtime_ns > before


@pytest.mark.parametrize("name", list_experiments())
def test_every_experiment_says_what_it_is(name: str) -> None:
    module = find(name)
    assert 10 < len(module.TITLE) < 110
    assert len(module.__doc__ or "") > 300  # what the paper did, and which claim to look at
    for budget in ("quick", "paper"):
        plan = module.plan(lab.Lab(name, budget, 2, "unused"))
        assert all(config.tensorboard is False for config in plan)
        seeds = {config.seed for config in plan}
        assert seeds <= {0, 1}


def test_the_paper_s_setting_says_how_long_and_asks(out: Path) -> None:
    asked: list[str] = []
    with pytest.raises(Declined, match="routing-toy was not started"):
        reproduce("routing-toy", budget="paper", out=out, ask=lambda question: bool(asked.append(question)))
    assert asked
    assert asked[0].startswith("routing-toy: ")


def test_bad_input_is_one_sentence(out: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown experiment 'tabel1'. Did you mean 'table1'\?"):
        reproduce("tabel1", out=out)
    with pytest.raises(ValueError, match="unknown budget 'huge'"):
        reproduce("table1", budget="huge", out=out)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seeds must lie between 1 and 100, got 0"):
        reproduce("table1", seeds=0, out=out)
