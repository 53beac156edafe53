"""The command line: what it says, and one sentence with exit code 2 for each kind of bad input."""

import io
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import capsnet
from capsnet import cli, recipes
from capsnet.cli import _using
from capsnet.training import TrainConfig, read_config


@pytest.fixture
def quick_recipe(quick: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The recipe `quick`, and an empty folder to work in."""
    monkeypatch.setitem(recipes._RECIPES, "quick", lambda: quick)
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """Run a command that has to fail: exit code 2, one sentence, no traceback. Returns the sentence."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def test_train_evaluate_predict(quick_recipe: None, capsys: pytest.CaptureFixture, quick: TrainConfig) -> None:
    changes = ["--epochs", "1", "--augment.shift", "0", "--set", "pose_dim=4", "--set", "primary_dim=4"]
    cli.main(["train", "quick", *changes, "--out", "run"])
    said = capsys.readouterr().out
    assert "test accuracy" in said
    assert "predict IMAGE --model run" in said
    config = read_config("run/config.json")
    assert (config.epochs, config.augment.shift, config.model_options["pose_dim"]) == (1, 0, 4)
    assert config.model_options["conv_channels"] == 4  # the recipe's own options stay
    assert config.model_options["primary_dim"] == 4

    cli.main(["train", "run/config.json", "--out", "again"])  # an earlier run's configuration is a recipe too
    assert Path("again/model.safetensors").read_bytes() == Path("run/model.safetensors").read_bytes()
    capsys.readouterr()

    cli.main(["evaluate", "run", "--json"])  # on the data it was trained on
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["accuracy"] == json.loads(Path("run/results.json").read_text())["accuracy"]
    assert (metrics["data"], metrics["split"]) == (config.data, "test")
    cli.main(["evaluate", "run", "--data", quick.data])
    said = capsys.readouterr().out
    assert "precision" in said
    assert said.startswith(f"run on the test split of {quick.data}\n")

    strokes = np.full((60, 50), 255, np.uint8)
    strokes[10:50, 22:28] = 20
    Image.fromarray(strokes).save("one.png")
    cli.main(["predict", "one.png", "one.png", "--model", "run", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert lines[0]["class"] in "0123456789"
    assert len(lines[0]["lengths"]) == 10
    cli.main(["predict", "one.png", "--model", "run"])
    assert capsys.readouterr().out.startswith("one.png: ")


@pytest.mark.parametrize("what", ["models", "routings", "datasets", "recipes"])
def test_list(what: str, capsys: pytest.CaptureFixture) -> None:
    cli.main(["list", what])
    said = capsys.readouterr().out
    assert {"models": "capsnet", "routings": "dynamic", "datasets": "mnist", "recipes": "demo"}[what] in said


@pytest.mark.parametrize("arguments", [["--help"], [], ["train", "--help"], ["train"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    cli.main(arguments)
    said = capsys.readouterr().out
    assert "usage: capsnet" in said
    assert "demo" in said


@pytest.mark.parametrize(
    "verb", [["train", "demo"], ["evaluate"], ["predict"], ["list"], ["export"], ["ensemble"], ["search"]]
)
def test_every_verb_has_help(verb: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*verb, "--help"])
    assert stop.value.code == 0
    assert f"usage: capsnet {' '.join(verb)}" in capsys.readouterr().out


def test_version_and_python_m() -> None:
    said = subprocess.run([sys.executable, "-m", "capsnet", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"capsnet {capsnet.__version__}"


def test_bad_names(quick_recipe: None, capsys: pytest.CaptureFixture) -> None:
    assert "Did you mean 'train'" in refused(capsys, "trian")
    assert "Did you mean 'demo'" in refused(capsys, "train", "dmo")
    assert "epochs" in refused(capsys, "train", "quick", "--epoch", "3")
    assert "Did you mean 'capsnet'" in refused(capsys, "train", "quick", "--model", "capsnt")
    assert "unknown routing" in refused(capsys, "train", "quick", "--routing", "dinamic")
    assert "Did you mean 'mnist'" in refused(capsys, "train", "quick", "--data", "mnits")
    assert "option 'iterations' of capsnet" in refused(capsys, "train", "quick", "--iterations", "0")
    assert "at least 1" in refused(capsys, "train", "quick", "--epochs", "0")
    assert "between 1 and" in refused(capsys, "train", "quick", "--threads", "0")
    assert "KEY=VALUE" in refused(capsys, "train", "quick", "--set", "pose_dim")
    assert "no model 'nobody'" in refused(capsys, "evaluate", "nobody")
    assert list(Path().iterdir()) == []  # nothing was begun


def test_bad_files(quick_recipe: None, capsys: pytest.CaptureFixture, tiny: capsnet.Model) -> None:
    capsnet.save(tiny, "good.safetensors")
    Path("half.safetensors").write_bytes(Path("good.safetensors").read_bytes()[:2000])
    Path("text.png").write_text("not a picture")
    Path("empty").mkdir()
    Image.fromarray(np.zeros((40, 40), np.uint8)).save("x.png")
    assert "not a complete safetensors file" in refused(capsys, "predict", "x.png", "--model", "half.safetensors")
    assert "text.png" in refused(capsys, "predict", "text.png", "--model", "good.safetensors")
    assert "nowhere.png" in refused(capsys, "predict", "nowhere.png", "--model", "good.safetensors")
    assert "the model takes" in refused(capsys, "evaluate", "good.safetensors")
    assert "empty" in refused(capsys, "train", "quick", "--data", "mnist:empty")
    assert "no such" in refused(capsys, "train", "quick", "--data", "mnist:nowhere")
    assert "half.safetensors" in refused(capsys, "train", "quick", "--init", "half.safetensors")
    assert not Path("runs").exists()


def test_bad_config_in_a_run_folder(quick_recipe: None, capsys: pytest.CaptureFixture) -> None:
    Path("run").mkdir()
    Path("run/config.json").write_text('{"epoch": 3}')
    for arguments in (["quick", "--resume", "run"], ["run/config.json"]):
        said = refused(capsys, "train", *arguments)
        assert "run/config.json: unknown key 'epoch'. Did you mean 'epochs'?" in said


def test_bad_values(quick_recipe: None, capsys: pytest.CaptureFixture) -> None:
    for flags in (["--lr", "nan"], ["--clip", "nan"], ["--seed", "9" * 30], ["--set", "pose_dim=-3"],
                  ["--set", "pose_dim=abc"], ["--set", "num_classes=3"], ["--batch-size", "0"],
                  ["--threads", "100000000"], ["--device", "tpu"], ["--recipe", "../x"]):  # fmt: skip
        refused(capsys, "train", "quick", *flags)
    assert list(Path().iterdir()) == []


def test_one_bad_picture_does_not_lose_the_others(
    quick_recipe: None, capsys: pytest.CaptureFixture, tiny: capsnet.Model
) -> None:
    capsnet.save(tiny, "good.safetensors")
    Image.fromarray(np.full((40, 44), 99, np.uint8)).save("x.png")
    Path("bad.png").write_text("no picture")
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "bad.png", "x.png", "--model", "good.safetensors"])
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out.startswith("x.png: ")
    assert "bad.png" in said.err
    assert "at least one image" in refused(capsys, "predict", "--model", "good.safetensors")


def command(*arguments: str, prepare=None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "capsnet", *arguments],
        capture_output=True,
        text=True,
        preexec_fn=prepare,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
        timeout=120,
    )


def one_sentence(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def small_run(idx_folder: Path, out: Path, *more: str) -> list[str]:
    return [
        "train", "smoke", "--data", f"mnist:{idx_folder}", "--batch-size", "50", "--set", "conv_channels=4",
        "--set", "primary_types=2", "--out", str(out), *more,
    ]  # fmt: skip


def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(idx_folder: Path, tmp_path: Path) -> None:
    """No file may grow beyond 20 kB: the configuration fits, the checkpoint does not."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = command(*small_run(idx_folder, tmp_path / "run", "--no-tensorboard"), prepare=limit)
    assert "File too large" in one_sentence(done)
    left = [path.name for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not [name for name in left if name.endswith((".tmp", ".pt", ".safetensors"))]


def test_a_read_only_disk_is_one_sentence(idx_folder: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        forbidden = Path("/sys")  # even root cannot make a folder there
    else:
        forbidden = tmp_path / "locked"
        forbidden.mkdir(mode=0o555)
    said = one_sentence(command(*small_run(idx_folder, forbidden / "run")))
    assert str(forbidden / "run") in said
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert "Not a directory" in one_sentence(command(*small_run(idx_folder, in_the_way / "run")))


def test_import_is_light() -> None:
    """`import capsnet` brings no web server, no search, no drawing, no command line."""
    heavy = ("fastapi", "optuna", "matplotlib", "tyro", "tensorboard", "onnx", "onnxruntime", "onnxscript")
    script = f"import capsnet, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_is_quick() -> None:
    """Under 1.5 s, most of it torch; in processor time, because the machines of tests are busy."""
    script = "import time, capsnet; print(time.process_time())"
    run = [sys.executable, "-c", script]
    tries = (float(subprocess.run(run, capture_output=True, text=True, check=True).stdout) for _ in range(10))
    assert any(spent < 1.5 for spent in tries)  # neighbours slow a processor down too: the best of some is its own


def test_ctrl_c_saves_and_says_how_to_go_on(idx_folder: Path, tmp_path: Path) -> None:
    arguments = small_run(idx_folder, tmp_path / "run", "--epochs", "2000", "--no-tensorboard")
    process = subprocess.Popen(
        [sys.executable, "-m", "capsnet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and not (metrics.is_file() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    command_to_go_on = said.strip().splitlines()[-1]
    assert command_to_go_on.endswith(f"--resume {tmp_path / 'run'}")
    assert "--epochs 2000" in command_to_go_on
    assert (tmp_path / "run" / "checkpoint.pt").is_file()


def documented_commands() -> list[str]:
    """Every `capsnet ...` line of an indented block in the README and the guides."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines() if line.startswith("    capsnet ")]
    return [line.split("  #")[0].strip() for line in lines]


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_are_understood(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Parsed for real, but not carried out: the verbs that work stop where they would begin."""

    class BegunError(Exception):
        pass

    def begin(*arguments: object, **more: object) -> None:
        raise BegunError

    for verb in ("train", "cross_validate", "evaluate", "load", "ensemble"):
        monkeypatch.setattr(capsnet, verb, begin)
    monkeypatch.setattr(cli.experiments, "reproduce", begin)
    monkeypatch.setattr(cli.search, "search", begin)
    monkeypatch.setattr(cli, "explore", begin)
    monkeypatch.setattr(_using, "export", begin)
    words = shlex.split(line)[1:]
    if words[0] == "list" or {"--list", "--spaces"} & set(words):
        cli.main(words)
    else:
        with pytest.raises(BegunError):
            cli.main(words)


def test_commands_are_told_so_that_they_work_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After `make demo` nothing is on the PATH: the path of the command is part of the advice."""
    home = tmp_path / ".venv" / "bin"
    home.mkdir(parents=True)
    (home / "capsnet").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(home / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.program("capsnet") == ".venv/bin/capsnet"
    monkeypatch.setenv("PATH", str(home))
    assert cli.program("capsnet") == "capsnet"


def test_reproduce_lists_runs_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["reproduce", "--list"])
    listed = capsys.readouterr().out
    assert "table1" in listed
    assert "routing-toy" in listed
    cli.main(["reproduce", "routing-toy", "--budget", "smoke", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "routing-toy.html" in shown
    assert (tmp_path / "smoke" / "routing-toy" / "routing-toy.json").is_file()
    assert "Did you mean 'routing-toy'?" in refused(capsys, "reproduce", "routing-tony", "--budget", "smoke")


def test_the_paper_s_setting_is_not_started_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off a terminal nobody can say yes, so the answer is no."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as stop:
        cli.main(["reproduce", "routing-toy", "--budget", "paper", "--out", str(tmp_path)])
    assert stop.value.code == 1
    captured = capsys.readouterr()
    assert "start it with --yes" in captured.out
    assert "was not started" in captured.err
    assert list(tmp_path.rglob("*.json")) == []


def test_the_end_of_input_is_a_no(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D at the question."""
    keyboard = io.StringIO()
    keyboard.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", keyboard)
    assert not cli.agreed("ten hours")


def test_all_of_the_shipped_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for which there are networks in the box, and no others."""
    begun: list[str] = []
    monkeypatch.setattr(cli, "run_experiment", lambda name, args: begun.append(name))
    cli.main(["reproduce", "all", "--budget", "shipped"])
    assert begun == ["affine", "perturb", "multimnist-figure"]
    cli.main(["reproduce", "all", "--budget", "smoke"])
    assert begun[3:] == cli.experiments.list_experiments()


def test_folds_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    for label in ("dark", "light"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for n in range(8):
            grey = generator.integers(0, 90, (24, 30, 3), dtype=np.uint8) + np.uint8(150 if label == "light" else 0)
            Image.fromarray(grey).save(tmp_path / "own" / label / f"{n}.jpg")
    flags = [
        "--model",
        "capsnet-small",
        "--epochs",
        "1",
        "--set",
        "conv_channels=4",
        "--set",
        "primary_types=2",
        "--no-tensorboard",
    ]
    data = ["--data", f"folder:{tmp_path / 'own'},size=24"]
    cli.main(["train", "images", *data, "--folds", "4", "--out", str(tmp_path / "cv"), *flags])
    assert "over 4 folds; all images together" in capsys.readouterr().out
    assert (tmp_path / "cv" / "fold-3" / "model.safetensors").is_file()
