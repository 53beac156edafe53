"""From a run to the box: the card tells what the stored weights are worth, and the page of results tells the card."""

import json
import shutil
from pathlib import Path

import pytest

import capsnet
from capsnet import weights
from capsnet.experiments import lab
from capsnet.training import TrainConfig
from tools import _boxed, ship


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a few steps, and what it becomes in the box."""
    folder = tmp_path_factory.mktemp("ship")
    options = {"channels": [4, 4, 4, 16]}
    config = TrainConfig(
        model="efficient-capsnet", model_options=options, decoder=False, limit=500, epochs=1, eval_limit=600,
        tensorboard=False,
    )  # fmt: skip
    capsnet.train(config, out=folder / "run", figures=False)
    place = folder / "box"
    place.mkdir()
    ship.ship(folder / "run", "efficient-mnist", ["mnist"], place, folder / "runs")
    return folder / "run", place / "efficient-mnist.safetensors"


def test_the_card(boxed: tuple[Path, Path]) -> None:
    run, file = boxed
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


def test_the_page(boxed: tuple[Path, Path]) -> None:
    page = boxed[1].with_suffix(".md").read_text()
    assert page.startswith("# efficient-mnist\n")
    value = capsnet.load(boxed[1]).card["test_accuracy"]["value"]
    assert f"{value:.2%}" in page
    assert "at the end of the run" in page  # on 600 digits here
    assert str(boxed[0]) not in page


def test_whoever_makes_room_leaves_a_card(boxed: tuple[Path, Path], tmp_path: Path) -> None:
    """In the order of the final runs, whichever of them is in the box."""
    run, file = boxed
    runs, second = tmp_path / "runs", json.loads(json.dumps(capsnet.load(file).card))
    ship.keep_card(file, second, runs)
    ship.keep_card(tmp_path / "empty.safetensors", second, runs)
    assert not runs.exists()  # the same run again, and an empty place
    second["origin"]["started"] = "later"
    ship.keep_card(file, second, runs)
    kept = json.loads((runs / "efficient-mnist-1.json").read_text())
    assert kept == ship.history(run)
    assert kept["test_accuracy"]["n"] == 600  # of its end, not of what was stored
    (runs / "efficient-mnist-1.json").rename(runs / "efficient-mnist-3.json")
    ship.keep_card(file, second, runs)
    ship.keep_card(file, second, runs)
    assert sorted(path.stem[-1] for path in runs.iterdir()) == ["1", "2", "3"]


def test_a_name_that_does_not_ship(boxed: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="efficient-mnist"):
        ship.ship(boxed[0], "efficient-mnits", [])


def test_a_command_without_its_folders() -> None:
    given = "capsnet train demo --out '/a b/c' --seed 1 --resume auto --threads 1"
    assert ship.command(given) == "capsnet train demo --seed 1 --threads 1"
    assert ship.command("capsnet train demo --out=/a/b --resume=auto --seed 1") == "capsnet train demo --seed 1"


def test_a_run_in_several_sittings_says_so(
    boxed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = shutil.copytree(boxed[0], tmp_path / "run")
    env = json.loads((run / "env.json").read_text())
    assert "resumed" not in ship.history(run)["origin"]
    env["resumed"] = [env | {"step": 1200, "threads": 3, "processes": 2, "commit": "abc"}]
    (run / "env.json").write_text(json.dumps(env))
    card = ship.history(run)
    kept = {"step": 1200, "started": env["started"], "threads": 3, "processes": 2, "commit": "abc"}
    assert card["origin"]["resumed"] == [kept]
    assert lab.machine(env) == lab.machine({key: value for key, value in env.items() if key != "resumed"})
    model = capsnet.load(boxed[1])
    model.card = model.card | {"origin": card["origin"]}
    page = ship.page("efficient-mnist", model)
    assert "| resumed | at step 1,200 with 3 thread(s), 2 process(es), commit abc |" in page
    monkeypatch.setattr(weights, "list_weights", lambda: [])
    ship.main(["--card", str(run), str(tmp_path / "runs" / "alone.json")])
    assert f"{env['started']}, resumed at step 1,200:" in "\n".join(_boxed.boxed(tmp_path / "runs"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "From a finished final run"),
        (["--card", "runs/mine"], "From a finished final run"),
        (["--profile"], "From a finished final run"),
        (["nowhere", "efficient-mnist"], "nowhere"),
        (["nowhere", "efficient-mnits"], "Did you mean 'efficient-mnist'?"),
        (["--card", "nowhere", "card.json"], "nowhere"),
    ],
)
def test_mistakes_are_told(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        ship.main(words)
    assert said in str(stop.value.code)


def test_the_section_of_the_results(boxed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights, "list_weights", lambda: ["efficient-mnist"])
    monkeypatch.setattr(weights, "resolve", lambda name: boxed[1].with_name(f"{name}.safetensors"))
    text = "\n".join(_boxed.boxed(tmp_path))
    error = 1 - capsnet.load(boxed[1]).card["test_accuracy"]["value"]
    assert f"| {100 * error:.2f} (" in text
    assert "`efficient-mnist` is behind the published figure" in text
    monkeypatch.setattr(weights, "list_weights", lambda: [])
    assert _boxed.boxed(tmp_path) == []
    ship.main(["--card", str(boxed[0]), str(tmp_path / "runs" / "alone.json")])
    text = "\n".join(_boxed.boxed(tmp_path / "runs"))
    assert "| `alone` | `mnist` |" in text
    assert "Not in the box, with the numbers of their runs' ends: `alone`." in text
    assert "behind" not in text
    ship.main(["--card", str(boxed[0]), str(tmp_path / "runs" / "efficient-mnist-1.json")])
    text = "\n".join(_boxed.boxed(tmp_path / "runs"))
    assert "`efficient-mnist-1` is behind the published figure" in text
