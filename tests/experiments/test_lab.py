"""The lab: what was done is not done again, what was stopped goes on, and nothing is mixed up."""

import dataclasses
import json
from pathlib import Path

import pytest

from capsnet.data import Augment
from capsnet.experiments import lab as module
from capsnet.experiments.lab import Lab, fingerprint, resolved
from capsnet.training import Interrupted, TrainConfig


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab("toy", "smoke", 1, tmp_path).open()


def test_a_finished_run_is_not_trained_again(lab: Lab, quick: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lab.train(quick)
    assert 0 <= first.error <= 100
    assert first.validation is not None
    assert first.error == pytest.approx(100 * (1 - first.test["accuracy"]["value"]))
    monkeypatch.setattr(module, "train", None)  # calling it would fail
    again = Lab("other", "smoke", 1, lab.folder.parents[1]).train(quick)  # another experiment, the same network
    assert again.test == first.test
    assert again.folder == first.folder
    assert lab.seconds == pytest.approx(json.loads((first.folder / "seconds.json").read_text())["seconds"])


def test_another_seed_or_setting_is_another_run(lab: Lab, quick: TrainConfig) -> None:
    folders = {lab.where(dataclasses.replace(quick, **change)) for change in ({}, {"seed": 1}, {"epochs": 3})}
    assert len(folders) == 3


def test_a_new_setting_at_its_default_does_not_change_the_name(quick: TrainConfig) -> None:
    """Adding a field to the configuration must not make strangers of finished runs."""
    values = {k: v for k, v in dataclasses.asdict(resolved(quick)).items() if v != dataclasses.asdict(TrainConfig())[k]}
    values["augment"] = {"shift": 1}  # and one in it neither
    assert fingerprint(resolved(quick)) == fingerprint(values)
    assert "clip" not in values
    assert values["model_options"] == quick.model_options
    other = dataclasses.replace(quick, augment=Augment(shift=1, elastic=1))
    assert fingerprint(resolved(other)) != fingerprint(values)


def test_a_stopped_run_goes_on(lab: Lab, quick: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    from capsnet.training import loop

    reference = Lab("toy", "smoke", 1, lab.folder.parents[1] / "reference").train(quick)
    real, steps = loop.train_step, []

    def stop_after_three(*args: object) -> dict:
        if len(steps) == 3:
            raise Interrupted(Path())
        steps.append(1)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "train_step", stop_after_three)
    with pytest.raises(Interrupted):
        lab.train(quick)
    assert not (lab.where(quick) / "results.json").exists()
    monkeypatch.setattr(loop, "train_step", real)
    trained = lab.train(quick)
    assert trained.test == reference.test
    for ours, theirs in zip(trained.model.parameters(), reference.model.parameters(), strict=True):
        assert ours.equal(theirs)


def test_a_measurement_is_remembered_by_its_inputs(lab: Lab) -> None:
    calls = []

    def make() -> dict:
        calls.append(1)
        return {"value": len(calls)}

    assert lab.remember("count", make, n=3) == {"value": 1}
    assert lab.remember("count", make, n=3) == {"value": 1}
    assert lab.remember("count", make, n=4) == {"value": 2}
    assert lab.remember("other", make, n=3) == {"value": 3}
    assert Lab("toy", "smoke", 1, lab.folder.parents[1]).open().remember("count", make, n=3) == {"value": 1}
    fresh = Lab("toy", "smoke", 1, lab.folder.parents[1], fresh=True).open()
    assert fresh.remember("count", make, n=3) == {"value": 4}


def test_a_failed_measurement_leaves_nothing(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError):
        lab.remember("broken", lambda: {"value": 1 / 0})
    assert lab.remember("broken", lambda: {"value": 1}) == {"value": 1}


def test_fresh_trains_again(lab: Lab, quick: TrainConfig) -> None:
    before = (lab.train(quick).folder / "results.json").stat().st_mtime_ns
    again = Lab("toy", "smoke", 1, lab.folder.parents[1], fresh=True)
    after = (again.train(quick).folder / "results.json").stat().st_mtime_ns
    assert after > before
    assert (again.train(quick).folder / "results.json").stat().st_mtime_ns == after  # once per sitting is enough


def test_budgets(tmp_path: Path) -> None:
    labs = {budget: Lab("toy", budget, 1, tmp_path) for budget in ("smoke", "quick", "paper")}
    assert [lab.pick(1, 2, 3) for lab in labs.values()] == [1, 2, 3]
    assert len({lab.folder for lab in labs.values()}) == 3


def test_a_measurement_of_a_retrained_network_is_made_again(lab: Lab, quick: TrainConfig) -> None:
    run = lab.train(quick).folder
    assert lab.remember("seen", lambda: {"value": 1}, run=run) == {"value": 1}
    assert lab.remember("seen", lambda: {"value": 2}, run=run) == {"value": 1}
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    assert lab.remember("seen", lambda: {"value": 3}, run=run) == {"value": 3}
