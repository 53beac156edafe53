"""``tools.ship``: from a finished run to bundled weights with a card, and the section of the results page."""

import json
import shutil
from pathlib import Path

import pytest

import capsnet
from capsnet import weights
from capsnet.experiments import lab
from capsnet.training import TrainConfig
from tools import ship
from tools._weights import weights_section


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
