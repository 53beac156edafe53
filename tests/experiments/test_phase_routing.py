"""``phase-routing``: the choice on validation data, the pictures and the sentences, on numbers made by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capsnet.experiments import phase_routing
from capsnet.experiments._phase_draw import GREY, child_colours, frame, palette, tiles
from capsnet.experiments._phase_words import (
    AIM,
    REFERENCE,
    ROUTINGS,
    claims,
    curve,
    error_name,
    price,
    share_name,
    verdict,
)
from capsnet.experiments._report import Report, error_measure
from capsnet.experiments._routed import DATA, PAIRS
from capsnet.experiments.lab import Lab
from capsnet.experiments.phase_routing import FURTHER, TRIALS, USUAL, candidates, chosen, config, plan, trials
from capsnet.models import create_model


def test_plan_has_each_routing_on_each_data_set_and_the_trials(tmp_path: Path) -> None:
    lab = Lab("phase-routing", "quick", 2, tmp_path)
    planned = plan(lab)
    in_final = len(DATA)  # the first trial of each set is one of the final runs
    assert len(planned) == len(DATA) * (2 * len(ROUTINGS) + len(TRIALS)) + len(FURTHER) - in_final
    assert {one.routing for one in planned} == {name.partition(",")[0] for name in ROUTINGS}
    assert {one.routing for one in planned if one.model_options.get("coupling_weight")} == {"dynamic", "kuramoto"}
    for title in DATA:
        assert chosen(lab, title) == next(iter(trials(lab, title))), "none is finished"
        assert trials(lab, title)[chosen(lab, title)] == USUAL
        tried = [options.keys() & {"iterations", "gain", "beta"} for options in trials(lab, title).values()]
        assert set().union(*tried) == {"iterations", "gain", "beta"}
        assert len({options["beta"] for options in trials(lab, title).values()}) > 3
    same = {"model", "data", "epochs", "batch_size", "lr", "limit", "precision", "ema"}
    pairs = [one for one in planned if one.data == "multimnist"]
    assert all(getattr(one, key) == getattr(pairs[0], key) for one in pairs for key in same)
    assert config(lab, "MNIST", "em", 0).model_options["squash"] == "unit"


def test_largest_share_at_no_higher_error_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab("phase-routing", "quick", 1, tmp_path)
    runs = candidates(lab, PAIRS)
    assert trials(lab, PAIRS)["beta learnt, from 0"]["learn_beta"], "tried"
    assert "beta learnt, from 0" not in runs, "no candidate"
    names = {one.to_json(): name for name, one in runs.items()}
    tried = dict.fromkeys(runs, facts(0.19, 0.2)) | {REFERENCE: facts(0.2, 0.9), "gain 0.5": facts(0.201, 0.3)}
    tried["beta grows to 8"] = facts(0.3, 0.7)
    finished = dict.fromkeys(map(lab.where, runs.values()), True)

    class Stored:
        def __init__(self, folder: Path) -> None:
            self.finished = finished[folder]

    monkeypatch.setattr(phase_routing, "Run", Stored)
    monkeypatch.setattr(lab, "train", lambda one: names[one.to_json()])
    monkeypatch.setattr(phase_routing, "tried_on", lambda lab, title, runs: tried)
    assert chosen(lab, PAIRS) == "gain 0.5"
    tried |= {name: facts(0.3, 0.2) for name in runs if name not in (REFERENCE, "beta grows to 8")}
    assert chosen(lab, PAIRS) == "beta grows to 8", "all have a higher error"
    finished[lab.where(runs["2 iterations"])] = False
    assert chosen(lab, PAIRS) == next(iter(trials(lab, PAIRS))), "not all are finished"


def shares(own: float, reach: float = 0.01) -> dict[str, Any]:
    path = [0.1, own]
    return {"own": path, "own interval": [0.0, reach], "pictures": 100, "chance": 0.1}


def facts(error: float, own: float, plain: float = 0.2) -> dict[str, Any]:
    """Of a routing whose error differs from that of dynamic routing, ``plain``, by something known to 0.5 points."""
    accuracy, gap = {"value": 1 - error, "n": 1000}, 100 * (error - plain)
    known = {"values": [gap], "interval": (gap - 0.5, gap + 0.5), "n": 1000}
    return {"test": [accuracy], "validation": accuracy, "shares": [shares(own)], "gap": known}


def test_verdict_follows_the_intervals() -> None:
    of = {"dynamic": facts(0.2, 0.11), "kuramoto": facts(0.3, 0.65)}
    words = verdict("MultiMNIST", of, 10.0, "kuramoto")
    assert "is higher than that with `dynamic`: 65.00 % against 11.00 %, 95 % intervals apart" in words
    assert "its test error is higher than that of `dynamic`: +10.00 (+9.50 to +10.50) points" in words
    assert "The aim of 60 % is reached." in words
    of["kuramoto"] = facts(0.201, 0.115)
    words = verdict("MultiMNIST", of, 10.0, "kuramoto")
    assert "is level with that with `dynamic`" in words
    assert "its test error is not shown to be lower or higher than" in words
    assert "The aim of 60 % is not reached." in words
    of["kuramoto"] = facts(0.21, 0.601)
    assert "is undecided." in verdict("MultiMNIST", of, 10.0, "kuramoto")
    assert "aim" not in verdict("MNIST", of, 10.0, "kuramoto")


def test_price_names_the_best_setting_without_a_higher_error() -> None:
    tried = {"dynamic routing": facts(0.2, 0.11), "mild": facts(0.201, 0.3), "sharp": facts(0.3, 0.7)}
    words = price("MNIST", tried)
    assert "'sharp' has the largest share, 70.0 %; its error is higher than that of dynamic routing: +10.00" in words
    assert "'mild' has the largest, 30.0 %; its error is not shown to be lower or higher" in words
    del tried["mild"]
    assert "Each of them has a higher error" in price("MNIST", tried)


def test_tiles_show_each_child_in_its_parents_colour() -> None:
    model = create_model(
        "residual-capsnet", image_size=(24, 24), primary="grid", channels=(4, 4, 16), primary_dim=4, decoder=False
    )
    assert model.grid == (3, 3, 4)
    colours = palette(np.array([2, 0]), 3)
    assert colours[1].tolist() == list(GREY)
    couplings = np.full((36, 3), 1 / 3)
    couplings[0] = (0, 0, 1)  # the first type of the first position goes to class 2
    painted = child_colours(couplings, np.ones(36), colours)
    np.testing.assert_allclose(painted[0], colours[2])
    np.testing.assert_allclose(painted[1:], 1)  # undecided
    picture = tiles(model, painted)
    assert frame(model) == [(-4, 24), (-4, 24)]  # the first children are centred on the picture's edge
    assert picture.shape == (3, 4 * 28, 4 * 28)
    coloured = np.asarray((picture < 1).any(axis=0))
    assert coloured[:16, :16].all()  # a quarter of the first square of 8 pixels, 4 times as large
    assert coloured.sum() == 16 * 16


@pytest.mark.parametrize(
    ("lead", "error", "verdict"),
    [(0.05, 0.2, "holds"), (0.05, 0.3, "does not hold"), (-0.1, 0.1, "does not hold"), (0.0, 0.2, "undecided")],
)
def test_claim_needs_the_share_and_no_higher_error(lead: float, error: float, verdict: str) -> None:
    report = Report()
    for title, aim in AIM.items():
        report.raw[title] = {}
        for name in ("dynamic", "dynamic, taught", "em", "kuramoto", "kuramoto, taught"):
            own, wrong = (aim / 100 + lead, error) if name == "kuramoto, taught" else (0.11, 0.2)
            report.measures.append(error_measure(error_name(title, name), [{"value": 1 - wrong, "n": 1000}]))
            report.raw[title][name] = facts(wrong, own)
            report.measures.append(curve(share_name(title, name), [shares(own)], "own")[-1])
    found = claims(report)
    assert [claim.verdict for claim in found] == 2 * [*4 * ["does not hold"], verdict]
    assert found[4].text.startswith("60 % of the children on an object go to its capsule, at an error that is not")
    assert found[4].text.endswith("MultiMNIST, Kuramoto routing, taught")
