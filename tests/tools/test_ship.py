"""``tools.ship``: from a finished run to bundled weights with a card, and the section of the results page."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import capsnet
from capsnet import weights
from capsnet.experiments import lab
from capsnet.metrics import Proportion
from capsnet.training import TrainConfig
from tools import ensemble, ship
from tools._weights import shifted, task, weights_section
from tools.tables import ROOT


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a few steps, and the weights file made from it."""
    folder = tmp_path_factory.mktemp("ship")
    options = {"channels": [4, 4, 4, 16]}
    config = TrainConfig(
        model="efficient-capsnet", model_options=options, decoder=False, limit=500, epochs=1, eval_limit=600,
        tensorboard=False,
    )  # fmt: skip
    capsnet.train(config, out=folder / "run", figures=False)
    place = folder / "weights"
    place.mkdir()
    ship.ship(folder / "run", "efficient-mnist", ["mnist"], place, folder / "runs")
    return folder / "run", place / "efficient-mnist.safetensors"


def test_card_has_the_numbers_of_the_stored_weights(shipped: tuple[Path, Path]) -> None:
    run, file = shipped
    model = capsnet.load(file)
    card = model.card
    assert card["data"] == "mnist"
    again = capsnet.evaluate(model)
    assert card["test_accuracy"] == card["tests"]["mnist"] == pytest.approx(again.accuracy._asdict())
    assert card["at_its_end"]["n"] == 600
    assert card["slice"] == {"n": 500, "right": round((again.lengths.argmax(1) == again.targets)[:500].sum())}
    assert card["seconds"] >= 0
    assert card["origin"]["commit"] == json.loads((run / "env.json").read_text())["commit"]
    assert str(run) not in json.dumps(card)


def test_page_shows_the_card(shipped: tuple[Path, Path]) -> None:
    page = shipped[1].with_suffix(".md").read_text()
    assert page.startswith("# efficient-mnist\n")
    value = capsnet.load(shipped[1]).card["test_accuracy"]["value"]
    assert f"{value:.2%}" in page
    assert "at the end of the run" in page  # on 600 digits here
    assert str(shipped[0]) not in page


def test_replaced_run_leaves_its_card(shipped: tuple[Path, Path], tmp_path: Path) -> None:
    """In the order of the final runs, whichever of them is bundled."""
    run, file = shipped
    runs, second = tmp_path / "runs", json.loads(json.dumps(capsnet.load(file).card))
    ship.keep_card(file, second, runs)
    ship.keep_card(tmp_path / "empty.safetensors", second, runs)
    assert not runs.exists()  # the same run again, and no file
    second["origin"]["started"] = "later"
    ship.keep_card(file, second, runs)
    kept = json.loads((runs / "efficient-mnist-1.json").read_text())
    assert kept == ship.history(run)
    assert kept["test_accuracy"]["n"] == 600  # of its end, not of what was stored
    (runs / "efficient-mnist-1.json").rename(runs / "efficient-mnist-3.json")
    ship.keep_card(file, second, runs)
    ship.keep_card(file, second, runs)
    assert sorted(path.stem[-1] for path in runs.iterdir()) == ["1", "2", "3"]


