"""Lower precision: where it is refused, what ``auto`` chooses, and what stays in float32."""

import copy
import dataclasses
import json
import logging
from pathlib import Path

import pytest
import torch

import capsnet
from capsnet import cli
from capsnet.training import TrainConfig, loop, precision, try_out
from tests.training.test_resume import interrupt, weights_of


def environment(folder: Path) -> dict:
    return json.loads((folder / "env.json").read_text())


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A CPU with bfloat16, and the seconds that the measurement gives; any run is long enough for it."""
    seconds = {"fp32": 2.0, "bf16": 1.0}
    monkeypatch.setenv("CAPSNET_BF16", "1")
    monkeypatch.setattr(precision, "LONG", 1)
    monkeypatch.setattr(precision, "measure", lambda *_: seconds)
    return seconds


def test_bf16_is_refused_on_a_cpu_without_it(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAPSNET_BF16", "0")
    config = dataclasses.replace(quick, precision="bf16")
    with pytest.raises(ValueError, match=r"this CPU has no bfloat16 products, .* use fp32 or auto"):
        capsnet.train(config, out=tmp_path / "run", device="cpu", figures=False)
    with pytest.raises(ValueError, match="this CPU has no bfloat16"):
        try_out(config, tmp_path / "run", device="cpu")
    (tmp_path / "config.json").write_text(config.to_json())
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", str(tmp_path / "config.json"), "--device", "cpu", "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert "this CPU has no bfloat16 products" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"precision.*'fp32', 'bf16', 'fp16' or 'auto'"):
        TrainConfig(precision="int8")  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, "bf16"), (1.9, "fp32"), (3.0, "fp32")])
def test_auto_takes_bf16_if_it_is_faster(
    quick: TrainConfig,
    tmp_path: Path,
    measured: dict[str, float],
    seconds: float,
    expected: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    measured["bf16"] = seconds
    with caplog.at_level(logging.INFO, "capsnet"):
        chosen = capsnet.train(
            dataclasses.replace(quick, precision="auto"), out=tmp_path / "auto", device="cpu", figures=False
        )
    plain = capsnet.train(
        dataclasses.replace(quick, precision=expected), out=tmp_path / expected, device="cpu", figures=False
    )
    assert environment(chosen.folder)["precision"] == environment(plain.folder)["precision"] == expected
    assert f"precision auto: {expected}, because bf16 is {2 / seconds:.2f} times as fast" in caplog.text
    ours, theirs = chosen.model.state_dict(), plain.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert json.loads((chosen.folder / "config.json").read_text())["precision"] == "auto"


@pytest.mark.parametrize("why", ["no bfloat16", "short"])
def test_auto_takes_fp32_without_measuring(
    quick: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setenv("CAPSNET_BF16", "1" if why == "short" else "0")
    monkeypatch.setattr(precision, "LONG", 1000 if why == "short" else 1)
    monkeypatch.setattr(precision, "measure", lambda *_: pytest.fail("measured"))
    result = capsnet.train(
        dataclasses.replace(quick, precision="auto"), out=tmp_path / "run", device="cpu", figures=False
    )
    assert environment(result.folder)["precision"] == "fp32"


def test_resumed_run_keeps_the_choice_of_auto(quick: TrainConfig, tmp_path: Path, measured: dict[str, float]) -> None:
    config = dataclasses.replace(quick, precision="auto")
    whole = capsnet.train(config, out=tmp_path / "whole", device="cpu", figures=False)
    interrupt(config, 3, out=tmp_path / "parts", device="cpu")
    measured["bf16"] = 9.0  # now it would be slower
    parts = capsnet.train(config, out=tmp_path / "parts", device="cpu", resume="auto", figures=False)
    assert [entry["precision"] for entry in environment(parts.folder)["resumed"]] == ["bf16"]
    assert weights_of(parts.folder) == weights_of(whole.folder)


@pytest.mark.parametrize("model", ["capsnet", "cnn-small", "efficient-capsnet"])
def test_measurement_leaves_no_trace(quick: TrainConfig, model: str) -> None:
    """Weights, BatchNorm's statistics, gradients and random numbers; dropout and augmentation are on."""
    config = dataclasses.replace(quick, model=model, model_options={}, batch_size=8, accumulate=2)
    training = loop.load_splits(config)[0]
    network = loop.build(config, training)
    before, random = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    seconds = precision.measure(config, network, training)
    assert set(seconds) == {"fp32", "bf16"}
    assert all(value > 0 for value in seconds.values())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), random)
