"""What the tests of the command line share."""

from pathlib import Path

import pytest

from capsnet import recipes
from capsnet.training import TrainConfig


@pytest.fixture
def quick_recipe(quick: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recipe `quick`, and an empty folder to work in."""
    monkeypatch.setitem(recipes._RECIPES, "quick", lambda: quick)
    monkeypatch.chdir(tmp_path)