PAIRS = "multimnist:pairs=600"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a few steps on pairs of digits, and the weights file made from it."""
    folder = tmp_path_factory.mktemp("pairs")
    config = TrainConfig(
        model="efficient-capsnet", model_options={"channels": [4, 4, 4, 16]}, decoder=False, data=PAIRS, limit=200,
        epochs=1, eval_limit=100, tensorboard=False,
    )  # fmt: skip
    capsnet.train(config, out=folder / "run", figures=False)
    (folder / "weights").mkdir()
    return folder / "run", ship.ship(folder / "run", "capsnet-multimnist", [], folder / "weights", folder / "runs")


def test_card_of_pairs_has_half_credit(pairs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run, file = pairs
    model = capsnet.load(file)
    again = capsnet.evaluate(model)
    assert again.half_credit is not None
    assert model.card["half_credit"] == {PAIRS: pytest.approx(again.half_credit._asdict())}
    assert f"| with half credit, {PAIRS} | {again.half_credit} |" in file.with_suffix(".md").read_text()
    assert ship.history(run)["half_credit"][PAIRS]["n"] == 100  # at the end of the run
    monkeypatch.setattr(weights, "list_weights", lambda: ["capsnet-multimnist"])
    monkeypatch.setattr(weights, "resolve", lambda name: file)
    assert f"|  | `{PAIRS}`, half credit | {100 * (1 - again.half_credit.value):.2f} % (95 %: " in weights_section(run)


def test_half_credit_can_be_added_to_a_card(
    shipped: tuple[Path, Path], pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    file = Path(shutil.copy(pairs[1], tmp_path))
    model = capsnet.load(file)
    whole = model.card
    model.card = {key: value for key, value in whole.items() if key != "half_credit"}
    ship.write(model, file)
    tensors = lab.identity(file)
    assert "half credit" not in file.with_suffix(".md").read_text()
    ship.add_half_credit(file.stem, tmp_path)
    assert capsnet.load(file).card == whole
    assert lab.identity(file) == tensors
    model.card["tests"] = {PAIRS: whole["test_accuracy"] | {"value": 0.99}}
    ship.write(model, file)
    with pytest.raises(ValueError, match=r"its card 99.00%: ship it again"):
        ship.add_half_credit(file.stem, tmp_path)
    with pytest.raises(ValueError, match="efficient-mnist was not tested on pictures of several objects"):
        ship.add_half_credit("efficient-mnist", shipped[1].parent)


def test_replaced_run_of_pairs_keeps_its_half_credit(pairs: tuple[Path, Path], tmp_path: Path) -> None:
    """The names of other bundled models are not taken: ``capsnet-multimnist-6`` is no sixth run."""
    run, file = pairs
    other = json.loads(json.dumps(capsnet.load(file).card))
    other["origin"]["started"] = "later"
    for _ in range(6):
        ship.keep_card(file, other, tmp_path)
    kept = sorted(path.stem for path in tmp_path.iterdir())
    assert kept == [f"capsnet-multimnist-{n}" for n in (1, 2, 3, 4, 5, 7)]
    assert json.loads((tmp_path / f"{kept[0]}.json").read_text()) == ship.history(run)
    assert [task(name) for name in (kept[0], "capsnet-multimnist-6", "capsnet-multimnist-6-1")] == [
        "capsnet-multimnist",
        "capsnet-multimnist-6",
        "capsnet-multimnist-6",
    ]


def test_every_bundled_model_has_a_purpose() -> None:
    assert ship.SUMMARIES.keys() <= ship.PURPOSES.keys()


def test_shifts_of_affine_networks_come_from_their_cards() -> None:
    def card(shift: int) -> dict:
        trained = {"data": "expanded-mnist", "split": "train", "augment": {"shift": shift}}
        return {"data": "affnist:source=generated", "trained_on": trained}

    assert shifted({"other": {"data": "mnist"}}) == []
    assert shifted({"a": card(0), "b": card(0)})[0].endswith("with shifts of up to 6 pixels, as here.")
    assert shifted({"a": card(4), "b": card(0)})[0].endswith("here they are up to 10 (`a`), 6 (`b`).")


def test_ensemble_has_a_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names, half = ["efficient-mnist", "capsnet-small-mnist"], Proportion(0.5, 0.4, 0.6, 100)
    monkeypatch.setattr(ensemble, "evaluate", lambda model, spec, **_: SimpleNamespace(accuracy=half))
    ensemble.main([str(tmp_path / "ensemble-mnist.json"), *names])
    card = json.loads((tmp_path / "ensemble-mnist.json").read_text())
    assert card["tests"] == {"mnist": half._asdict()}
    monkeypatch.setattr(weights, "list_weights", lambda: [])
    text = weights_section(tmp_path)
    assert "| `ensemble-mnist` | `mnist` | 50.00 % (95 %: 40.00 to 60.00) | 0.13 (Byerly et al. 2020), 0.16 " in text
    assert "Not bundled" not in text
    assert "`ensemble-mnist` has no training of its own: the mean of `efficient-mnist`, `capsnet-small-mnist`" in text
    assert "    capsnet ensemble efficient-mnist capsnet-small-mnist --out ensemble-mnist.safetensors\n" in text
    with pytest.raises(SystemExit):
        ensemble.main([str(tmp_path / "two.json"), "efficient-mnist", "capsnet-shapes"])
    assert not (tmp_path / "two.json").exists()


def test_stored_card_of_the_ensemble_is_of_the_bundled_weights() -> None:
    """After replacing one of its members: ``python -m tools.ensemble FILE NAME ...``."""
    members = json.loads((ROOT / "docs/results/runs/ensemble-mnist.json").read_text())["members"]
    assert members == {name: lab.identity(weights.resolve(name)) for name in members}


def test_ship_refuses_unknown_names(shipped: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="efficient-mnist"):
        ship.ship(shipped[0], "efficient-mnits", [])


def test_command_leaves_out_folders() -> None:
    given = "capsnet train demo --out '/a b/c' --seed 1 --resume auto --threads 1"
    assert ship.command(given) == "capsnet train demo --seed 1 --threads 1"
    assert ship.command("capsnet train demo --out=/a/b --resume=auto --seed 1") == "capsnet train demo --seed 1"


def test_resumed_run_says_so(shipped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = shutil.copytree(shipped[0], tmp_path / "run")
    env = json.loads((run / "env.json").read_text())
    assert "resumed" not in ship.history(run)["origin"]
    env["resumed"] = [env | {"step": 1200, "threads": 3, "processes": 2, "commit": "abc"}]
    (run / "env.json").write_text(json.dumps(env))
    card = ship.history(run)
    kept = {"step": 1200, "started": env["started"], "threads": 3, "processes": 2, "commit": "abc"}
    assert card["origin"]["resumed"] == [kept]
    assert lab.machine(env) == lab.machine({key: value for key, value in env.items() if key != "resumed"})
    model = capsnet.load(shipped[1])
    model.card = model.card | {"origin": card["origin"]}
    page = ship.page("efficient-mnist", model)
    assert "| resumed | at step 1,200 with 3 thread(s), 2 process(es), commit abc |" in page
    monkeypatch.setattr(weights, "list_weights", lambda: [])
    ship.main(["--card", str(run), str(tmp_path / "runs" / "alone.json")])
    assert f"{env['started']}, resumed at step 1,200:" in weights_section(tmp_path / "runs")


def test_card_of_a_run_alone_has_further_tests(shipped: tuple[Path, Path], tmp_path: Path) -> None:
    file, few = tmp_path / "alone.json", "mnist:per_class=20"
    ship.main(["--card", str(shipped[0]), str(file), few])
    card, again = json.loads(file.read_text()), capsnet.evaluate(shipped[0], few)
    assert card["tests"] == {few: pytest.approx(again.accuracy._asdict()), "mnist": card["at_its_end"]}
    assert (card["data"], card["test_accuracy"]) == (few, card["tests"][few])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give RUN and NAME"),
        (["runs/mine"], "give RUN and NAME"),
        (["--card", "runs/mine"], "--card"),
        (["--profile"], "--profile"),
        (["--profile", "capsnet-mnits"], "capsnet-mnits"),
        (["nowhere", "efficient-mnist"], "nowhere"),
        (["nowhere", "efficient-mnits"], "efficient-mnist"),
        (["nowhere", "efficient-mnist", "--profile", "efficient-mnist"], "give RUN and NAME"),
        (["--card", "nowhere", "card.json"], "nowhere"),
        (["--half-credit", "nowhere"], "nowhere"),
        (["--half-credit", "capsnet-mnist", "--profile", "capsnet-mnist"], "give RUN and NAME"),
    ],
)
def test_bad_arguments_are_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        ship.main(words)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_weights_section_is_made_from_cards(
    shipped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(weights, "list_weights", lambda: ["efficient-mnist"])
    monkeypatch.setattr(weights, "resolve", lambda name: shipped[1].with_name(f"{name}.safetensors"))
    text = weights_section(tmp_path)
    error = 1 - capsnet.load(shipped[1]).card["test_accuracy"]["value"]
    assert f"| {100 * error:.2f} % (95 %: " in text
    assert "The error of `efficient-mnist` is higher than the published one" in text
    monkeypatch.setattr(weights, "list_weights", lambda: [])
    assert weights_section(tmp_path) == ""
    ship.main(["--card", str(shipped[0]), str(tmp_path / "runs" / "alone.json")])
    text = weights_section(tmp_path / "runs")
    assert "| `alone` | `mnist` |" in text
    assert "Not bundled, with the numbers at the end of their runs: `alone`." in text
    assert "higher than the published" not in text
    ship.main(["--card", str(shipped[0]), str(tmp_path / "runs" / "efficient-mnist-1.json")])
    text = weights_section(tmp_path / "runs")
    assert "The error of `efficient-mnist-1` is higher than the published one" in text
