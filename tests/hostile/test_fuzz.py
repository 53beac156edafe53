"""The attacks in short; with ``-m slow``, and by ``python -m tests.hostile``, at length."""

import logging
from pathlib import Path

import pytest

from tests.hostile.attacks import run
from tests.hostile.inputs import ATTACKS
from tests.hostile.kills import kill
from tests.hostile.requests import ask

SHORT = {"damaged_weights": 60, "forged_weights": 60, "damaged_picture": 60, "wrong_config": 60}


@pytest.mark.parametrize("name", ATTACKS)
def test_malformed_inputs_are_refused_or_harmless(name: str, tmp_path: Path) -> None:
    outcomes, wrong = run(ATTACKS[name], tmp_path, SHORT.get(name, 60), seed=1)
    assert not wrong
    assert outcomes["refused"] > outcomes["accepted"] / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_many_malformed_inputs_are_refused_or_harmless(name: str, tmp_path: Path) -> None:
    logging.getLogger("capsnet").setLevel(logging.ERROR)
    _, wrong = run(ATTACKS[name], tmp_path, 1700, seed=2)
    assert not wrong


def test_requests_get_sentences() -> None:
    answers, wrong = ask(80, seed=1)
    assert not wrong
    assert answers["4xx"] > answers["2xx"]


@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_runs_are_resumed_to_the_bit(count: int, tmp_path: Path, idx_folder: Path) -> None:
    stages, wrong = kill(tmp_path, idx_folder, count, seed=count)
    assert not wrong
    assert sum(stages.values()) >= min(count, 3)
