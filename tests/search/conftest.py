"""A configuration that trains in a fraction of a second: what a search of many trials is tested with."""

import dataclasses
from pathlib import Path

import pytest

from capsnet.training import TrainConfig


@pytest.fixture
def small(quick: TrainConfig) -> TrainConfig:
    """``quick`` with fewer images."""
    return dataclasses.replace(quick, limit=60, eval_limit=40, ema=None, lr=0.01)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
