"""Writing the page without a server: where it may be written, what it computes with, which networks it takes."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import capsnet
from capsnet import cli, routing
from capsnet.explorer import _graphs, _onnx_web, write_static
from capsnet.explorer._graphs import RoutingGraphs, Steps, variants
from capsnet.explorer._static import MARKER, smallest
from capsnet.export import graph
from capsnet.models import Model
from capsnet.serving.service import load_models


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An unpacked npm package with files of the right names."""
    dist = tmp_path / "package" / "dist"
    dist.mkdir(parents=True)
    for name in _onnx_web.FILES:
        (dist / name).write_text(name)
    return dist.parent


def refused(capsys: pytest.CaptureFixture, *arguments: object) -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explore", *map(str, arguments)])
    assert stop.value.code == 2
    sentence = capsys.readouterr().err
    assert len(sentence.splitlines()) == 1
    return sentence


def test_only_own_folders_are_replaced(tmp_path: Path, package: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    options = ("--runtime", package)
    assert f"no {MARKER}" in refused(capsys, "--static", tmp_path / "mine", *options)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    assert "is a file" in refused(capsys, "--static", tmp_path / "mine" / "letter.txt", *options)
    assert "no folder" in refused(capsys, "--static", tmp_path / "no" / "where", *options)
    assert "--runtime is for --static" in refused(capsys, *options)


def test_a_failure_leaves_the_old_folder(tmp_path: Path, package: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / MARKER).write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"no model .nobody."):
        write_static(tmp_path / "site", ["nobody"], runtime=package)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["package", "site"]
    assert (tmp_path / "site" / MARKER).is_file()


def test_runtime_is_named_where_it_cannot_be_had(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _onnx_web.runtime_files(package)
    assert found["ort.wasm.min.js"] == b"ort.wasm.min.mjs"
    assert b"MIT License" in found["LICENSE"]
    with pytest.raises(ValueError, match=r"is not an unpacked onnxruntime-web: expected ort\.wasm\.min\.mjs"):
        _onnx_web.runtime_files(tmp_path)
    monkeypatch.setenv("CAPSNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(ValueError, match=r"npm is not installed: .*--runtime"):
            _onnx_web.runtime_files()
    failed = subprocess.CompletedProcess([], 1, "", "npm error code ENOTFOUND\nnpm error no network\n")
    monkeypatch.setattr(shutil, "which", lambda _: "npm")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=r"could not fetch onnxruntime-web 1\..*: npm error no network"):
        _onnx_web.runtime_files()


def test_of_networks_that_can_do_the_same_the_smallest_is_taken() -> None:
    chosen = list(smallest(load_models()))
    assert chosen[0] == "capsnet-small-mnist"
    assert "capsnet-multimnist" in chosen
    assert not {"capsnet-mnist", "efficient-mnist", "capsnet-multimnist-6", "capsnet-multimnist-cnn"} & set(chosen)
    assert "capsnet-affine-cnn" in chosen
    silent = capsnet.create_model("residual-capsnet", image_size=(36, 36), decoder=False, channels=[4, 4, 16])
    silent.card = {"data": "multimnist"}
    assert "silent" not in smallest({"silent": silent} | load_models()), "it cannot draw the digits of a pair"


def test_graph_of_a_routing_takes_any_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_graphs, "MOST", 5)
    written: dict[str, bytes] = {}
    graphs = RoutingGraphs(written.__setitem__, ["uniform", "attention"], print)
    file = graphs.find(routing.get("attention"), 4)
    assert file is not None
    assert graphs.find(routing.get("attention", iterations=2), 9) == file
    assert graphs.find(routing.get("dynamic"), 4) is None
    session = onnxruntime.InferenceSession(written[file])
    votes = torch.randn(1, 11, 3, 2)
    answers: Any = session.run(None, {"votes": votes.numpy()})
    for count in (1, 4, 5):  # the first iterations are those of a routing with fewer
        for found, expected in zip(answers, Steps(routing.get("attention", iterations=count))(votes), strict=True):
            np.testing.assert_allclose(found[:count], expected.numpy(), atol=1e-5)


def test_routings_that_need_more_than_the_votes_are_left_out(tiny: Model) -> None:
    graphs = RoutingGraphs(lambda *_: None, ["uniform", "em"], print)
    assert variants(tiny, graphs) == {"uniform": {"file": "routing-0-uniform.onnx", "iterations": None}}
    learned = capsnet.create_model("capsnet", routing="em", image_size=(20, 22), conv_channels=4, primary_types=2)
    with torch.no_grad():
        params: Any = learned.routed_layers()["classes"].routing_params
        for value in params.values():
            value.add_(1)
    assert variants(learned, graphs) == {}


def test_weights_that_are_halves_are_stored_as_halves() -> None:
    layer = torch.nn.Linear(64, 128, bias=False)
    whole = len(graph(_Tuple(layer), {"x": torch.rand(1, 64)}, ["y"]))
    with torch.no_grad():
        layer.weight.copy_(layer.weight.half())
        layer.weight[:5, 0] = torch.tensor([-0.0, 2**-24, -(2**-15), 65504, -1])
    content = graph(_Tuple(layer), {"x": torch.rand(1, 64)}, ["y"])
    assert len(content) < 0.6 * whole
    found: Any = onnxruntime.InferenceSession(content).run(None, {"x": np.eye(64, dtype=np.float32)[:1]})
    assert np.array_equal(found[0][0], layer.weight[:, 0].detach().numpy())  # to the last bit


def test_batch_norm_leaves_the_weights_before_it_as_they_are() -> None:
    layers = torch.nn.Sequential(torch.nn.Conv2d(8, 64, 5), torch.nn.BatchNorm2d(64))
    layers.half().float()
    x = torch.rand(1, 8, 5, 5)
    for _ in range(3):
        layers(torch.rand(16, 8, 5, 5))  # statistics that are no halves
    content = graph(_Tuple(layers), {"x": x}, ["y"])
    assert len(content) < 2.4 * 64 * 8 * 5 * 5
    assert type(layers[1]) is torch.nn.BatchNorm2d  # the caller's module is as it was


class _Tuple(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.inner(x),)
