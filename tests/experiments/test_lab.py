"""``Lab``: finished runs are reused, interrupted ones resumed, measurements stored by their inputs."""

import dataclasses
import json
from pathlib import Path

import pytest

import capsnet
from capsnet import data
from capsnet.data import Augment
from capsnet.experiments import _nets
from capsnet.experiments import lab as module
from capsnet.experiments.lab import Lab, fingerprint, resolved
from capsnet.training import Interrupted, TrainConfig, build


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab("toy", "smoke", 1, tmp_path).open()


def test_finished_run_is_reused(lab: Lab, quick: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lab.train(quick)
    assert 0 <= first.error <= 100
    assert first.validation is not None
    assert first.error == pytest.approx(100 * (1 - first.test["accuracy"]["value"]))
    monkeypatch.setattr(module, "train", None)  # calling it would fail
    again = Lab("other", "smoke", 1, lab.folder.parents[1]).train(quick)  # another experiment, the same network
    assert again.test == first.test
    assert again.folder == first.folder
    assert lab.seconds == pytest.approx(json.loads((first.folder / "seconds.json").read_text())["seconds"])


def test_folder_depends_on_seed_and_settings(lab: Lab, quick: TrainConfig) -> None:
    folders = {lab.where(dataclasses.replace(quick, **change)) for change in ({}, {"seed": 1}, {"epochs": 3})}
    assert len(folders) == 3


def test_fingerprint_ignores_settings_at_their_defaults(quick: TrainConfig) -> None:
    """Adding a field to the configuration must not rename finished runs."""
    values = {k: v for k, v in dataclasses.asdict(resolved(quick)).items() if v != dataclasses.asdict(TrainConfig())[k]}
    values["augment"] = {"shift": 1}  # and one in it neither
    assert fingerprint(resolved(quick)) == fingerprint(values)
    assert "clip" not in values
    assert values["model_options"] == quick.model_options
    other = dataclasses.replace(quick, augment=Augment(shift=1, elastic=1))
    assert fingerprint(resolved(other)) != fingerprint(values)


def test_interrupted_run_is_resumed(lab: Lab, quick: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_measurement_is_stored_by_its_inputs(lab: Lab) -> None:
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


def test_failed_measurement_stores_nothing(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError):
        lab.remember("broken", lambda: {"value": 1 / 0})
    assert lab.remember("broken", lambda: {"value": 1}) == {"value": 1}


def test_fresh_trains_again(lab: Lab, quick: TrainConfig) -> None:
    before = (lab.train(quick).folder / "results.json").stat().st_mtime_ns
    again = Lab("toy", "smoke", 1, lab.folder.parents[1], fresh=True)
    after = (again.train(quick).folder / "results.json").stat().st_mtime_ns
    assert after > before
    assert (again.train(quick).folder / "results.json").stat().st_mtime_ns == after  # once per process


def test_pick_follows_the_budget(tmp_path: Path) -> None:
    labs = {budget: Lab("toy", budget, 1, tmp_path) for budget in ("smoke", "quick", "paper", "shipped", "day")}
    assert [lab.pick(1, 2, 3) for lab in labs.values()] == [1, 2, 3, 3, 3]
    assert [lab.pick(1, 2, 3, 4) for lab in labs.values()] == [1, 2, 3, 3, 4]
    assert len({lab.folder for lab in labs.values()}) == 5


def test_measurement_depends_on_the_weights(lab: Lab, quick: TrainConfig) -> None:
    run = lab.train(quick).folder
    assert lab.remember("seen", lambda: {"value": 1}, run=run) == {"value": 1}
    assert lab.remember("seen", lambda: {"value": 2}, run=run) == {"value": 1}
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    assert lab.remember("seen", lambda: {"value": 3}, run=run) == {"value": 3}


@pytest.mark.parametrize("spec", ["mnist", "multimnist"])
def test_strong_networks_have_one_stem_and_as_many_parameters(tmp_path: Path, spec: str) -> None:
    day = Lab("toy", "day", 1, tmp_path)
    caps, cnn = _nets.capsnet(day, spec, decoder=False), _nets.cnn(day, spec)
    assert abs(_nets.parameters(cnn) / _nets.parameters(caps) - 1) < 0.01
    stems = [list(build(c, data.load(spec, "test")).features.state_dict()) for c in (caps, cnn)]  # type: ignore[union-attr]
    assert stems[0] == stems[1]
    same = ("data", "epochs", "batch_size", "optimizer", "lr", "schedule", "augment", "ema", "precision")
    assert all(getattr(caps, key) == getattr(cnn, key) for key in same)


def test_bundled_network_was_trained_on_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that were also tested on it are for other data."""
    six = "multimnist:shift=6,canvas=36"

    def about(network: str, spec: str) -> dict:
        card = {"tests": {"multimnist": {}, six: {}}, "trained_on": {"data": spec, "split": "train"}}
        return {"config": {"name": network}, "card": card}

    early = {"config": {"name": "residual-capsnet"}, "card": {"trained_on": "train (50,000 digits)"}}
    found = {
        "a-early": early,
        "caps": about("residual-capsnet", "multimnist"),
        "caps-6": about("residual-capsnet", six),
        "caps-6-cnn": about("residual-cnn", six),
        "caps-cnn": about("residual-cnn", "multimnist"),
    }
    for order in (sorted(found), sorted(found, reverse=True)):
        monkeypatch.setattr(module, "list_weights", lambda order=order: order)
        monkeypatch.setattr(module, "resolve", lambda name: name)
        monkeypatch.setattr(module, "read_metadata", found.__getitem__)
        for spec, name in (("multimnist", "caps"), (six, "caps-6")):
            assert module.bundled_for(TrainConfig(model="capsnet", data=spec)) == name
            assert module.bundled_for(TrainConfig(model="baseline-cnn", data=spec)) == f"{name}-cnn"
    with pytest.raises(ValueError, match="no bundled model is like capsnet, and trained and tested on mnist"):
        module.bundled_for(TrainConfig(model="capsnet", data="mnist"))


def test_pairs_start_from_the_stem_of_their_plain_network(tmp_path: Path) -> None:
    far = "multimnist:shift=6,canvas=36"
    assert _nets.trained_stem("multimnist") == "capsnet-multimnist-cnn"
    assert _nets.trained_stem(far) == "capsnet-multimnist-6-cnn"
    for without in ("mnist", "multimnist:shift=3", "shapes:kind=crowded"):  # one object, or no bundled network
        assert _nets.trained_stem(without) is None
    day = Lab("toy", "day", 1, tmp_path)
    networks = [_nets.capsnet(day, far), _nets.cnn(day, far)]
    assert {one.init for one in networks} == {"capsnet-multimnist-6-cnn"}
    assert _nets.capsnet(Lab("toy", "quick", 1, tmp_path), far).init is None
    [words] = _nets.seen([*networks, _nets.capsnet(day, "mnist")])
    assert "The stems of `capsnet-multimnist-6-cnn` were trained on all 60,000 digits" in words
    assert _nets.seen([dataclasses.replace(networks[0], init="capsnet-multimnist")]) == [], "not such a stem"
    for name in {one.init for one in networks}:
        assert name is not None
        assert capsnet.load(name).card["trained_on"]["split"] == "train+validation", "as the sentence says"
