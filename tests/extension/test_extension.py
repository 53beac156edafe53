"""A routing, a model and a data set registered from outside the package work wherever registered things are used."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import capsnet
from capsnet import cli, data, models, routing
from capsnet._plugins import VARIABLE, load_plugins
from capsnet.data import _registry as data_registry
from capsnet.explorer import create_app
from capsnet.models import _registry as model_registry
from capsnet.routing import _registry as routing_registry
from tests.data import suite as data_suite
from tests.models import suite as model_suite
from tests.routing import suite as routing_suite

FILES = [Path(__file__).with_name(f"{name}.py") for name in ("layer_norm_routing", "two_layer_model", "stripes_data")]
PLUGINS = os.pathsep.join(map(str, FILES))


@pytest.fixture(scope="module", autouse=True)
def plugins() -> Iterator[None]:
    """Load the three files as plugins; afterwards the registries are as before."""
    with pytest.MonkeyPatch.context() as patch:
        for registry, name in (
            (routing_registry, "_ROUTINGS"),
            (model_registry, "_MODELS"),
            (data_registry, "_ENTRIES"),
        ):
            patch.setattr(registry, name, dict(getattr(registry, name)))
        patch.setenv(VARIABLE, PLUGINS)
        load_plugins()
        load_plugins()  # a second time has no effect
        yield
    for path in FILES:
        del sys.modules[path.stem]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of the outside model and routing, trained on the outside data set from the command line."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    flags = ["--model", "two-layer", "--routing", "layer-norm", "--data", "stripes:noise=0.2", "--epochs", "4"]
    more = ["--batch-size", "16", "--lr", "0.01", "--no-tensorboard", "--decoder", "None", "--out", str(folder)]
    cli.main(["train", "smoke", *flags, *more, "--limit", "None", "--eval-limit", "None"])
    return folder


@pytest.mark.parametrize(
    ("kind", "name"), [("routings", "layer-norm"), ("models", "two-layer"), ("datasets", "stripes")]
)
def test_list_shows_plugins(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["list", kind])
    assert name in capsys.readouterr().out.split()


def test_plugins_are_loaded_by_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "capsnet", "list", "routings"]
    environment = os.environ | {VARIABLE: PLUGINS}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "layer-norm" in done.stdout


def test_broken_plugin_is_reported_in_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken_plugin.py"
    broken.write_text("import nothing_of_this_name\n")
    for name in (broken, tmp_path / "missing.py"):
        environment = os.environ | {VARIABLE: str(name)}
        command = [sys.executable, "-m", "capsnet", "list", "routings"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert "plugin" in done.stderr


def test_train_and_evaluate_use_plugins(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = capsnet.load(run)
    assert model.class_routing == routing.get("layer-norm")
    capsys.readouterr()
    cli.main(["evaluate", str(run), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"]["n"] == 32
    assert result["accuracy"]["value"] > 0.9


def test_compare_includes_plugins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["compare", "--routings", "layer-norm", "--budget", "smoke", "--out", str(tmp_path)])
    assert "layer-norm" in capsys.readouterr().out


def test_export_writes_plugins(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    cli.main(["export", str(run), "--out", str(tmp_path / "stripes.onnx")])
    assert (tmp_path / "stripes.onnx").stat().st_size > 0


def test_explorer_shows_plugins(run: Path) -> None:
    shown = {name: capsnet.load(name) for name in (str(run), "capsnet-small-mnist")}
    shown["run"] = shown.pop(str(run))
    with TestClient(create_app(shown), base_url="http://localhost") as page:
        described = {entry["name"]: entry for entry in page.get("/api/models").json()["models"]}
        plugin, other = described["run"], described["capsnet-small-mnist"]
        assert plugin["routing"]["name"] == "layer-norm"
        assert plugin["gallery"]
        assert "layer-norm" in json.dumps(other["routings"])
        assert sorted(page.get("/api/pair/random?model=run&number=5").json()["labels"]) == [0, 1]


@pytest.mark.parametrize("check", routing_suite.CHECKS)
def test_routing_passes_the_suite(check: str) -> None:
    routing_suite.CHECKS[check](routing.get("layer-norm"))


@pytest.mark.parametrize("check", model_suite.CHECKS)
def test_model_passes_the_suite(check: str) -> None:
    model_suite.CHECKS[check]("two-layer")


@pytest.mark.parametrize("check", data_suite.CHECKS)
@pytest.mark.parametrize("name", ["stripes", "stripe-pairs"])
def test_data_set_passes_the_suite(check: str, name: str) -> None:
    data_suite.CHECKS[check](name)


def test_registries_know_plugins() -> None:
    assert "layer-norm" in routing.list_forms()
    assert "two-layer" in models.list_models()
    assert data.info("stripes").objects == 1
