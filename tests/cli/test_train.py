"""`capsnet train`: flags, options, errors before anything begins, and how a run ends."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import capsnet
from capsnet.cli._training import resume_command, with_options
from capsnet.training import read_config
from tests.cli.commands import command, output, refused, small_run


def test_train_leaves_a_run_of_the_changed_recipe(quick_recipe: None, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["--epochs", "1", "--augment.shift", "0", "--set", "pose_dim=4", "--set", "primary_dim=4"]
    text = output(capsys, "train", "quick", *changes, "--out", "run")
    assert "test accuracy" in text
    assert "predict IMAGE --model run" in text
    config = read_config("run/config.json")
    assert (config.epochs, config.augment.shift, config.model_options["pose_dim"]) == (1, 0, 4)
    assert config.model_options["conv_channels"] == 4  # the recipe's own options stay
    assert config.model_options["primary_dim"] == 4

    output(capsys, "train", "run/config.json", "--out", "again")  # an earlier run's configuration is a recipe too
    assert Path("again/model.safetensors").read_bytes() == Path("run/model.safetensors").read_bytes()


def test_help_lists_recipes_and_a_recipe_s_values(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(output(capsys, "train", "--help").replace("│", " ").split())
    for recipe in capsnet.recipes.list_recipes():
        assert f"• {recipe} {capsnet.recipes.describe(recipe)}" in text
    text = output(capsys, "train", "demo", "--help")
    assert output(capsys, "help", "train", "demo") == text
    assert "--augment.shift N" in text
    assert "(default: one-cycle)" in text


def test_train_without_a_recipe_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "train") == output(capsys, "train", "--help")
    assert "unknown" in refused(capsys, "train", "")


def test_set_reaches_into_options_by_dots() -> None:
    before = {"pose_dim": 8, "routing_options": {"leaky": True}}
    changed = with_options(before, ["routing_options.bias=true", "pose-dim=4", "squash=exp", "a.b.c=[1]"])
    assert changed == {
        "pose_dim": 4,
        "routing_options": {"leaky": True, "bias": True},
        "squash": "exp",
        "a": {"b": {"c": [1]}},
    }
    assert before == {"pose_dim": 8, "routing_options": {"leaky": True}}
    assert with_options({"routing_options": None}, ["routing_options.bias=true"]) == {"routing_options": {"bias": True}}
    for bad in ("pose_dim", "=3", ".bias=3", "a.=3"):
        with pytest.raises(ValueError, match="KEY=VALUE"):
            with_options({}, [bad])
    with pytest.raises(ValueError, match="pose_dim has no options of its own"):
        with_options({"pose_dim": 8}, ["pose_dim.x=1"])


def test_options_of_a_routing_reach_the_model(quick_recipe: None, capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "train", "quick", "--epochs", "1", "--set", "routing_options.bias=true", "--out", "run")
    assert capsnet.load("run").config["routing_options"] == {"bias": True}
    assert "Did you mean 'bias'?" in refused(capsys, "train", "quick", "--set", "routing_options.bais=true")


def test_bad_names_are_refused_before_anything_begins(quick_recipe: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'capsnet'" in refused(capsys, "train", "quick", "--model", "capsnt")
    assert "unknown routing" in refused(capsys, "train", "quick", "--routing", "dinamic")
    assert "Did you mean 'mnist'" in refused(capsys, "train", "quick", "--data", "mnits")
    assert "iterations must be at least 1, got 0" in refused(capsys, "train", "quick", "--iterations", "0")
    assert "epochs" in refused(capsys, "train", "quick", "--epochs", "0")
    assert "between 1 and" in refused(capsys, "train", "quick", "--threads", "0")
    assert "KEY=VALUE" in refused(capsys, "train", "quick", "--set", "pose_dim")
    assert "there is no configuration" in refused(capsys, "train", "nothing.json")
    assert list(Path().iterdir()) == []


def test_bad_values_are_refused_before_anything_begins(quick_recipe: None, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--lr", "nan"], ["--clip", "nan"], ["--seed", "9" * 30], ["--set", "pose_dim=-3"],
                  ["--set", "pose_dim=abc"], ["--set", "num_classes=3"], ["--batch-size", "0"],
                  ["--threads", "100000000"], ["--device", "tpu"], ["--recipe", "../x"]):  # fmt: skip
        refused(capsys, "train", "quick", *flags)
    assert list(Path().iterdir()) == []


def test_bad_files_are_refused_before_anything_begins(
    quick_recipe: None, capsys: pytest.CaptureFixture[str], tiny: capsnet.Model
) -> None:
    capsnet.save(tiny, "good.safetensors")
    Path("half.safetensors").write_bytes(Path("good.safetensors").read_bytes()[:2000])
    Path("empty").mkdir()
    assert "empty" in refused(capsys, "train", "quick", "--data", "mnist:empty")
    assert "no such" in refused(capsys, "train", "quick", "--data", "mnist:nowhere")
    assert "half.safetensors" in refused(capsys, "train", "quick", "--init", "half.safetensors")
    assert not Path("runs").exists()


def test_bad_config_of_a_run_is_refused(quick_recipe: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/config.json").write_text('{"epoch": 3}')
    for arguments in (["quick", "--resume", "run"], ["run/config.json"]):
        error = refused(capsys, "train", *arguments)
        assert "run/config.json: unknown key 'epoch'. Did you mean 'epochs'?" in error


def test_full_disk_is_one_sentence_and_leaves_no_half_file(idx_folder: Path, tmp_path: Path) -> None:
    """No file may grow beyond 20 kB: the configuration fits, the checkpoint does not."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = command(*small_run(idx_folder, tmp_path / "run", "--no-tensorboard"), prepare=limit)
    assert "File too large" in one_sentence(done)
    files = [path.name for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not [name for name in files if name.endswith((".tmp", ".pt", ".safetensors"))]


def test_read_only_disk_is_one_sentence(idx_folder: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        forbidden = Path("/sys")  # even root cannot make a folder in it
    else:
        forbidden = tmp_path / "locked"
        forbidden.mkdir(mode=0o555)
    assert str(forbidden / "run") in one_sentence(command(*small_run(idx_folder, forbidden / "run")))
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert "Not a directory" in one_sentence(command(*small_run(idx_folder, in_the_way / "run")))


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_ctrl_c_saves_and_says_how_to_continue(idx_folder: Path, tmp_path: Path) -> None:
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
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    continuing = error.strip().splitlines()[-1]
    assert continuing.endswith(f"--resume {tmp_path / 'run'}")
    assert "--epochs 2000" in continuing
    assert (tmp_path / "run" / "checkpoint.pt").is_file()


def test_resume_command_replaces_resume_and_out() -> None:
    words = ["train", "demo", "--out=a", "--epochs", "3", "--resume", "auto"]
    assert resume_command(words, "a").endswith("train demo --epochs 3 --resume a")
    assert resume_command(words, "auto").endswith("train demo --out=a --epochs 3 --resume auto")
    assert resume_command(["train", "demo", "--output", "a"], "a").endswith("train demo --resume a")


def test_folds_cross_validate_own_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    for label in ("dark", "light"):
        (tmp_path / "own" / label).mkdir(parents=True)
        for n in range(8):
            grey = generator.integers(0, 90, (24, 30, 3), dtype=np.uint8) + np.uint8(150 if label == "light" else 0)
            Image.fromarray(grey).save(tmp_path / "own" / label / f"{n}.jpg")
    flags = ["--model", "capsnet-small", "--epochs", "1", "--no-tensorboard"]
    flags += ["--set", "conv_channels=4", "--set", "primary_types=2"]
    data = ["--data", f"folder:{tmp_path / 'own'},size=24"]
    text = output(capsys, "train", "images", *data, "--folds", "4", "--out", str(tmp_path / "cv"), *flags)
    assert "over 4 folds; all images together" in text
    assert (tmp_path / "cv" / "fold-3" / "model.safetensors").is_file()
