"""The command line as a whole: help without PyTorch, version, errors, old spellings, completion."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import capsnet
from capsnet import cli, experiments, recipes
from capsnet.cli._talk import program
from tests.cli.commands import command, output, refused

# prints which of the modules were imported after a command, which may end in SystemExit
IMPORTED = """
import sys
from capsnet import cli
for words in {commands}:
    try:
        cli.main(words)
    except SystemExit as stop:
        assert not stop.code, words
    assert "torch" not in sys.modules, words
    assert "numpy" not in sys.modules, words
"""


def test_help_of_every_verb_is_shown_without_torch() -> None:
    quick = [["--help"], [], ["help"], ["-V"], ["--version"], ["list"]]
    quick += [[verb, "--help"] for verb in cli.VERBS] + [["help", verb] for verb in cli.VERBS]
    quick += [["train", "demo", "--help"], ["help", "train", "images"]]
    subprocess.run([sys.executable, "-c", IMPORTED.format(commands=quick)], capture_output=True, check=True)


@pytest.mark.parametrize("arguments", [["--help"], [], ["help"], ["-h"]])
def test_help_lists_all_verbs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *arguments)
    assert "usage: capsnet" in text
    assert "capsnet train demo" in text  # first steps
    for verb in cli.VERBS:
        assert re.search(rf"• {verb} +\w", text)


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_of_a_verb_is_the_same_in_both_spellings(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, verb, "--help")
    assert f"usage: capsnet {verb}" in text
    assert output(capsys, "help", verb) == text


@pytest.mark.parametrize("verb", [[verb] for verb in cli.VERBS if verb != "train"] + [["train", "demo"]])
def test_metavars_say_what_is_wanted(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *verb, "--help")
    metavars = re.findall(r"^\W*--[\w.-]+ ([A-Z{]\S+)", text, re.MULTILINE)
    assert not {"STR", "INT", "FLOAT", "TEXT"} & set(metavars)
    assert not [metavar for metavar in metavars if "{None}" in metavar]
    expected = {
        "evaluate": ["MODEL", "--data DATA", "--split SPLIT", "--batch-size N"],
        "predict": ["IMAGE...", "--model MODEL", "--threshold X", "--save-reconstructions FOLDER"],
        "search": ["RECIPE", "--spaces", "--space SPACE", "--trials N", "--out FOLDER"],
        "export": ["MODEL", "--out FILE"],
        "ensemble": ["MODEL...", "--out FILE"],
        "reproduce": ["EXPERIMENT", "--list", "--budget BUDGET", "--out FOLDER"],
        "compare": ["--routings ROUTING...", "--recipe RECIPE"],
        "train": ["--model MODEL", "--routing ROUTING", "--init MODEL", "--data DATA", "--set KEY=VALUE", "--lr X"],
    }
    for metavar in expected.get(verb[0], []):
        assert metavar in text


def test_help_names_all_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "reproduce", "--help")
    for budget in get_args(experiments.Budget):
        assert f"`{budget}`" in text


def test_version_is_the_same_in_all_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    expected = f"capsnet {capsnet.__version__}\n"
    assert output(capsys, "-V") == output(capsys, "--version") == command("--version").stdout == expected


def test_unknown_words_are_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown verb 'trian'. Did you mean 'train'?" in refused(capsys, "trian")
    assert "Did you mean 'train'?" in refused(capsys, "help", "trian")
    assert "unknown recipe 'dmo'. Did you mean 'demo'?" in refused(capsys, "train", "dmo")
    assert "`capsnet` has no flag --foo" in refused(capsys, "--foo")
    assert "has no flag --modle. Did you mean --model?" in refused(capsys, "predict", "x.png", "--modle", "m")
    assert "has no flag --splt. Did you mean --split?" in refused(capsys, "evaluate", "x", "--splt=test")
    assert "`capsnet train demo` has no flag --epoch. Did you mean --epochs?" in refused(
        capsys, "train", "demo", "--epoch", "3"
    )
    assert "unknown --schedule 'papr'. Did you mean 'paper'?" in refused(capsys, "train", "demo", "--schedule", "papr")
    assert "Did you mean 'quick'?" in refused(capsys, "compare", "--budget", "qick")
    assert "Did you mean 'onnx'?" in refused(capsys, "export", "capsnet-mnist", "--out", "x.onnx", "--format", "onx")


def test_wrong_values_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--epochs: expected a whole number, got 'three'" in refused(capsys, "train", "demo", "--epochs", "three")
    assert "--clip: expected a number, got 'x'" in refused(capsys, "train", "demo", "--clip", "x")
    assert "--port: expected a whole number, got '1.5'" in refused(capsys, "explore", "--port", "1.5")
    assert "capsnet: shift must be" in refused(capsys, "train", "demo", "--augment.shift", "-1")
    long = "x" * 300  # is not broken into lines
    assert f"expected a whole number, got '{long}'" in refused(capsys, "predict", "x.png", "--top", long)
    assert "--threads needs a value" in refused(capsys, "train", "demo", "--threads")


def test_missing_and_surplus_words_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "`capsnet evaluate` needs MODEL" in refused(capsys, "evaluate")
    assert "`capsnet export` needs --out FILE" in refused(capsys, "export", "capsnet-mnist")
    assert "`capsnet search` needs --space" in refused(capsys, "search", "demo", "--trials", "2")
    assert "`capsnet search` needs --trials" in refused(capsys, "search", "demo", "--space", "rate")
    assert "`capsnet reproduce` needs EXPERIMENT" in refused(capsys, "reproduce", "--budget", "smoke")
    assert "`capsnet evaluate` does not take 'b'" in refused(capsys, "evaluate", "a", "b")


def test_commands_are_shown_as_the_shell_finds_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After `make demo` nothing is on the PATH: the path of the command is part of the advice."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "capsnet").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program("capsnet") == ".venv/bin/capsnet"
    monkeypatch.setenv("PATH", str(folder))
    assert program("capsnet") == "capsnet"


def test_completion_knows_verbs_recipes_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "capsnet.bash"
    output(capsys, "--tyro-write-completion", "bash", str(script))
    complete = f"""source {script}
    ask() {{ COMP_WORDS=("$@"); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _tyro_capsnet; echo "${{COMPREPLY[*]}}"; }}
    ask capsnet pred; ask capsnet train effi; ask capsnet train demo --epo; ask capsnet export --for"""
    found = subprocess.run(["bash", "-c", complete], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["predict", "efficient", "--epochs", "--format"]
    assert "unknown shell 'fsh'. Did you mean 'fish'?" in refused(capsys, "--tyro-write-completion", "fsh", "x")


def test_plugins_are_found_by_list_and_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "own_recipes.py"
    plugin.write_text("from capsnet import recipes\nrecipes._RECIPES['own'] = recipes.demo\n")
    monkeypatch.setenv("CAPSNET_PLUGINS", str(plugin))
    monkeypatch.delitem(recipes._RECIPES, "own", raising=False)
    assert "  own " in output(capsys, "list", "recipes")
    assert "usage: capsnet train own" in output(capsys, "train", "own", "--help")
    monkeypatch.setenv("CAPSNET_PLUGINS", str(tmp_path / "none.py"))
    assert "none.py' could not be loaded" in refused(capsys, "list", "recipes")
    recipes._RECIPES.pop("own")
