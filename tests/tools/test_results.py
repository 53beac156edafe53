"""``tools.results``: which budget the page shows, and which reports it leaves out."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from capsnet import weights
from capsnet.experiments import Budget, Lab, Report, _registry, get, pathnet, register, reproduce
from capsnet.experiments._registry import ALL
from capsnet.experiments.lab import identity
from capsnet.training import TrainConfig
from tools import results
from tools._stale import version_of


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """The runs that the experiment ``made-up`` plans; it is the only one, and trains nothing."""
    runs = [TrainConfig(recipe="made-up", data="mnist", model="capsnet")]
    monkeypatch.setattr(_registry, "_REGISTRY", {})

    def plan(lab: Lab) -> list[TrainConfig]:
        return [dataclasses.replace(one, epochs=int(lab.options.get("epochs", 1))) for one in runs]

    @register("made-up", "A title", plan=plan, budgets=ALL, options=("epochs",))
    def run(lab: Lab) -> Report:
        """About it."""
        return Report(findings=[f"budget {lab.budget}"])

    return runs


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "weights_section", lambda runs: "")
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def page(out: Path, docs: Path) -> str:
    results.gather(out, docs)
    return (docs / "RESULTS.md").read_text()


def test_budgets_are_ranked_as_the_experiment_declares() -> None:
    assert results.ranked("overlap") == results.ranked("affine") == ["paper", "shipped", "day", "quick"]
    assert results.ranked("table1") == ["paper", "day", "quick"]


def test_page_prefers_bundled_networks_to_those_of_a_day(
    planned: list[TrainConfig], docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "version_of", lambda report: "today")  # it uses none of the bundled networks
    steps: list[tuple[Budget, str | None]] = [("smoke", None), ("quick", "quick"), ("shipped", "shipped")]
    for budget, shown in [*steps, ("day", "shipped")]:
        reproduce("made-up", budget=budget, out=tmp_path)
        text = page(tmp_path, docs)
        assert ("- not run yet: made-up" in text) if shown is None else (f"- budget {shown}\n" in text)


def test_page_leaves_out_reports_of_another_version(planned: list[TrainConfig], docs: Path, tmp_path: Path) -> None:
    reproduce("made-up", budget="quick", seeds=2, out=tmp_path, epochs=3)
    assert "[A title](#made-up) (quick)" in page(tmp_path, docs)
    before = planned[0]
    planned[0] = dataclasses.replace(before, epochs=9)  # the option decides
    assert "[A title](#made-up) (quick)" in page(tmp_path, docs)
    planned[0] = dataclasses.replace(before, lr=0.1)
    text = page(tmp_path, docs)
    assert "[A title](#made-up) (not shown)" in text
    assert results.EARLIER.format("made-up") in text
    assert "- budget quick" not in text
    reproduce("made-up", budget="quick", seeds=2, out=tmp_path, epochs=3)
    assert "- budget quick" in page(tmp_path, docs)


def test_report_with_options_that_are_gone_is_of_an_earlier_version(planned: list[TrainConfig], tmp_path: Path) -> None:
    report = stored(tmp_path, "quick", epochs=3)
    report.source["options"] = {"epochs": "many"}  # int() raises ValueError
    assert version_of(report) == "earlier"


def test_version_is_unknown_where_runs_were_not_recorded(planned: list[TrainConfig], tmp_path: Path) -> None:
    report = stored(tmp_path, "quick")
    del report.source["runs"]
    assert version_of(report) == "today"
    report.source["trained_on"] = ["a machine"]
    assert version_of(report) == "unknown"


def test_settings_of_what_is_trained_elsewhere_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_registry, "_REGISTRY", {})
    rates = {"quick": 0.1}

    @register("made-up", "A title", settings=lambda lab: {"lr": rates[lab.budget], "pairs": [(1, 2)]})
    def run(lab: Lab) -> Report:
        """About it."""
        return Report()

    report = stored(tmp_path, "quick")
    assert report.source["settings"] == {"lr": 0.1, "pairs": [[1, 2]]}
    assert version_of(report) == "today"
    rates["quick"] = 0.2
    assert version_of(report) == "earlier"
    del report.source["settings"]
    assert version_of(report) == "unknown"


def test_pathnet_declares_what_decides_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = get("pathnet").settings_of("quick", 1, {})
    assert before["lr"] == pathnet.LR
    assert len(before["pairs"]) == len(pathnet.PAIRS)
    monkeypatch.setattr(pathnet, "PAIRS", pathnet.PAIRS[:3])
    assert get("pathnet").settings_of("quick", 1, {}) != before


def test_runs_on_files_of_the_user_are_not_compared(
    planned: list[TrainConfig], tmp_path: Path, idx_folder: Path
) -> None:
    planned[0] = dataclasses.replace(planned[0], data=f"mnist:{idx_folder}")
    report = stored(tmp_path, "quick")
    assert report.source["runs"] is None
    planned[0] = dataclasses.replace(planned[0], data="mnist")
    assert version_of(report) == "today"
    assert get("made-up").planned_runs("quick", 1, {}) is not None


def test_report_on_bundled_networks_is_of_their_weights(planned: list[TrainConfig], tmp_path: Path) -> None:
    report = stored(tmp_path, "shipped")
    report.source["bundled"] = {"capsnet-mnist": identity(weights.resolve("capsnet-mnist"))}
    assert version_of(report) == "today"
    report.source["bundled"]["capsnet-mnist"] += "0"
    assert version_of(report) == "earlier"


def stored(out: Path, budget: Any, **options: Any) -> Report:
    """The report of ``made-up``, from its file."""
    folder = reproduce("made-up", budget=budget, out=out, **options)
    assert json.loads((folder / "made-up.json").read_text())["options"] == options
    return Report.read(folder / "made-up.json", folder)
