"""`capsnet list`."""

import pytest

from capsnet import data, experiments, models, recipes, routing, search, weights
from capsnet.cli._listing import LISTS
from tests.cli.commands import output, refused

REGISTRIES = {
    "models": models.list_models,
    "weights": weights.list_weights,
    "routings": routing.list_forms,
    "datasets": data.list_datasets,
    "recipes": recipes.list_recipes,
    "experiments": experiments.list_experiments,
    "spaces": search.list_spaces,
}


@pytest.mark.parametrize("what", LISTS)
def test_list_shows_the_whole_registry(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [line.split()[0] for line in output(capsys, "list", what).splitlines() if line.startswith("  ")]
    expected = REGISTRIES[what]()
    if what == "models":  # trained ones follow
        expected = [*expected, *weights.list_weights()]
    assert shown == expected


def test_list_alone_lists_what_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "list")
    assert all(f"  {what} " in text for what in LISTS)
    assert "Did you mean 'models'?" in refused(capsys, "list", "modls")


def test_list_shows_what_was_registered_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(recipes._RECIPES, "mine", recipes.demo)
    assert "  mine " in output(capsys, "list", "recipes")
    assert "• mine " in output(capsys, "train", "--help")
